"""Runs one transaction in this process, without an orchestrator; plugs the real broker, table and ledger into the protocol."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeVar

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import CommitOutcomeUnknown, IngestError, PlanOutdated, TransactionInFlight
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home, note_step
from hudi_ingest.hudi.files.new_files import written_so_far
from hudi_ingest.hudi.services.catalog_client import CatalogClient
from hudi_ingest.hudi.storage.storage import TableStorage, durability_of
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.engine import local_table_warning
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session, reported_tasks
from hudi_ingest.transaction.catalog_sync import CatalogSync
from hudi_ingest.transaction.columns.schema_change import resolve_and_note
from hudi_ingest.transaction.dead_letters.copies import LetterCopies
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.iceberg_sync import IcebergSync
from hudi_ingest.transaction.plan.arithmetic import left_out_text
from hudi_ingest.transaction.plan.planning import confirmed_marks, losses_now, plan_now
from hudi_ingest.transaction.ports import CatalogSyncer, listener_of
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest.transaction.timeline_repair import repair_timeline
from hudi_ingest.transaction.write.job import write_slices, writing_group

_logger = logging.getLogger(__name__)
_COMMIT_TRIES = 3
_ASK_AGAIN_SECONDS = 1.0
_OWN_ID = re.compile(r"(plan|transaction) \S+ (is no longer current|cannot begin)")
"""Each try plans a transaction with a new id, which is not worth a new report."""
T = TypeVar("T")


def protocol_for(pipeline: Pipeline, ledger: Ledger, spark: SparkSession, home: Home) -> TransactionProtocol:
    """The transaction protocol with its real ports: Hudi's client and Spark in `spark`, the broker, the ledger."""
    table = PipelineTable(pipeline)
    _warn_of_local_table(pipeline.table.base_path, spark.sparkContext.master)
    return TransactionProtocol(
        pipeline=pipeline,
        resolve_schema=partial(resolve_and_note, pipeline, ledger, table.timeline),
        table=table,
        epoch=TableEpoch(table.storage),
        durability=durability_of(table.storage, pipeline.table.fsync),
        ledger=ledger,
        instants=HudiWriter(spark, pipeline, table.timeline),
        write_files=partial(write_slices, spark, pipeline),
        groups=KafkaCluster(pipeline.source),
        find_losses=partial(losses_now, pipeline, table),
        confirm_marks=partial(confirmed_marks, pipeline.source),
        letters=DeadLetterLog(table.storage),
        copy_letters=LetterCopies(pipeline).catch_up,
        sync_catalog=catalog_syncer(pipeline, table.timeline, spark),
        note_step=partial(note_step, home),
        tell_lineage=listener_of(pipeline),
        publish_iceberg=IcebergSync(pipeline, table.timeline, home).if_due,
    )


def catalog_syncer(pipeline: Pipeline, timeline: Timeline, spark: SparkSession) -> CatalogSyncer:
    """Return the function to call with a table's commits, newest first, after each of them."""
    if pipeline.catalog is None:
        return lambda commits: None
    return CatalogSync(pipeline, timeline, CatalogClient(spark, pipeline)).if_due


@cache
def _warn_of_local_table(base_path: str, master: str) -> None:
    """Once a process for each table."""
    warning = local_table_warning(base_path, master)
    if warning is not None:
        _logger.warning("%s", warning)


