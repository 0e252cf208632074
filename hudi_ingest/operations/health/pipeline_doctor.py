"""Diagnoses of each pipeline for `hudi-ingest doctor`: its file, broker, registry, table, catalog, lock, checks, coordinator, open
transaction and requests."""

from __future__ import annotations

import math
import os  # files: rights of the table's folder
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path  # files: the table's folder

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, HOME_VARIABLE, Home, embedded_broker, missing_because
from hudi_ingest.home.liveness import first_listening
from hudi_ingest.hudi.timeline.pipeline_table import committed_state
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import RequestState
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.finding import Finding, State, examined, ok, problem, stated, warning
from hudi_ingest.model.storage_options import is_s3
from hudi_ingest.operations.health.doctor import existing_ledger
from hudi_ingest.operations.looks import Looks
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.validation import check_online
from hudi_ingest.pipeline.folder import BrokenFile
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.planning import Situation

_SHOWN = 10
"""Names of pipelines in one diagnosis."""
_LATE_TICKS = 6
"""A coordinator that is on has ticked within so many of its intervals, or stands still."""
_LEAST_LATE_SECONDS = 120.0
_REQUEST_DAYS = 1
"""How long a failed request is worth mentioning."""


def folder_diagnoses(home: Home, pipelines: Sequence[Pipeline], broken: Sequence[BrokenFile]) -> Iterator[Finding]:
    """Report the pipeline files that cannot be loaded, and how many can; pure."""
    down = missing_because(BOOTSTRAP_VARIABLE, {**os.environ, HOME_VARIABLE: str(home.root)})
    waiting = [file for file in broken if down and any(down in text for text in file.problems)]
    if waiting:
        names = listed([file.path.name for file in waiting], _SHOWN)
        yield warning("pipelines", f"Not loaded, because {down}: {names}.")
    for file in broken:
        if file in waiting:
            continue
        problems = "; ".join(" ".join(text.split()) for text in file.problems)
        remedy = f"Correct it; `hudi-ingest validate {file.path}` checks it."
        yield problem(f"file {file.path.name}", f"{file.path} is not loaded: {problems}", remedy)
    if pipelines or broken:
        yield ok("pipelines", f"{counted(len(pipelines), 'pipeline')} in {home.pipelines}")
    else:
        text = f"There is no pipeline file in {home.pipelines}."
        yield warning(
            "pipelines",
            text,
            "`hudi-ingest new TOPIC` writes one; or set HUDI_INGEST_PIPELINES to the folder that has them.",
        )


def pipelines_diagnoses(
    home: Home, pipelines: Sequence[Pipeline], report: Callable[[str], None], off: Container[str] = ()
) -> Iterator[Finding]:
    """Examine all pipelines, some at a time. `report` gets a line for each. `off`: names of those whose sensors are off, and do
    not tick."""
    clusters = sorted({pipeline.source.bootstrap_servers for pipeline in pipelines})
    asked = Looks[str]("examine").ask({servers: partial(_why_silent, servers) for servers in clusters}, math.inf)
    silent = {servers: why for servers in clusters if (why := asked[servers].result())}
    for servers, why in silent.items():
        yield _silent_cluster(home, servers, why, pipelines)
    numbers = count(1)

    def examine(pipeline: Pipeline) -> list[Finding]:
        found = _examine(home, pipeline, silent, off)
        report(f"{pipeline.name}: examined, {next(numbers)} of {len(pipelines)}")
        return found

    looks = Looks[list[Finding]]("examine").take(pipelines, examine, math.inf)
    for pipeline in pipelines:
        yield from looks[pipeline.name].result()


def _why_silent(servers: str) -> str:
    """Why no broker of the cluster accepts connections; "" if one does."""
    addresses = [address.strip() for address in servers.split(",")]
    with_ports = [address if address.rpartition(":")[2].isdecimal() else f"{address}:9092" for address in addresses]
    listening, refusals = first_listening(with_ports)
    return (
        "" if listening else "; ".join(f"{address}: {error.strerror or error}" for address, error in refusals.items())
    )


def _silent_cluster(home: Home, servers: str, why: str, pipelines: Sequence[Pipeline]) -> Finding:
    names = [pipeline.name for pipeline in pipelines if pipeline.source.bootstrap_servers == servers]
    text = f"No broker accepts connections ({why}). These pipelines cannot read: {listed(names, _SHOWN)}."
    start = (
        "`hudi-ingest up` starts it"
        if servers == embedded_broker(home)
        else "Start the broker, or correct source.bootstrap_servers"
    )
    remedy = f"{start}. Nothing is lost while the topics' retention is longer than that takes: the next tick goes on."
    return problem(f"kafka {servers}", text, remedy)


def _behind_silent_cluster(subject: str, pipeline: Pipeline) -> Iterator[Finding]:
    """Diagnose all that needs no broker."""
    yield warning(subject, f"No broker answers at {pipeline.source.bootstrap_servers}; see above.")
    timeline = Timeline.of(pipeline.table)
    try:
        committed_state(timeline, pipeline.checkpoint_key, pipeline.transaction_key)
    except IngestError as error:
        yield problem(subject, str(error))
    if pipeline.source.schema_registry is not None and pipeline.source.topics:
        proposed_schema(pipeline, timeline)


