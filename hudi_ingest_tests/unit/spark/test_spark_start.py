"""A Spark of a process's own that does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own, because pyspark keeps one JVM a process.
PROGRAM = """
import sys
from pathlib import Path
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark import session
from hudi_ingest.exceptions import EngineLost
session.find_java, session.java_home = (lambda: Path(sys.argv[1])), (lambda java: java.parent.parent)
session.spark_jars = lambda report: ()
for _ in range(2):
    try:
        session.own_session(EngineSettings())
    except EngineLost as error:
        print(error)
"""


@pytest.mark.parametrize("ending", ["kill -9 $$", "exit 1"])
def test_a_jvm_that_dies_at_its_start_is_told_in_one_sentence(tmp_path: Path, ending: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{ending}\n")
    java.chmod(0o755)
    told = subprocess.run([sys.executable, "-c", PROGRAM, str(java)], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("Spark's JVM ended while it was starting ([JAVA_GATEWAY_EXITED]") == 2
    assert "Traceback" not in told.stderr