def run_transaction(
    pipeline: Pipeline,
    *,
    home: Home | None = None,
    plan: TransactionPlan | None = None,
    report: Callable[[str], None] = _logger.info,
    owner: Owner | None = None,
    run_is_finished: Callable[[str], bool | None] = lambda run_id: None,
) -> CommitReceipt:
    """Run one transaction of the pipeline in this process, and return the receipt of its commit.

    Attaches to a running engine, else starts Spark in this process.

    `pipeline`: what to read and where to write. `home`: where the ledger and the engine are found, by default as the environment says. `plan`: which offsets to ingest, by default
    those that wait, up to the limits in the pipeline's `transaction`. `report`: called with one line for each phase. `owner`: by whose
    death others know that the transaction is over, by default this process. `run_is_finished`: whether the Dagster run with an id has
    ended, None if unknown; needed only where runs of Dagster work on the same table.

    Raises NothingToDo when no records are waiting, TransactionInFlight when another transaction of the table is open, and otherwise
    any error of `hudi_ingest.exceptions`. The table is then unchanged, except after CommitOutcomeUnknown: the next transaction finds
    out whether there was a commit.

        receipt = run_transaction(load_pipeline(Path("pipelines/orders.yaml")), report=print)
        receipt.instant, receipt.rows, receipt.seconds["total"]
    """
    home = home or Home.from_environment()
    with Ledger.open(home.ledger_url) as ledger:
        # Else no plan could be made.
        for text in repair_timeline(PipelineTable(pipeline), ledger):
            report(text)
    plan = plan or plan_now(pipeline)
    report(
        f"{plan.transaction_id}: {counted(plan.count, 'offset')} of {counted(len(plan.slices), 'partition')}; connecting to Spark"
    )
    if plan.take_over is not None:
        report(f"{plan.transaction_id}: {plan.take_over}")
    for title, text in left_out_text(plan.pipeline, plan.stopped, plan.resets, plan.leaderless).items():
        _logger.warning("%s: %s:\n%s", plan.transaction_id, title, text)
    spark = current_session(home, report=report)
    with Ledger.open(home.ledger_url) as ledger:
        protocol = protocol_for(pipeline, ledger, spark, home)
        transaction = protocol.begin(plan, owner or Owner.this_process(), run_is_finished)
        for line in (*transaction.plan.schema_changes, *transaction.schema.warnings):
            report(f"{plan.transaction_id}: {line}")
        report(f"{plan.transaction_id}: instant {transaction.instant} is open; reading and writing")
        try:
            busy = transaction.plan.busy
            group = writing_group(transaction, busy) if busy else ""
            started = time.monotonic()
            more = partial(_written_so_far, protocol.table.storage, transaction.instant, started)
            with reported_tasks(spark, group, f"{plan.transaction_id}: writing", "tasks", report, more=more):
                reports = protocol.write(transaction, busy)
            rows = sum(slice_report.rows for slice_report in reports)
            what = counted(rows, "change" if pipeline.table.is_keyed else "row")
            rate = f"{rows / max(time.monotonic() - started, 0.001):,.0f} a second"
            report(f"{plan.transaction_id}: {what} written, {rate}; committing")
            return _commit(protocol, transaction, reports, report)
        except CommitOutcomeUnknown:
            raise
        except BaseException as error:
            # Whatever the error, Ctrl-C included, the transaction must not stay open.
            protocol.abort(transaction, f"{type(error).__name__}: {error}")
            raise


def _written_so_far(storage: TableStorage, instant: str, started: float) -> str:
    """Say how much the transaction has written. An object store has a file only once it is whole, and each look costs a request, so there
    the tasks must do. Raises OSError."""
    size = written_so_far(storage, instant) if storage.is_local else 0
    rate = size / 1_000_000 / max(time.monotonic() - started, 0.001)
    return f", {size / 1_000_000:,.1f} MB written, {rate:,.1f} MB a second" if size else ""


def when_table_is_free(
    run: Callable[[], T],
    patience_seconds: float,
    report: Callable[[str], None],
    passing: tuple[type[IngestError], ...] = (TransactionInFlight, PlanOutdated),
) -> T:
    """Call `run` until no other transaction is in its way, and return its result; `passing` errors are retried. A `run` that
    plans again each time may also be retried when its plan is outdated.

    Raises a passing error that persists beyond `patience_seconds`, and whatever else `run` raises.
    """
    until = time.monotonic() + patience_seconds
    reported = ""
    while True:
        try:
            return run()
        except passing as error:
            if time.monotonic() > until:
                raise
            reason = _OWN_ID.sub("", str(error))
            if reason != reported:
                reported = reason
                report(f"waiting for the table: {error}")
            time.sleep(_ASK_AGAIN_SECONDS)


def _commit(
    protocol: TransactionProtocol,
    transaction: OpenTransaction,
    reports: Sequence[SliceReport],
    report: Callable[[str], None],
) -> CommitReceipt:
    for _ in range(_COMMIT_TRIES - 1):
        try:
            return protocol.commit(transaction, reports)
        except CommitOutcomeUnknown as error:
            report(f"retrying the commit: {error}")
    return protocol.commit(transaction, reports)
