"""What a result depends on beside the code: the machine, the versions, the commit."""

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
    """Facts for the results' `machine`. Raises EnvironmentProblem when there is no Java."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
        "java": _java_version(),
        **{name.replace("-", "_"): version(name) for name in _PACKAGES},
        "spark": version("pyspark"),
        "jars": [each.rpartition(":")[0].rpartition(":")[2] + " " + each.rpartition(":")[2] for each in _roots()],
    }


def commit() -> str:
    """The commit of the code that runs, with `-dirty` when files differ from it; "" outside a git repository."""
    folder = Path(__file__).parent
    found = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return found.stdout.strip()


def _roots() -> list[str]:
    return [each for roots in ROOTS.values() for each in roots.modules]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _java_version() -> str:
    told = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True).stderr.splitlines()
    return told[0] if told else ""
