"""Examines the Spark engine: its settings, its process, whether it answers, and a cluster's master."""

from __future__ import annotations

from collections.abc import Iterator

from hudi_ingest.home.folder import Home, stack_runs
from hudi_ingest.model.finding import Finding, ok, problem, warning
from hudi_ingest.pipeline.engine import load_engine_settings
from hudi_ingest.spark.executors import require_master
from hudi_ingest.spark.session import EngineConnection, require_answer

ENGINE = "engine"


def engine_diagnoses(home: Home) -> Iterator[Finding]:
    """Examine the engine of this home. Raises ConfigError, EnvironmentProblem, EngineLost."""
    settings = load_engine_settings(home)
    require_master(settings.master)
    connection = EngineConnection.read(home.engine_file)
    if connection is not None:
        connection.require_same_python()
        require_answer(connection)
        yield ok(ENGINE, f"serves {settings.master}, pid {connection.pid}, Python {connection.python_version}")
    elif home.kafka.exists() and (home.engine_file.exists() or not stack_runs(home)):
        return  # The home's stack is examined, too, and that says that its engine has ended.
    elif home.engine_file.exists():
        yield problem(
            ENGINE,
            f"{home.engine_file} names an engine that has ended, or that runs in another container.",
            "Start it with `hudi-ingest up` or `hudi-ingest engine`, on the machine and in the container where the ops run.",
        )
    else:
        yield warning(
            ENGINE,
            "No engine runs for this home, so each op starts a Spark driver of its own, which takes some seconds.",
            "Start one with `hudi-ingest engine`, unless this machine is not meant to run ops.",
        )
