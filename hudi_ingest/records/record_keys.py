"""Record keys as Hudi's simple and complex key generators derive them from a row's columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

KEY_TYPES = (pa.string(), pa.int32(), pa.int64())
"""Types whose values all Hudi writers format the same way."""
_NULL, _EMPTY = "__null__", "__empty__"


def record_keys(rows: pa.Table, columns: Sequence[str], names_single: bool = False) -> pa.Array | pa.ChunkedArray:
    """Return the value of a single column, or `a:1,b:x` for several; `names_single`: `a:1` for a single one, too. Undefined for
    rows without a key (see `keyless`)."""
    if len(columns) == 1 and not names_single:
        return rows[columns[0]].cast(pa.string())
    parts = []
    for name in columns:
        text = rows[name].cast(pa.string())
        text = pc.if_else(pc.equal(text, ""), _EMPTY, text)
        parts.append(pc.binary_join_element_wise(name, pc.fill_null(text, _NULL), ":"))
    return pc.binary_join_element_wise(*parts, ",")


def keyless(rows: pa.Table, columns: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """Return for each row whether all its key columns are null or empty: Hudi refuses such rows."""
    keyless_rows: pa.Array | pa.ChunkedArray = pa.repeat(True, rows.num_rows)
    for name in columns:
        text = rows[name].cast(pa.string())
        keyless_rows = pc.and_(keyless_rows, pc.fill_null(pc.equal(text, ""), True))
    return keyless_rows


def ambiguous(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, str, pa.ChunkedArray]]:
    """Yield texts that no value of a key of several columns may be or hold: the column, what it is, and for each row whether it
    has it. Other values would make the same record key: `a:1,b:x,b:y` is (1, "x,b:y") and ("1,b:x", y)."""
    if len(columns) == 1:
        return
    for name, following in zip(columns, [*columns[1:], None], strict=True):
        if pa.types.is_string(rows[name].type):
            yield name, f"{_EMPTY}, which Hudi writes for an empty text", pc.equal(rows[name], _EMPTY)
            if following is not None:
                separator = f",{following}:"
                found = f"a text with {separator}, which Hudi writes between the columns"
                yield name, found, pc.match_substring(rows[name], separator)


def is_ordering_type(kind: pa.DataType) -> bool:
    """Return whether columns of this type can say which change of a key is newer.

    A delete holds its ordering value in a log file, in a form that Hudi compares with the values of rows. An int there must
    not be 0, which means no value; a date is compared as another class, and fails; of a decimal there is room for 15 digits
    before and after the point. Floating-point numbers have no total order.
    """
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= 15 and kind.precision - kind.scale <= 15)
    return kind in (pa.int64(), pa.timestamp("us", tz="UTC"), pa.string())
