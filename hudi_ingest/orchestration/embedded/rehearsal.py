"""A run that does nothing, in a temporary Dagster, for the process that runs are forked from.

Dagster and SQLAlchemy import modules and fill caches when they are first used. What the forking process has done once, no run repeats.
"""

import logging
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetsDefinition,
    Config,
    DagsterInstance,
    Definitions,
    DynamicOut,
    DynamicOutput,
    In,
    JobDefinition,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    TableColumn,
    define_asset_job,
    execute_job,
    graph,
    op,
    reconstructable,
)
from pydantic import Field

from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.sqlite_storage import close_connections
from hudi_ingest.orchestration.executor import EXECUTOR
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, LEDGER, LEDGER_ONLY, InstanceStorageIOManager
from hudi_ingest.orchestration.reports.materialization import metadata_table

_logger = logging.getLogger(__name__)
_INSTANCE = """
telemetry: {enabled: false}
storage: {custom: {module: hudi_ingest.orchestration.embedded.sqlite_storage, class: QuickSqliteStorage, config: {base_dir: %s}}}
compute_logs: {module: hudi_ingest.orchestration.embedded.step_logs, class: FileComputeLogManager, config: {base_dir: %s}}
"""
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_NAME = "rehearsal"


class BeginConfig(Config):
    """The config of a transaction's first op."""

    slices: list[str] = Field(default=[], description="Offset ranges")


@op(
    ins={"topic": In(Nothing)},
    out={"transaction": Out(dict, io_manager_key=IO_MANAGER), "slices": DynamicOut(list, io_manager_key=IO_MANAGER)},
    required_resource_keys={LEDGER},
)
def begin(context: OpExecutionContext, config: BeginConfig) -> Iterator[Any]:
    context.instance.add_run_tags(context.run_id, {"a": "b"})
    context.log.info("begun")
    yield Output({}, "transaction", metadata={"instant": "0"})
    yield DynamicOutput([0], output_name="slices", mapping_key="topic_0")


@op(required_resource_keys={LEDGER}, out=Out(list, io_manager_key=IO_MANAGER))
def write(transaction: dict[str, Any], slices: list[int]) -> Output[list[int]]:
    return Output(slices, metadata={"rows": 1, "slices": metadata_table([TableColumn("rows", "int")], [{"rows": 1}])})


@op(out=Out(Nothing))
def commit(context: OpExecutionContext, transaction: dict[str, Any], reports: list[list[int]]) -> Output[None]:
    # Dagster accepts these events here, although its annotation does not say so.
    context.log_event(AssetCheckEvaluation(AssetKey(_NAME), "works", True))  # type: ignore[arg-type]
    return Output(None, metadata={"rows": 1})


@graph
def rehearsal(topic: Any) -> Any:
    opened, slices = begin(topic)
    return commit(opened, slices.map(lambda group: write(opened, group)).collect())


def rehearsed_job() -> JobDefinition:
    """Build the job of a graph-backed asset, shaped like a transaction."""
    topics = {"topic": AssetKey(["topics", _NAME])}
    definitions = Definitions(
        assets=[
            AssetsDefinition.from_graph(
                rehearsal, keys_by_input_name=topics, keys_by_output_name={"result": AssetKey(_NAME)}
            )
        ],
        jobs=[define_asset_job(f"{_NAME}_job", [AssetKey(_NAME)], tags={tags.IN_PROCESS: "true"}, config=_QUIET)],
        resources={**LEDGER_ONLY, IO_MANAGER: InstanceStorageIOManager()},
        executor=EXECUTOR,
    )
    return definitions.resolve_job_def(f"{_NAME}_job")


def rehearse() -> None:
    """Run the job. Leaves no thread and no connection, so that the process can be forked. A failure is logged, not raised: runs are as
    right without a rehearsal, they only take longer to start."""
    try:
        _run_job()
    except Exception:
        _logger.warning("The rehearsal of a run failed, so each run takes longer to start.", exc_info=True)


def _run_job() -> None:
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-rehearsal-") as folder:
        Path(folder, "dagster.yaml").write_text(_INSTANCE % (folder, folder))
        try:
            with DagsterInstance.from_config(folder) as instance:
                execute_job(reconstructable(rehearsed_job), instance, raise_on_error=True)
        finally:
            close_connections()
        with Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
            _record_transaction(ledger)


def _record_transaction(ledger: Ledger) -> None:
    """Do what the ledger is asked for in a transaction of a template's pipeline."""
    source, table = TopicPartition(_NAME, 0), f"/{_NAME}"
    plan = IngestPlan(_NAME, f"{_NAME}-1", 1, (Slice(_NAME, 0, 0, 1),))
    transactions, now = ledger.transactions, datetime.now(timezone.utc)
    ledger.topics.of_template(_NAME)
    transactions.open_in(table)
    transactions.newest_commit(_NAME)
    transactions.find(plan.transaction_id)
    transactions.begin(plan, table=table, owner=Owner.this_process(), deadline=now)
    transactions.record_instant(plan.transaction_id, "1")
    ledger.attempts.counts(plan.transaction_id)
    report = SliceReport(plan.slices[0], ledger.attempts.start(plan.transaction_id, [source])[source], rows=1)
    ledger.attempts.finish(plan.transaction_id, [report])
    transactions.mark_committed(CommitReceipt(plan, "1", Checkpoint(1, plan.transaction_id, {source: 1}), (report,)))
    transactions.history(_NAME)
