"""Spark sessions, the shared engine, and the Java and jars that pyspark does not include.

Imports `pipeline`, `model`, `home` and `exceptions`. Public: `session.current_session`, `engine`, `jars.spark_jars`, `s3.connect_bucket`, `java`.

What is defined here keeps tasks away from executors with another version of hudi-ingest than the process that submits them. That
process puts its version into the environment of its Python workers. Spark starts a daemon for each such environment, so workers that
are older than an upgrade in place are not used either.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import hudi_ingest

if TYPE_CHECKING:
    from pyspark import SparkContext

VARIABLE = "HUDI_INGEST_DRIVER_VERSION"
OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def note_version(context: SparkContext) -> None:
    """Require this version in all tasks that this process submits through the context."""
    context.environment[VARIABLE] = hudi_ingest.__version__


def require_same_version(environment: Mapping[str, str] = os.environ) -> None:
    """Raise SystemExit in the daemon of Python workers, with one line, if the process that submits tasks has another version."""
    own = hudi_ingest.__version__
    of_driver = environment.get(VARIABLE, own)
    if of_driver != own:
        sys.exit(
            f"OtherVersion: {sys.executable} on {socket.gethostname()} has hudi-ingest {own}, the driver has {of_driver}"
        )
