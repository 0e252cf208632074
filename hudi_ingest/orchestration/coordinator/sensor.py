"""The coordinator: the sensor of a pipeline, or of all pipelines of a template, that turns a table's and the broker's offsets into the
next run."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone

from dagster import (
    DagsterInstance,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from hudi_ingest.exceptions import (
    IngestError,
    KafkaUnreachable,
    LedgerUnreachable,
    TableUnreachable,
    TransactionInFlight,
)
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.shared_clusters import answering_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.counters import TICK_FAILURES
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.coordinator.fleet import Fleet
from hudi_ingest.orchestration.coordinator.quiet_ticks import forget, next_tick, remember_busy, with_plan_time
from hudi_ingest.orchestration.coordinator.tick import Tick
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.jobs.run_config import BEGIN, require_startable
from hudi_ingest.orchestration.reports.tick_reports import report, report_repairs
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.transaction import TICK_SECONDS, rest_seconds, shared_tick_seconds
from hudi_ingest.transaction.plan.planning import Situation, observe
from hudi_ingest.transaction.timeline_repair import repair_timeline

_LOG = logging.getLogger(__name__)
_SHOWN_RANGES = 10
_PASSES = (KafkaUnreachable, LedgerUnreachable, TableUnreachable, TransactionInFlight)
"""Errors that may be gone by the next tick."""


def coordinator_sensor(pipelines: Sequence[Pipeline], sensors: int = 1) -> SensorDefinition:
    """Build the sensor that requests the runs of these pipelines' transactions: of one with a file of its own, or of all of a template.
    It starts no JVM, and each tick plans from the tables. `sensors`: how many the code location has."""
    first, fleet = pipelines[0], Fleet(pipelines, tick)
    wanted = min(pipeline.transaction.tick_seconds for pipeline in pipelines)
    rest = rest_seconds(min(pipeline.transaction.interval_seconds for pipeline in pipelines), sensors)
    interval = f"every {first.transaction.interval_seconds:g} s while records arrive."
    description = f"Begins a transaction of {first.name} {interval}"
    if first.template:
        description = (
            f"Begins the transactions of {counted(len(pipelines), 'pipeline')} of {first.template}, one of each {interval} Off, it "
            "stops all of them; `hudi-ingest pause` and `resume` switch one."
        )
    # A pipeline of a template that is not enabled may be resumed on its own.
    starts = first.enabled or bool(first.template)

    @sensor(
        name=first.coordinator,
        # Not `target`, which makes a job of all its assets, and each run takes its own out of that.
        asset_selection=[*map(table_key, pipelines)],
        tags={tags.TEMPLATE: first.template} if first.template else {tags.PIPELINE: first.name},
        minimum_interval_seconds=shared_tick_seconds(wanted, sensors),
        default_status=DefaultSensorStatus.RUNNING if starts else DefaultSensorStatus.STOPPED,
        description=description,
    )
    def coordinator(context: SensorEvaluationContext) -> list[RunRequest] | SkipReason:
        repository = context.repository_def

        def require_valid(pipeline: Pipeline, request: RunRequest) -> None:
            require_startable(request, pipeline, repository)

        evaluation = fleet.evaluate(kept_instance(context), datetime.now(timezone.utc), require_valid)
        if wanted < TICK_SECONDS:
            context.update_cursor(next_tick(pipelines, rest).cursor)
        if not evaluation.requests:
            return SkipReason(evaluation.text)
        for name, error in evaluation.errors.items():
            context.log.warning(f"{name}: {type(error).__name__}: {error}")
        for request in evaluation.requests:
            context.log.info(request_text(request))
            for tag in {tags.STOPPED, tags.RESET} & request.tags.keys():
                context.log.warning(f"{tag}: {request.tags[tag]}; see the log of the run's begin op for the reason")
        return [*evaluation.requests]

    return coordinator


def tick(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Look at one pipeline, and decide what to do at `now`: request one run, or say why none. Either way, first report the checks, the
    lag and the commits of others to Dagster. Raises OffsetsLost, TopicMissing and KafkaRefused."""
    busy = ""
    observed: Situation | IngestError
    forget(pipeline)
    with ExitStack() as resources:
        try:
            ledger = resources.enter_context(Ledger.open(Home.from_environment().ledger_url))
            with _failure_counted(pipeline, ledger):
                ledger.requests.note_tick(pipeline.name, now)
                changed_at = ledger.requests.note_settings(pipeline.name, fingerprint(pipeline), now)
                this = Tick(instance, ledger, PipelineTable(pipeline), now)
                # Whatever comes after reads the timeline.
                report_repairs(pipeline, instance, repair_timeline(this.table, ledger))
                # Must precede observe(): a run that ended between would let a plan begin at offsets that are already committed.
                busy = this.busy()
                cluster = resources.enter_context(answering_cluster(pipeline.source))
                observed = with_plan_time(pipeline, observe(pipeline, cluster, this.table))
        except IngestError as error:
            # Without its frames, which refer back to this error: a client that was refused would keep trying to log in until
            # the next garbage collection.
            observed = error.with_traceback(None)
        blind_since = _note_sight(pipeline, not isinstance(observed, IngestError), now)
        try:
            report(pipeline, instance, observed, now, busy, blind_since)
        except _PASSES as error:
            return SkipReason(busy or str(error))
        if busy:
            remember_busy(pipeline)
            return SkipReason(busy)
        if isinstance(observed, _PASSES):
            return SkipReason(str(observed))
        if isinstance(observed, IngestError):
            try:
                raise observed
            finally:
                del observed
        try:
            return this.next_run(observed, cluster, changed_at.timestamp() if changed_at else 0.0)
        except _PASSES as error:
            return SkipReason(str(error))


