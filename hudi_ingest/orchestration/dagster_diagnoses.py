"""Examines the Dagster instance for `hudi-ingest doctor`: its daemons, the pipelines' sensors and ticks, its queue."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, TickStatus
from dagster._daemon.controller import get_daemon_statuses

from hudi_ingest.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from hudi_ingest.orchestration.sensor import sensor_name
from hudi_ingest.pipeline.pipeline import Pipeline

DAGSTER = "dagster"
LONG_QUEUED_SECONDS = 600.0
_SHOWN = 5


def dagster_diagnoses(pipelines: Sequence[Pipeline]) -> Iterator[Diagnosis]:
    """Examine this process's instance, at $DAGSTER_HOME."""
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        yield warning(
            DAGSTER,
            "DAGSTER_HOME is not set, so Dagster's instance was not examined.",
            "Set it to the folder with Dagster's dagster.yaml, or run this where the daemon runs.",
        )
        return
    try:
        instance = DagsterInstance.get()
    except Exception as error:  # noqa: BLE001 - a wrong dagster.yaml or an unreachable storage fails in many ways
        text = f"The instance in {home} cannot be opened: {' '.join(str(error).split())}"
        yield problem(DAGSTER, text, "Correct dagster.yaml there, and see whether its database is up.")
        return
    with instance:
        yield from _daemons(instance, home)
        yield from _sensors(instance, pipelines)
        yield from _queue(instance)


def _daemons(instance: DagsterInstance, home: str) -> Iterator[Diagnosis]:
    statuses = get_daemon_statuses(instance, instance.get_required_daemon_types(), ignore_errors=True)
    silent = sorted(name.lower().replace("_", " ") for name, status in statuses.items() if not status.healthy)
    if silent:
        text = f"Daemons of the instance in {home} send no heartbeat: {', '.join(silent)}. Without them no run is launched."
        yield problem(DAGSTER, text, "Start `dagster-daemon run` (`hudi-ingest up` on one machine), and see its log.")
    else:
        yield ok(DAGSTER, f"the {len(statuses)} daemons of the instance in {home} are alive")
    for status in statuses.values():
        if status.last_heartbeat and status.last_heartbeat.errors:
            first = status.last_heartbeat.errors[0].message.strip().splitlines()[0]
            yield warning(
                DAGSTER, f"The {status.daemon_type.lower().replace('_', ' ')} daemon reports an error: {first}"
            )


def _sensors(instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> Iterator[Diagnosis]:
    states = {
        state.instigator_name: state for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    }
    off = []
    for pipeline in pipelines:
        state = states.get(sensor_name(pipeline.name))
        if state is None or state.status is InstigatorStatus.STOPPED:
            off.append(pipeline)
        else:
            yield from _last_tick(instance, pipeline, state)
    enabled = [pipeline.name for pipeline in off if pipeline.enabled]
    if enabled:
        text = f"Enabled in their files, but paused in Dagster or not loaded by it: {_listed(enabled)}."
        yield warning(
            DAGSTER, text, "Turn their sensors on if that is not on purpose; the switch in the UI takes precedence."
        )
    if off:
        names = [pipeline.name for pipeline in off if not pipeline.enabled]
        if names:
            yield ok(DAGSTER, f"sensors that are off: {_listed(names)}")


def _last_tick(instance: DagsterInstance, pipeline: Pipeline, state: InstigatorState) -> Iterator[Diagnosis]:
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    if ticks and ticks[0].status is TickStatus.FAILURE and ticks[0].error is not None:
        message = (ticks[0].error.cause or ticks[0].error).message.strip()
        text = re.sub(r"^[\w.]+: ", "", message)
        yield problem(f"pipeline {pipeline.name}", text, f"It fails the ticks of {sensor_name(pipeline.name)}.")


def _queue(instance: DagsterInstance) -> Iterator[Diagnosis]:
    records = instance.get_run_records(RunsFilter(statuses=[DagsterRunStatus.QUEUED]), limit=1000)
    waits = [time.time() - record.create_timestamp.timestamp() for record in records]
    long = [wait for wait in waits if wait > LONG_QUEUED_SECONDS]
    if long:
        text = f"{len(long)} runs have waited in the queue for more than {LONG_QUEUED_SECONDS / 60:.0f} minutes."
        remedy = "See which runs hold the places (max_concurrent_runs, pools) in the UI, Runs; end those that hang."
        yield warning(DAGSTER, text, remedy)
    else:
        yield ok(DAGSTER, f"{len(records)} runs in the queue")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
