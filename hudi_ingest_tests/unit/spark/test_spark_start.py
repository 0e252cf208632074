"""A Spark of a process's own that does not start."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.driver_jvm import require_own_spark
from hudi_ingest.spark.engine import why_ended
from hudi_ingest.spark.session import own_session

# In a process of its own, because pyspark keeps one JVM a process.
PROGRAM = """
import sys
from pathlib import Path
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark import session
from hudi_ingest.exceptions import EngineLost
session.find_java, session.java_home = (lambda: Path(sys.argv[1])), (lambda java: java.parent.parent)
session.spark_jars = lambda report: ()
settings = EngineSettings(spark_conf={"spark.ssl.keyPassword": " s3cret\\\\=ö"})
for _ in range(2):
    try:
        if sys.argv[3:]:
            session.current_session(Home.from_environment())
        session.own_session(settings, local_dir=Path(sys.argv[2]))
    except EngineLost as error:
        print(error)
"""


@pytest.mark.parametrize("ending", ["kill -9 $$", "exit 1"])
def test_a_jvm_that_dies_at_its_start_is_told_in_one_sentence(tmp_path: Path, ending: str) -> None:
    told = started(tmp_path, ending)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("Spark's JVM ended while it was starting ([JAVA_GATEWAY_EXITED]") == 2
    assert "Traceback" not in told.stderr


def test_on_a_terminal_spark_prints_to_a_log_and_elsewhere_to_where_our_errors_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUDI_INGEST_HOME", str(tmp_path / "home"))
    noise = "echo WARN of a library >&2; exit 1"
    terminal, stderr = pty.openpty()
    try:
        told = started(tmp_path, noise, "current", stderr=stderr)
        log = tmp_path / "home" / "logs" / "spark.log"
        assert told.stdout.count(f"The reason is in its output in {log}.") == 2
        assert log.read_text().count("WARN of a library\n") == 2
        os.write(stderr, b".")
        assert os.read(terminal, 1000) == b".", "nothing else"
    finally:
        os.close(terminal)
        os.close(stderr)
    told = started(tmp_path, noise, "current")
    assert "The reason is in its output above." in told.stdout
    assert "WARN of a library\n" in told.stderr


# The settings' file and its mode, and all arguments.
SHOW = """
printf '%s\\n' "$@" >> {folder}/arguments
while [ $# -gt 0 ]; do
    [ "$1" = --properties-file ] && {{ stat -c %a "$(dirname "$2")"; cat "$2"; }} > {folder}/settings
    shift
done
exit 1
"""


def test_no_process_list_shows_a_setting_and_its_file_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java here is what pyspark's own scripts start. They got each setting as an argument, and so did the driver's JVM."""
    (tmp_path / "spark-defaults.conf").write_text("spark.of.the.installation 1")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    started(tmp_path, SHOW.format(folder=tmp_path))
    arguments = (tmp_path / "arguments").read_text()
    assert "--properties-file" in arguments
    assert "--conf" not in arguments
    assert "s3cret" not in arguments
    mode, *settings = (tmp_path / "settings").read_text().splitlines()
    assert mode == "700"
    assert settings[0] == "spark.of.the.installation 1"
    assert r"spark.ssl.keyPassword=\ s3cret\\=ö" in settings
    assert not [*(tmp_path / "local").iterdir()]


def test_arguments_that_a_notebook_left_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    told = started(tmp_path, "exit 1")
    assert (
        told.stdout.count("PYSPARK_SUBMIT_ARGS is set here (--master yarn pyspark-shell) and may be why: unset it. ")
        == 2
    )


def test_another_spark_is_refused_and_the_same_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=rf"SPARK_HOME is {tmp_path}, whose Spark is none"):
        require_own_spark()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.12-{pyspark.__version__}.jar").touch()
    require_own_spark()
    (tmp_path / "jars" / f"spark-core_2.12-{pyspark.__version__}.jar").rename(
        tmp_path / "jars" / "spark-core_2.12-3.3.1.jar"
    )
    with pytest.raises(EnvironmentProblem, match=r"whose Spark is 3\.3\.1, and hudi-ingest needs .*Unset SPARK_HOME"):
        own_session(EngineSettings())


def test_an_engine_that_was_killed_does_not_get_a_larger_heap() -> None:
    assert "A larger --memory makes that likelier" in why_ended(-signal.SIGKILL)
    assert "code 1;" in why_ended(1)
    assert "OutOfMemoryError" in why_ended(1)


def started(folder: Path, script: str, *more: str, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(exist_ok=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, str(java), str(folder / "local"), *more]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=120)
