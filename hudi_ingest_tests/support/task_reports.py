"""Write tasks without Spark: their work, and what the driver makes of its outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from hudi_ingest.transaction.dead_letters.letter_file import by_source
from hudi_ingest.transaction.write.outcomes import require_none
from hudi_ingest.transaction.write.task import TaskReport, WriteTask, outcomes


def written(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The outcomes of the task for these records, which have the columns topic and partition as well."""
    return outcomes(task, by_source(batches))


def reports_of(outcomes: Iterable[pa.RecordBatch]) -> list[TaskReport]:
    """Raises the task's error if it has one."""
    rows = [row for batch in outcomes for row in batch.to_pylist()]
    require_none(row["error"] for row in rows if row["error"] is not None)
    return [TaskReport.from_json(row["report"]) for row in rows]
