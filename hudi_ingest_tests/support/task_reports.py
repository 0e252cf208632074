"""What a write task's driver makes of its outcomes."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from hudi_ingest.transaction.write.outcomes import require_none
from hudi_ingest.transaction.write.task import TaskReport


def reports_of(outcomes: Iterable[pa.RecordBatch]) -> list[TaskReport]:
    """Raises the task's error if it has one."""
    rows = [row for batch in outcomes for row in batch.to_pylist()]
    require_none(row["error"] for row in rows if row["error"] is not None)
    return [TaskReport.from_json(row["report"]) for row in rows]