def _examine(home: Home, pipeline: Pipeline, silent: Container[str] = (), off: Container[str] = ()) -> list[Finding]:
    subject, now = f"pipeline {pipeline.name}", datetime.now(timezone.utc)
    examinations: tuple[Callable[[], Iterator[Finding]], ...] = (
        partial(_behind_silent_cluster, subject, pipeline)
        if pipeline.source.bootstrap_servers in silent
        else partial(_situation, subject, pipeline, now, pipeline.name in off),
        partial(_folder, subject, pipeline),
        partial(_lock, subject, pipeline),
        partial(_ledger, subject, pipeline, home, now, pipeline.name in off),
    )
    diagnoses = [diagnosis for examine in examinations for diagnosis in examined(subject, examine)]
    # A pipeline that is well is one line, whatever was examined.
    return [diagnosis for diagnosis in diagnoses if diagnosis.state is not State.OK] or diagnoses[:1]


def _situation(subject: str, pipeline: Pipeline, now: datetime, is_off: bool) -> Iterator[Finding]:
    refused = check_online(pipeline).problems
    yield from (problem(subject, text) for text in refused)
    if refused:
        # The rest would say the same again, after the same time-outs.
        return
    observation = replace(look_at(pipeline, at=now), paused=is_off)
    yield ok(subject, _state_text(observation.situation, now))
    findings = [*observation.findings_now, *observation.findings_on_commits]
    yield from (stated(finding) for finding in findings if not finding.passed)


def _state_text(situation: Situation, now: datetime) -> str:
    committed_at = situation.committed.last_committed_at
    waiting = counted(situation.lag.total, "record")
    if committed_at is None:
        return f"{waiting} waiting, nothing committed yet"
    return f"{waiting} waiting, last commit {(now - committed_at).total_seconds():,.0f} s ago"


def _folder(subject: str, pipeline: Pipeline) -> Iterator[Finding]:
    """Examine permissions; a table on S3 has none that could be checked without writing."""
    if is_s3(pipeline.table.base_path):
        return
    base_path = Path(pipeline.table.base_path)
    existing = next(path for path in (base_path, *base_path.parents) if path.exists())
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        text = f"User {os.geteuid()} may not read and write {existing}, where the table is."
        yield problem(subject, text, f"Change its owner or permissions: chown -R {os.geteuid()} {existing}")


def _lock(subject: str, pipeline: Pipeline) -> Iterator[Finding]:
    if pipeline.table.lock is None:
        return
    listening, refusals = first_listening(pipeline.table.lock.zookeeper.split(","))
    if listening is not None:
        return
    reasons = [f"{address}: {error}" for address, error in refusals.items()]
    text = f"No ZooKeeper server of table.lock answers ({'; '.join(reasons)}), and nothing is begun or published without the lock."
    yield problem(subject, text, "Start the ensemble, or correct table.lock.zookeeper.")


def _ledger(subject: str, pipeline: Pipeline, home: Home, now: datetime, is_off: bool) -> Iterator[Finding]:
    ledger = existing_ledger(home)
    if ledger is None:
        return
    row = ledger.transactions.open_in(pipeline.table.base_path)
    if row is not None and is_over(row, lambda run_id: None):
        text = f"Transaction {row.transaction_id} is open, but {row.owner} is gone or past its deadline."
        yield warning(subject, text, "The next begin rolls it back; nothing to do unless no run begins.")
    if not is_off:
        yield from tick_diagnoses(subject, pipeline, ledger.requests.ticked_at(pipeline.name), now)
    for request in ledger.requests.newest(pipeline.name):
        if request.state is RequestState.FAILED and now - request.filed_at < timedelta(days=_REQUEST_DAYS):
            text = f"{request.kind.value} {request.request_id} failed: {request.reason or 'no reason is known'}"
            yield warning(subject, text, "Put that right, and request it again.")


def tick_diagnoses(subject: str, pipeline: Pipeline, ticked_at: datetime | None, now: datetime) -> Iterator[Finding]:
    """Judge when the pipeline's coordinator last ticked; pure. A pipeline that is run by hand has no ticks."""
    sensor = pipeline.coordinator
    if ticked_at is None:
        if pipeline.enabled:
            text = f"The pipeline is enabled, but {sensor} has never ticked."
            yield problem(
                subject, text, "Start Dagster's daemon, with this ledger and the code location that has the pipeline."
            )
        return
    silent = (now - ticked_at).total_seconds()
    if silent > max(_LEAST_LATE_SECONDS, _LATE_TICKS * pipeline.transaction.tick_seconds):
        text = f"{sensor} last ticked {silent:,.0f} s ago, so no run is launched."
        remedy = f"See whether Dagster's daemon runs and what {sensor}'s ticks say."
        yield warning(subject, text, remedy)
