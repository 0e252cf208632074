"""The view of Dagster's instance: for metrics, which sensors are on and whether runs succeed, in four queries for all pipelines; for
`hudi-ingest doctor`, its daemons, sensors, ticks and queue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.exceptions.problems import listed
from hudi_ingest.home.folder import Home
from hudi_ingest.metrics.families import DagsterRecord
from hudi_ingest.model.finding import Finding, ok, problem, stated, warning
from hudi_ingest.operations.health.judgement import RUNS_SUCCEED
from hudi_ingest.orchestration.home_instance import (
    daemons_trouble,
    dagster_folder,
    is_of_stopped_stack,
    open_instance,
    silent_daemons,
)
from hudi_ingest.orchestration.reports.checks import newest_results, why_housekeeping_failed
from hudi_ingest.orchestration.switch import activity, by_hand, coordinators, switches_of
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline

DAGSTER = "dagster"
LONG_QUEUED_SECONDS = 600.0
_SHOWN = 5


class InstanceView:
    """The instance of $DAGSTER_HOME, or else of the home's embedded Dagster, which may appear later. For one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._instance: DagsterInstance | None = None

    def close(self) -> None:
        if self._instance is not None:
            self._instance.dispose()

    def look(self, pipelines: Sequence[Pipeline]) -> DagsterRecord:
        """Raises what Dagster's storage raises when it cannot be reached."""
        folder = dagster_folder(self._home)
        if folder is None:
            return DagsterRecord(is_there=False, activity={pipeline.name: by_hand(pipeline) for pipeline in pipelines})
        if self._instance is None:
            self._instance = open_instance(folder)
        instance = self._instance
        switches, trouble = switches_of(instance, self._home), daemons_trouble(self._home, folder, instance)
        results = newest_results(instance, pipelines, RUNS_SUCCEED)
        return DagsterRecord(
            # Unless something has been switched, the pipeline file decides.
            running={
                pipeline.name: switches.is_on(pipeline)
                for pipeline in pipelines
                if switches.turned(pipeline) is not None or not switches.sensor
            },
            activity={pipeline.name: activity(pipeline, switches, trouble)[1] for pipeline in pipelines},
            findings={name: tuple(by_check.values()) for name, by_check in results.items() if by_check},
        )


def dagster_diagnoses(home: Home, pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """Examine the instance of $DAGSTER_HOME, or else of the home's embedded Dagster."""
    folder = dagster_folder(home)
    if folder is None:
        yield warning(
            DAGSTER,
            "DAGSTER_HOME does not name a folder with a dagster.yaml, so Dagster's instance was not examined.",
            "Set it, or run this where the daemon runs.",
        )
        return
    try:
        instance = open_instance(folder)
    except Exception as error:  # noqa: BLE001 - a wrong dagster.yaml or an unreachable storage fails in many ways
        text = f"The instance in {folder} cannot be opened: {' '.join(str(error).split())}"
        yield problem(DAGSTER, text, "Correct dagster.yaml there, and see whether its database is up.")
        return
    with instance:
        yield from _daemons(home, instance, folder)
        yield from _sensors(home, instance, pipelines)
        yield from _failed_runs(instance, pipelines)
        yield from _queue(instance)
        failure = why_housekeeping_failed(instance)
        if failure:
            yield problem("housekeeping", failure)


def _daemons(home: Home, instance: DagsterInstance, folder: Path) -> Iterator[Finding]:
    heartbeats = instance.get_daemon_heartbeats()
    required = instance.get_required_daemon_types()
    silent = [_words(name) for name in silent_daemons(home, folder, instance)]
    if is_of_stopped_stack(home, folder):
        pass  # The examination of the stack says so.
    elif silent:
        text = f"Daemons of the instance in {folder} do not run, or hang: {', '.join(silent)}. Without them no run is launched."
        remedy = daemons_trouble(home, folder, instance)
        yield problem(DAGSTER, text, remedy + ". See its log.")
    else:
        yield ok(DAGSTER, f"the {len(required)} daemons of the instance in {folder} are alive")
    for name, heartbeat in heartbeats.items():
        if heartbeat.errors:
            first = heartbeat.errors[0].message.strip().splitlines()[0]
            yield warning(DAGSTER, f"The {_words(name)} daemon reports an error: {first}")


def _words(daemon: str) -> str:
    return daemon.lower().replace("_", " ")


def _sensors(home: Home, instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    seen, switches = coordinators(instance), switches_of(instance, home)
    for state in instance.all_instigator_state():
        if seen.get(state.instigator_name):
            yield from _last_tick(instance, state.instigator_name, state.instigator_origin_id, state.selector_id)
    enabled = [pipeline.name for pipeline in pipelines if pipeline.enabled]
    paused = [pipeline.name for pipeline in pipelines if pipeline.enabled and not switches.is_on(pipeline)]
    off = [pipeline.name for pipeline in pipelines if not pipeline.enabled and not switches.is_on(pipeline)]
    if paused:
        text = f"Enabled in their files, but paused: {listed(paused, _SHOWN)}."
        remedy = "`hudi-ingest resume PIPELINE` turns one on, unless it is off on purpose."
        if not switches.sensor:
            remedy = f"The sensor {COORDINATOR} is off: turn it on in Dagster's UI, under Automation, unless it is off on purpose."
        yield warning(DAGSTER, text, remedy)
    if enabled and not seen:
        text = (
            f"Enabled in their files, but Dagster has not seen their sensor {COORDINATOR}: {listed(enabled, _SHOWN)}."
        )
        yield warning(DAGSTER, text, "Reload the code location, and see whether it has loaded their files.")
    if off:
        yield ok(DAGSTER, f"pipelines that are off: {listed(off, _SHOWN)}")


def _last_tick(instance: DagsterInstance, sensor: str, origin_id: str, selector_id: str) -> Iterator[Finding]:
    ticks = instance.get_ticks(origin_id, selector_id, limit=1)
    if ticks and ticks[0].status.value == "FAILURE" and ticks[0].error is not None:
        message = (ticks[0].error.cause or ticks[0].error).message.strip()
        text = re.sub(r"^[\w.]+: ", "", message)
        yield problem(f"sensor {sensor}", text, "It fails the ticks of all pipelines.")


def _failed_runs(instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """The one check that Dagster alone can answer; the others are evaluated anew."""
    for results in newest_results(instance, pipelines, RUNS_SUCCEED).values():
        result = results.get(RUNS_SUCCEED)
        if result is not None and not result.passed:
            yield stated(result)


def _queue(instance: DagsterInstance) -> Iterator[Finding]:
    records = instance.get_run_records(RunsFilter(statuses=[DagsterRunStatus.QUEUED]), limit=1000)
    waits = [time.time() - record.create_timestamp.timestamp() for record in records]
    long = [wait for wait in waits if wait > LONG_QUEUED_SECONDS]
    if long:
        text = f"{len(long)} runs have waited in the queue for more than {LONG_QUEUED_SECONDS / 60:.0f} minutes."
        remedy = "See which runs hold the places (max_concurrent_runs, pools) in the UI, Runs; end those that hang."
        yield warning(DAGSTER, text, remedy)
    else:
        yield ok(DAGSTER, f"{len(records)} runs in the queue")
