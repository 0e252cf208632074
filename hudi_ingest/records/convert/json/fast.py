"""JSON records to columns by `json_kernel`, which proves each record by itself or leaves it to the exact path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert.fast_path import Proved
from hudi_ingest.records.convert.json.kernel.columns import Columns, Tables
from hudi_ingest.records.convert.json.kernel.nodes import MARGIN, has_escaped_name, nodes_of

FEW_BYTES = 256 * 1024
"""The first records of a process that are read exactly: that takes 20 ms, and loading the kernel half a second."""

_KERNEL = "hudi_ingest.records.convert.json.kernel.records"
_PROBED = 64
"""Records from which the room for the others is estimated."""


def can_read(schema: pa.Schema) -> bool:
    """Of a schema whose types `json_exact` can read."""
    return not has_escaped_name(nodes_of(schema))


class FastPath:
    """Records of one schema that `can_read` knows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables = Tables(schema)
        self._few = FEW_BYTES

    def is_worth_it(self, values: pa.BinaryArray) -> bool:
        """Whether the kernel is loaded, or there are enough records to load it for them."""
        if _KERNEL in sys.modules:
            return True
        self._few -= values.nbytes
        return self._few < 0

    def read(self, values: pa.BinaryArray) -> Proved:
        """Rows of the values that are proved. `values`: at least one, no nulls."""
        from hudi_ingest.records.convert.json.kernel.records import read_records

        starts = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
        text_bytes = int(starts[-1] - starts[0])
        probed = min(_PROBED, len(values))
        columns = Columns(self._tables, len(values), int(starts[probed] - starts[0]), text_bytes)
        doubtful = np.zeros(len(values), np.bool_)
        for portion in _portions(values, starts):
            first = portion.first
            while True:
                first = read_records(
                    *columns.addresses,
                    portion.data_address,
                    starts.ctypes.data,
                    doubtful.ctypes.data,
                    first,
                    portion.last,
                )
                if first == portion.last:
                    break
                columns.enlarge(first, int(starts[first + 1] - starts[first]))
            if first == probed < len(values):
                columns.foresee(probed, 2 * text_bytes // len(values))
        rows = columns.batch(self._schema)
        if all(column.null_count for column in rows.columns):
            # A row of nulls may be all that is left of an envelope, which the exact path refuses.
            empty = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in rows.columns])
            doubtful[np.flatnonzero(~doubtful)[empty]] = True
            rows = rows.filter(pa.array(~empty))
        return Proved(rows, ~doubtful if doubtful.any() else None)


@dataclass(frozen=True)
class _Portion:
    """Records `first` to `last` of a batch, whose offsets count from the data's address."""

    first: int
    last: int
    data_address: int
    data: object
    """Keeps what is at the address."""


def _portions(values: pa.BinaryArray, starts: npt.NDArray[np.int32]) -> Iterator[_Portion]:
    """The first ones, the others, and those at the end of the buffer in a copy, behind which the kernel may read."""
    data = values.buffers()[2]
    size = data.size if data is not None else 0
    safe = int(np.searchsorted(starts[1:], size - MARGIN, side="right"))
    probed = min(_PROBED, safe)
    if probed:
        yield _Portion(0, probed, data.address, data)
    if probed < safe:
        yield _Portion(probed, safe, data.address, data)
    if safe < len(values):
        begin, end = int(starts[safe]), int(starts[-1])
        copy = np.zeros(end - begin + MARGIN, np.uint8)
        if end > begin:
            copy[:-MARGIN] = np.frombuffer(data, np.uint8, end - begin, begin)
        yield _Portion(safe, len(values), copy.ctypes.data - begin, copy)
