"""Joins and cuts batches of records to a good size, for many small records and few large ones alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_BYTES = 8 * 1024 * 1024
BATCH_ROWS = 50_000
_BYTES = ("key", "value", "headers")


def bounded(
    batches: Iterator[pa.RecordBatch], most_bytes: int = BATCH_BYTES, most_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same records in the same order, in batches of about `most_bytes` of keys, values and headers and at most `most_rows`;
    a larger record gets a batch of its own."""
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        for piece in _pieces(batch, most_bytes):
            part_size = _size(piece)
            if pending and (size + part_size > most_bytes or rows + piece.num_rows > most_rows):
                yield _joined(pending)
                pending, size, rows = [], 0, 0
            pending.append(piece)
            size, rows = size + part_size, rows + piece.num_rows
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _size(batch: pa.RecordBatch) -> int:
    return sum(batch[name].nbytes for name in _BYTES if name in batch.schema.names)


def _pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    if _size(batch) <= most_bytes:
        yield batch
        return
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in _BYTES:
        if name in batch.schema.names:
            sizes += _header_lengths(batch[name]) if name == "headers" else _lengths(batch[name])
    start = piece_bytes = 0
    for row, size in enumerate(sizes.tolist()):
        if row > start and piece_bytes + size > most_bytes:
            yield batch.slice(start, row - start)
            start, piece_bytes = row, 0
        piece_bytes += size
    yield batch.slice(start)


def _lengths(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(pc.fill_null(pc.binary_length(values), 0), np.int64)


def _header_lengths(headers: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Per record."""
    names, values = (headers.values.field(number) for number in range(2))
    before = np.concatenate([[0], np.cumsum(_lengths(names) + _lengths(values))])
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = np.diff(before[headers.offsets.to_numpy()])
    return lengths
