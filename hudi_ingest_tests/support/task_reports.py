"""Write tasks without Spark: their work, and what the driver makes of its outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from hudi_ingest.transaction.dead_letters.letter_file import by_source
from hudi_ingest.transaction.write.task import TaskReport, WriteTask, outcomes, require_none


def written(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[TaskReport | bytes]:
    """The outcomes of the task for these records, which have the columns topic and partition as well."""
    return outcomes(task, by_source(batches))


def reports_of(outcomes: Iterable[TaskReport | bytes]) -> list[TaskReport]:
    """Raises the task's error if it has one."""
    found = list(outcomes)
    require_none(outcome for outcome in found if isinstance(outcome, bytes))
    return [outcome for outcome in found if not isinstance(outcome, bytes)]
