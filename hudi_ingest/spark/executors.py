"""Checks, within a bounded time, that a cluster's executors can run write tasks; if not, says why in one sentence."""

from __future__ import annotations

import os
import re
import socket
import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.liveness import first_listening
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark import OWN_PYTHON

EXECUTOR_SECONDS = 60.0
"""How long a cluster may take to start an executor and its Python."""
_CONNECT_SECONDS = 5.0
_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_GROUP = "hudi-ingest: executors"


def require_master(master: str) -> None:
    """Raise EnvironmentProblem if no standalone master accepts connections, because Spark itself would try for a minute and then stop
    the driver without a word, or if nothing says where YARN is. Other errors of Kubernetes and YARN are Spark's to report."""
    if master == "yarn" and not any(map(os.environ.get, _YARN_VARIABLES)):
        raise EnvironmentProblem(
            f"master yarn: neither {' nor '.join(_YARN_VARIABLES)} is set in this process; set one to the folder with the cluster's "
            "core-site.xml and yarn-site.xml, wherever hudi-ingest starts a Spark driver, and try again."
        )
    if not master.startswith("spark://"):
        return
    listening, refusals = first_listening(master.removeprefix("spark://").split(","))
    if listening is None:
        reasons = "; ".join(f"{address}: {error}" for address, error in refusals.items())
        raise EnvironmentProblem(
            f"no Spark master answers at {master} ({reasons}); start it, or correct `master` in engine.yaml."
        )


def require_executors(session: SparkSession, settings: EngineSettings) -> None:
    """Run a function on the cluster. Raises EnvironmentProblem if that is impossible, after EXECUTOR_SECONDS at most."""
    context = session.sparkContext
    _require_reachable(settings, int(context.getConf().get("spark.driver.port") or 0))
    too_late = threading.Event()

    def cancel() -> None:
        too_late.set()
        context.cancelJobGroup(_GROUP)

    context.setJobGroup(_GROUP, "checking the executors")
    timer = threading.Timer(EXECUTOR_SECONDS, cancel)
    timer.start()
    try:
        context.parallelize(range(1), 1).map(str).collect()
    except (Py4JError, PySparkException) as error:
        problem = executor_problem(str(error), settings.executors_python)
        if problem is None:
            if too_late.is_set() or _stopped(context):
                problem = _no_executor(settings)
            else:
                problem = f"no executor of {settings.master} could run a function: {_reason(str(error))}."
        raise EnvironmentProblem(problem) from error
    finally:
        timer.cancel()
        if not _stopped(context):
            context.setLocalProperty("spark.jobGroup.id", None)


def executor_problem(text: str, python: str) -> str | None:
    """Say in one sentence what is wrong with the executors' `python`, so that a retry cannot help; None if the Spark job failed
    for another reason."""
    where = f"executors run {python} (`python` in engine.yaml)"
    versions = re.search(r"OtherVersion: (.+)", text)
    if versions:
        return f"{versions[1].strip()}: install the driver's version in the executors' environment, and restart the engine if it is older."
    program = re.search(r'Cannot run program "([^"]+)"', text)
    if program:
        return (
            f"{where}, but a host of the cluster has no such program; install it there, or set `python` or `archive`."
        )
    mismatch = re.search(r"different version:? \((\d+), (\d+)\)", text)
    if mismatch:
        version = f"{mismatch[1]}.{mismatch[2]}"
        return f"{where}, which is Python {version}, but the driver is Python {OWN_PYTHON}; both need the same minor version."
    if "Error from python worker" in text:
        module = re.search(r"No module named '?([\w.]+)'?", text)
        if module:
            return (
                f"{where}, which has no module {module[1]}; install the driver's version of hudi-ingest, with its "
                "dependencies, in that environment, or set `archive`."
            )
    return None


def _reason(text: str) -> str:
    """Return the line that says why: the first of a Python worker's own output, else of the last failure."""
    for beginning in ("Error from python worker:", "most recent failure: "):
        # Nothing follows a beginning that is not there.
        lines = [line.strip() for line in text.partition(beginning)[2].splitlines() if line.strip()]
        if lines:
            return lines[0][:300]
    return text.splitlines()[0][:300] if text else "no reason given"


def _require_reachable(settings: EngineSettings, port: int) -> None:
    """Raise EnvironmentProblem if not even the driver reaches itself where executors look for it."""
    host = settings.advertised_host
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise EnvironmentProblem(
            f"executors cannot reach the driver at {host}:{port}: not even its own host can ({error}); correct `driver_host`, "
            "or spark.driver.bindAddress in `spark_conf`, in engine.yaml."
        ) from error


def _no_executor(settings: EngineSettings) -> str:
    port = settings.spark_conf.get("spark.driver.port")
    shown = port.get_secret_value() if port else "(any port; set spark.driver.port in `spark_conf` to open one)"
    return (
        f"no executor of {settings.master} was ready within {EXECUTOR_SECONDS:g} s. Either the cluster has no free cores or "
        "memory for one (see the master's page), or executors end at once because they cannot connect to the driver at "
        f"{settings.advertised_host}:{shown} (see their stderr in the workers' work folders): check `driver_host`, the "
        "firewall, and spark.executor.memory."
    )


def _stopped(context: SparkContext) -> bool:
    java: Any = context._jsc
    try:
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, ConnectionError, OSError):
        return True
