"""Dagster's instance for processes that Dagster has not started: that of $DAGSTER_HOME, or of the home's embedded Dagster; whether its
daemons work; and one instance for all ticks of a code server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dagster import DagsterError, DagsterInstance, SensorEvaluationContext
from sqlalchemy.exc import SQLAlchemyError

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home, stack_process, stack_runs

DAGSTER_VARIABLE = "DAGSTER_HOME"
DAEMON = "dagster-daemon"
"""Its name in the embedded stack."""
SILENT_SECONDS = 120.0
"""Daemons send a heartbeat every 30 s."""
_kept: list[tuple[object, DagsterInstance]] = []
"""The newest instance of `kept_instance`, and what it was made from."""


def dagster_folder(home: Home, environment: Mapping[str, str] = os.environ) -> Path | None:
    """$DAGSTER_HOME, or else that of the home's embedded Dagster; None if there is no instance."""
    named = environment.get(DAGSTER_VARIABLE)
    folder = Path(named).expanduser().absolute() if named else home.dagster
    return folder if (folder / "dagster.yaml").is_file() else None


def open_instance(folder: Path) -> DagsterInstance:
    """Open the instance of the folder. Raises what Dagster raises if it cannot be opened."""
    # The embedded Dagster's storages take their folder from the variable, wherever the instance was opened from.
    os.environ[DAGSTER_VARIABLE] = str(folder)
    return DagsterInstance.get()


def kept_instance(context: SensorEvaluationContext) -> DagsterInstance:
    """Return the instance of a sensor's tick, the same for all ticks of this process: `context.instance` opens one for each."""
    ref = context.instance_ref
    if ref is None:
        return context.instance
    if not _kept or _kept[0][0] != ref:
        _kept[:] = [(ref, DagsterInstance.from_ref(ref))]
    return _kept[0][1]


@contextmanager
def home_instance(home: Home) -> Iterator[DagsterInstance]:
    """Open the home's instance. Raises EnvironmentProblem if there is none, and for what Dagster and its storage raise, in the block, too."""
    folder = dagster_folder(home)
    if folder is None:
        raise EnvironmentProblem(
            f"no Dagster instance is configured: {DAGSTER_VARIABLE} does not name a folder with a dagster.yaml, and `hudi-ingest up` has "
            f"not run in {home.root}. Set {DAGSTER_VARIABLE} to that of your Dagster, or set `enabled` in the pipeline file."
        )
    try:
        with open_instance(folder) as instance:
            yield instance
    except (DagsterError, SQLAlchemyError) as error:
        first = str(error).partition("\n")[0]
        raise EnvironmentProblem(
            f"Dagster's instance in {folder} cannot be used: {type(error).__name__}: {first}. Check that its storage is up."
        ) from error


def silent_daemons(home: Home, folder: Path, instance: DagsterInstance) -> list[str]:
    """The daemons of the instance in `folder` that do not work; a stack that is down is known at once, others by their heartbeats."""
    required = sorted(instance.get_required_daemon_types())
    if is_of_stopped_stack(home, folder):
        return required
    heartbeats, oldest = instance.get_daemon_heartbeats(), time.time() - SILENT_SECONDS
    return [name for name in required if name not in heartbeats or heartbeats[name].timestamp < oldest]


def daemons_trouble(home: Home, folder: Path, instance: DagsterInstance) -> str:
    """Say why nothing begins in the instance in `folder` if that is because of its daemons, and what to do; "" if they work."""
    if not silent_daemons(home, folder, instance):
        return ""
    process = stack_process(home, DAEMON) if folder == home.dagster else None
    if process is None:
        return (
            "Dagster's daemon is down, so nothing begins: start `dagster-daemon run`, or `hudi-ingest up` on one machine; if its "
            "process is there, it hangs, so end it first"
        )
    if time.time() - process.create_time() < SILENT_SECONDS:
        return "Dagster's daemon is starting: nothing begins before it has"
    return f"Dagster's daemon (pid {process.pid}) hangs, so nothing begins: `hudi-ingest up` replaces it"


def is_of_stopped_stack(home: Home, folder: Path) -> bool:
    """Whether the instance in `folder` is that of the home's embedded stack, and the stack is down."""
    return folder == home.dagster and home.kafka.exists() and not stack_runs(home)
