"""Gives up offsets that stopped partitions have lost, in one transaction that resumes at the broker's first offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hudi_ingest.home.folder import Home
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.pipeline.folder import find_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.run import run_transaction, when_table_is_free
from hudi_ingest.transaction.situation import plan_accepting


def accept_loss(
    pipeline: Pipeline,
    partitions: Sequence[TopicPartition],
    topics: Sequence[str],
    home: Home,
    report: Callable[[str], None],
) -> CommitReceipt:
    """Accept the losses of these stopped partitions and of all stopped partitions of these topics, now, in this process.

    Raises NothingToDo unless each of them is stopped, TransactionInFlight if the table was not free within the pipeline's timeout,
    and what `run_transaction` raises.
    """

    def accept() -> CommitReceipt:
        plan = plan_accepting(pipeline, partitions, topics)
        return run_transaction(pipeline, home=home, plan=plan, report=report)

    # Partitions that are not stopped have transactions of their own, which end soon.
    return when_table_is_free(accept, pipeline.transaction.timeout_seconds, report)


def accept_loss_of(
    home: Home, name: str, partitions: Sequence[TopicPartition], topics: Sequence[str]
) -> dict[str, Any]:
    """As `accept_loss`, for another process: takes the pipeline's name and returns the receipt's facts. Raises ConfigError, too."""
    return accept_loss(find_pipeline(home.pipelines, name), partitions, topics, home, lambda line: None).to_dict()
