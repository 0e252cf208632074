"""What is said of executors that cannot work. The texts are Spark's own, from a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hudi_ingest
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.local.processes import free_port
from hudi_ingest.pipeline.engine import EngineSettings, local_table_warning, untried_master_warning
from hudi_ingest.spark import OWN_PYTHON, VARIABLE, require_same_version
from hudi_ingest.spark.driver_jvm import JVM_OPTIONS
from hudi_ingest.spark.executors import executor_problem, require_master
from hudi_ingest.spark.session import EngineConnection, session_options

pytestmark = pytest.mark.fast

FAILED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: org.apache.spark."
    "SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task "
    "0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 0): {}\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
)
DAEMON = "org.apache.spark.SparkException: \nError from python worker:\n  {}\nPYTHONPATH was:\n  /jars/spark-core.jar"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'java.io.IOException: Cannot run program "/py": error=2, No such file or directory',
            "executors run /py (`python` in engine.yaml), but a host of the cluster has no such program; ",
        ),
        (
            DAEMON.format(
                "/py: Error while finding module specification for 'hudi_ingest.transaction.write.worker_daemon' "
                "(ModuleNotFoundError: No module named 'hudi_ingest')"
            ),
            "executors run /py (`python` in engine.yaml), which has no module hudi_ingest; ",
        ),
        (
            DAEMON.format("OtherVersion: /py on two has hudi-ingest 0.1.0, the driver has 9.9"),
            "/py on two has hudi-ingest 0.1.0, the driver has 9.9: install the driver's version ",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
            "version: (3, 9) than that in driver: 3.11, PySpark cannot run with different minor versions.",
            f"executors run /py (`python` in engine.yaml), which is Python 3.9, but the driver is Python {OWN_PYTHON}; ",
        ),
    ],
)
def test_a_python_that_cannot_work_is_one_sentence(text: str, problem: str) -> None:
    told = executor_problem(FAILED.format(text), "/py")
    assert told is not None
    assert told.startswith(problem)
    assert "\n" not in told


def test_other_failures_of_a_job_are_not_taken_for_the_pythons() -> None:
    assert executor_problem(FAILED.format("java.io.IOException: No space left on device"), "/py") is None
    assert executor_problem(FAILED.format(DAEMON.format("OSError: Cannot allocate memory")), "/py") is None


def test_a_workers_daemon_refuses_tasks_of_another_version() -> None:
    require_same_version({})
    require_same_version({VARIABLE: hudi_ingest.__version__})
    told = subprocess.run(
        [sys.executable, "-m", "hudi_ingest.transaction.write.worker_daemon"],
        env={VARIABLE: "9.9", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    assert told.stderr.startswith(f"OtherVersion: {sys.executable} on ")
    assert told.stderr.endswith(f"has hudi-ingest {hudi_ingest.__version__}, the driver has 9.9\n")


def test_s2_an_op_of_another_python_than_the_engines_executors_is_refused() -> None:
    EngineConnection(1, "s", "host", 2, 0.0).require_same_python()
    with pytest.raises(
        EnvironmentProblem, match=r"this process runs Python .*, but the executors .* run Python 3\.9 \(/py\)"
    ):
        EngineConnection(1, "s", "host", 2, 0.0, python="/py", python_version="3.9").require_same_python()


def test_a_master_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(EnvironmentProblem, match=f"no Spark master answers at {master} .*refused"):
        require_master(master)
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvironmentProblem, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"):
        require_master("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    require_master("yarn")


def test_s2_a_driver_is_told_where_executors_find_it_and_what_they_run() -> None:
    settings = EngineSettings.model_validate(
        {
            "master": "spark://one:7077",
            "driver_host": "two",
            "cores": 8,
            "archive": "/shared/env.tar.gz",
            "executor_jars": "/opt/jars/",
            "spark_conf": {
                "spark.driver.bindAddress": "0.0.0.0",
                "spark.driver.port": 7001,
                "spark.driver.blockManager.port": 7002,
                "spark.executor.extraJavaOptions": "-Xss4m",
                "spark.task.maxFailures": 2,
            },
        }
    )
    options = session_options([], settings, {"spark.driver.extraJavaOptions": "-XX:+UseZGC"})
    expected = {
        "spark.driver.host": "two",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "7001",
        "spark.driver.blockManager.port": "7002",
        "spark.cores.max": "8",
        "spark.archives": "/shared/env.tar.gz#environment",
        "spark.executor.extraJavaOptions": f"{JVM_OPTIONS} -Xss4m",
        "spark.task.maxFailures": "2",
    }
    assert {key: options[key] for key in expected} == expected
    assert options["spark.driver.extraJavaOptions"].endswith(" -XX:+UseZGC")
    assert "spark.jars" not in options
    assert "spark.authenticate" not in options


@pytest.mark.parametrize(("master", "manager"), [("k8s://https://one:443", "Kubernetes"), ("yarn", "YARN")])
def test_a_cluster_manager_that_was_never_tried_is_warned_of(master: str, manager: str) -> None:
    warning = untried_master_warning(master)
    assert warning is not None
    assert warning.startswith(
        f"master {master}: hudi-ingest was tried on standalone Spark clusters only, never on {manager}."
    )


@pytest.mark.parametrize("master", ["local[*]", "local-cluster[2,1,1024]", "spark://one:7077"])
def test_a_master_that_was_tried_is_not_warned_of(master: str) -> None:
    assert untried_master_warning(master) is None


def test_a_table_on_a_local_disk_is_warned_of_when_executors_are_elsewhere() -> None:
    warning = local_table_warning("/data/orders", "spark://one:7077")
    assert warning is not None
    assert warning.startswith(
        "table.base_path /data/orders is on a local file system, but executors of spark://one:7077"
    )
    assert local_table_warning("/data/orders", "local[*]") is None
    assert local_table_warning("s3a://lake/orders", "spark://one:7077") is None