_blind: dict[str, tuple[Pipeline, float]] = {}
"""By pipeline, since when its broker, table or ledger could not be read, in seconds since 1970. The ledger may be among them."""


def _note_sight(pipeline: Pipeline, sees: bool, now: datetime) -> float | None:
    """Note whether a look at the pipeline succeeded; return since when none has, None if this one has."""
    if sees:
        _blind.pop(pipeline.name, None)
        return None
    known, since = _blind.get(pipeline.name, (None, 0.0))
    if known is not pipeline:
        since = now.timestamp()
        _blind[pipeline.name] = pipeline, since
    return since


def fingerprint(pipeline: Pipeline) -> str:
    """Return a hash of the pipeline's settings and declared columns, without secrets, which repr hides."""
    columns = str(pipeline.table_schema.columns) if pipeline.table.declares_schema else ""
    return hashlib.sha256(f"{pipeline!r}{columns}".encode()).hexdigest()[:16]


@contextmanager
def _failure_counted(pipeline: Pipeline, ledger: Ledger) -> Iterator[None]:
    """Count a tick that could not look. The error of the block is raised either way."""
    try:
        yield
    except IngestError as error:
        try:
            ledger.counters.add(pipeline.table.base_path, {f"{TICK_FAILURES}{type(error).__name__}": 1})
        except IngestError as uncounted:
            _LOG.warning("%s: the ledger could not count a failed tick: %s", pipeline.name, uncounted)
        raise


def request_text(request: RunRequest) -> str:
    """Say what the requested run will do, in one sentence."""
    (begin,) = (op["ops"][BEGIN]["config"] for op in request.run_config["ops"].values())
    ranges = [
        f"{slice_['topic']}:{slice_['partition']} [{slice_['start']},{slice_['end']})" for slice_ in begin["slices"]
    ]
    ranges = [text for text, slice_ in zip(ranges, begin["slices"], strict=True) if slice_["end"] > slice_["start"]]
    offsets = sum(slice_["end"] - slice_["start"] for slice_ in begin["slices"])
    return f"{begin['transaction_id']} will take {offsets:,} offsets: {listed(ranges, _SHOWN_RANGES) or 'none'}"
