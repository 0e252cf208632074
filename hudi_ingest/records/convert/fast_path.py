"""A batch by a fast path where it proves its rows, and by an exact one where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert import Decoded, Rejected
from hudi_ingest.records.convert.values import Indexes, decoded, regrouped

EXACT_ROWS = 256
"""A doubtful batch is cut down to pieces of this size before it is read record by record."""

_PIECES = 16

Proved = tuple[pa.RecordBatch, npt.NDArray[np.bool_]]
"""Rows, and which values of the piece they are; the other values are for the exact path."""
Fast = Callable[[pa.BinaryArray], Proved | None]
"""None when a piece as a whole is in doubt."""
Exact = Callable[[pa.BinaryArray], tuple[pa.RecordBatch, list[Rejected]]]
"""Rows of the good values in their order, and the others by their places in the piece."""


def decode_in_pieces(schema: pa.Schema, values: pa.BinaryArray, fast: Fast, exact: Exact) -> Decoded:
    """`values`: binary, no nulls. What becomes of a value must be the same on both paths, and in every piece."""
    return regrouped(schema, len(values), [*_groups(values, 0, fast, exact)], ())


def decode_exactly(values: pa.BinaryArray, exact: Exact) -> Decoded:
    rows, rejected = exact(values)
    return decoded(rows, len(values), rejected)


def _groups(values: pa.BinaryArray, start: int, fast: Fast, exact: Exact) -> Iterator[tuple[Indexes, Decoded]]:
    """What became of `values`, whose first is number `start` of the batch."""
    places = np.arange(start, start + len(values))
    found = fast(values) if len(values) else None
    if found is not None:
        rows, proved = found
        yield places[proved], Decoded(rows, None, ())
        if not proved.all():
            yield places[~proved], decode_exactly(values.filter(pa.array(~proved)), exact)
    elif len(values) <= EXACT_ROWS:
        yield places, decode_exactly(values, exact)
    else:
        # One bad record must not send thousands of good ones down the slow path.
        size = max(-(-len(values) // _PIECES), EXACT_ROWS // _PIECES)
        for offset in range(0, len(values), size):
            yield from _groups(values.slice(offset, size), start + offset, fast, exact)
