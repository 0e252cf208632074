"""Describe what a result depends on: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from hudi_ingest.spark.jars import ROOTS
from hudi_ingest.spark.java import find_java

_PACKAGES = ("pyspark", "pyarrow", "hudi", "dagster", "confluent-kafka", "numpy")


def machine() -> dict[str, Any]:
    """Return the facts in the results' `machine`. Raises EnvironmentProblem when there is no Java."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
        "java": _java_version(),
        **{name.replace("-", "_"): version(name) for name in _PACKAGES},
        "spark": version("pyspark"),
        "jars": [root.rpartition(":")[0].rpartition(":")[2] + " " + root.rpartition(":")[2] for root in _roots()],
    }


def commit() -> str:
    """Return the commit of the running code, with `-dirty` if files differ from it; "" outside a git repository."""
    folder = Path(__file__).parent
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return described.stdout.strip()


def _roots() -> list[str]:
    return [module for roots in ROOTS.values() for module in roots.modules]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _java_version() -> str:
    lines = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True).stderr.splitlines()
    return lines[0] if lines else ""
