"""The coordinator: one sensor per pipeline that turns the table's and the broker's offsets into the next run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.shared_clusters import answering_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.counters import TICK_FAILURES
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import sensor_name, table_key
from hudi_ingest.orchestration.coordinator.cursor import SensorCursor, fingerprint
from hudi_ingest.orchestration.coordinator.quiet_ticks import forget, remember_busy, still_quiet
from hudi_ingest.orchestration.coordinator.tick import Tick
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.jobs.run_config import BEGIN
from hudi_ingest.orchestration.reports.tick_reports import report, report_repairs
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation, observe
from hudi_ingest.transaction.timeline_repair import repair_timeline

_LOG = logging.getLogger(__name__)
_SHOWN_RANGES = 10
_PASSES = (KafkaUnreachable, LedgerUnreachable, TableUnreachable, TransactionInFlight)
"""Errors that may be gone by the next tick."""


def coordinator_sensor(pipeline: Pipeline) -> SensorDefinition:
    """Build the pipeline's sensor, which requests the runs of its transactions. It starts no JVM, and each tick plans from the table.
    The cursor only serves messages and backoff, and may be lost."""

    @sensor(
        name=sensor_name(pipeline.name),
        # Not `target`, which makes a job of all its assets, and each run takes its own out of that.
        asset_selection=[table_key(pipeline)],
        tags={tags.PIPELINE: pipeline.name},
        minimum_interval_seconds=pipeline.transaction.tick_seconds,
        default_status=DefaultSensorStatus.RUNNING if pipeline.enabled else DefaultSensorStatus.STOPPED,
        description=f"Begins a transaction of {pipeline.name} at most every {pipeline.transaction.interval_seconds:g} s.",
    )
    def coordinator(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        instance = kept_instance(context)
        quiet = still_quiet(pipeline, instance)
        if quiet is not None:
            return SkipReason(quiet)
        outcome = tick(
            pipeline,
            instance,
            datetime.now(timezone.utc),
            context.cursor or "",
            context.update_cursor,
        )
        if isinstance(outcome, RunRequest):
            context.log.info(request_text(outcome))
        for tag in (tags.STOPPED, tags.RESET):
            if isinstance(outcome, RunRequest) and tag in outcome.tags:
                context.log.warning(f"{tag}: {outcome.tags[tag]}; see the log of the run's begin op for the reason")
        return outcome

    return coordinator


def tick(
    pipeline: Pipeline,
    instance: DagsterInstance,
    now: datetime,
    cursor: str = "",
    remember: Callable[[str], None] = lambda cursor: None,
) -> RunRequest | SkipReason:
    """Decide what to do at `now`: request one run, or say why none. Either way, first report the checks, the lag and the commits of
    others to Dagster. Raises OffsetsLost, TopicMissing and KafkaRefused: the tick fails, loudly."""
    busy = ""
    observed: Situation | IngestError
    forget(pipeline)
    with ExitStack() as resources:
        try:
            ledger = resources.enter_context(Ledger.open(Home.from_environment().ledger_url))
            with _failure_counted(pipeline, ledger):
                ledger.requests.note_tick(pipeline.name, now)
                this = Tick(instance, ledger, PipelineTable(pipeline), now)
                # Whatever comes after reads the timeline.
                report_repairs(pipeline, instance, repair_timeline(this.table, ledger))
                # Must precede observe(): a run that ended between would let a plan begin at offsets that are already committed.
                busy = this.busy()
                cluster = resources.enter_context(answering_cluster(pipeline.source))
                observed = observe(pipeline, cluster, this.table)
        except IngestError as error:
            # Without its frames, which refer back to this error: a client that was refused would keep trying to log in until
            # the next garbage collection.
            observed = error.with_traceback(None)
        state = SensorCursor.read(cursor).after(fingerprint(pipeline), isinstance(observed, IngestError), now)
        remember(state.to_text())
        try:
            report(pipeline, instance, observed, now, busy, state.blind_since)
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
            return this.next_run(observed, cluster, state.changed_at)
        except _PASSES as error:
            return SkipReason(str(error))


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
