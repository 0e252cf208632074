"""Which ranges each Spark task reads. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hudi_ingest.model.offsets import Slice

SMALLEST_TASK_ROWS = 100_000
SMALLEST_TASK_BYTES = 20_000_000
"""Fewer records and bytes are not worth a Spark task of their own."""
_SLICES_OF_A_TASK = 100
"""So many with hardly a record are worth a task: each has files of its own, with markers."""


def rows_per_task(rows_per_file: int, count: int, parallelism: int, record_bytes: int) -> int:
    """Roughly how many of a transaction's `count` records a Spark task gets: few enough to keep all cores busy, but enough
    for files of a reasonable size. `parallelism`: tasks that run at the same time; `record_bytes`: 0 when unknown.
    """
    return min(rows_per_file, max(1, _smallest_task(record_bytes), -(-count // parallelism)))


def rows_of_a_slice(record_bytes: int) -> int:
    """What a slice costs besides its records, in records."""
    return _smallest_task(record_bytes) // _SLICES_OF_A_TASK


def _smallest_task(record_bytes: int) -> int:
    return min(SMALLEST_TASK_ROWS, SMALLEST_TASK_BYTES // max(1, record_bytes))


def ranges_of_tasks(slices: Sequence[Slice], most_rows: int, slice_rows: int) -> tuple[tuple[Slice, ...], ...]:
    """The ranges of each task. A slice longer than `most_rows` is cut into ranges for tasks of their own; shorter ones share
    tasks. Each task writes its own files, so fewer tasks make larger files."""
    long = [(part,) for slice_ in slices if slice_.count > most_rows for part in _parts(slice_, most_rows)]
    return (*long, *_shared([slice_ for slice_ in slices if 0 < slice_.count <= most_rows], most_rows, slice_rows))


def _parts(slice_: Slice, most_rows: int) -> Iterable[Slice]:
    """Even parts. Their number is rounded to the nearest: a slice slightly too long for one task would make twice the files."""
    count = max(1, (2 * slice_.count + most_rows) // (2 * most_rows))
    bounds = [slice_.start + slice_.count * part // count for part in range(count + 1)]
    return (Slice(slice_.topic, slice_.partition, start, end) for start, end in pairwise(bounds))


def _shared(slices: Sequence[Slice], most_rows: int, slice_rows: int) -> list[tuple[Slice, ...]]:
    """As few tasks as can have `most_rows` each, filled evenly: the longest slice first, to the task with the least. A slice
    counts for its own cost, too."""
    total = sum(slice_.count + slice_rows for slice_ in slices)
    count = min(len(slices), -(-total // (most_rows + slice_rows)))
    tasks: list[list[Slice]] = [[] for _ in range(count)]
    rows_of_tasks = [(0, task) for task in range(count)]
    for slice_ in sorted(slices, key=lambda slice_: (-slice_.count, slice_)):
        rows, task = heapq.heappop(rows_of_tasks)
        tasks[task].append(slice_)
        heapq.heappush(rows_of_tasks, (rows + slice_.count + slice_rows, task))
    return [tuple(sorted(ranges)) for ranges in tasks]
