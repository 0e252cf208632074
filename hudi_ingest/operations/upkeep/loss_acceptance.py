"""Gives up offsets that stopped partitions have lost, in one transaction that resumes at the broker's first offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from hudi_ingest.home.folder import Home
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import plan_accepting
from hudi_ingest.transaction.run import run_transaction, when_table_is_free

_logger = logging.getLogger(__name__)


def accept_loss(
    pipeline: Pipeline,
    home: Home,
    partitions: Sequence[TopicPartition],
    topics: Sequence[str],
    report: Callable[[str], None] = _logger.info,
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
