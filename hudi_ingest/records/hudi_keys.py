"""Hudi's key of a row: its record key, as the simple and complex key generators derive it, and its table partition's path. Pure.

Paths are hive style unless told otherwise, with unsafe characters escaped: those of Hudi's `PartitionPathEncodeUtils`, which took
the set from Hive.
"""

from __future__ import annotations

import datetime
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


DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset(map(chr, [*range(0x20), 0x7F])) | frozenset("\"#%'*/:=?\\{[]^")
UNSAFE = "[" + "".join(f"\\x{ord(character):02x}" for character in sorted(_ESCAPED)) + "]"
"""A regular expression that matches the escaped characters."""

MAX_FOLDER_BYTES = 255
"""Maximum length of a folder's name on local file systems and HDFS."""

Value = str | int | bool | datetime.date | None


def escape(text: str) -> str:
    """Replace each unsafe character by `%XX`, so that one value is always one folder name."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)


def partition_path(
    columns: Sequence[str], values: Sequence[Value], hive_style: bool = True, escaped: bool = True
) -> str:
    """Return `a=1/b=x` for columns (a, b) and values (1, "x"), or `1/x` if not in hive style; "" if there are no columns.

    Null and "" share a folder. Raises ValueError for a text that cannot be a folder's name without its column's name
    before it, and for unsafe characters if they are not escaped.
    """
    folders = [_folder(value) for value in values]
    for name, value, folder in zip(columns, values, folders, strict=True):
        if not escaped and isinstance(value, str) and value and folder != value:
            raise ValueError(f"column {name}: {value!a} has signs that are no part of a folder's name in this table")
    if hive_style:
        return "/".join(f"{name}={folder}" for name, folder in zip(columns, folders, strict=True))
    for name, folder in zip(columns, folders, strict=True):
        # `.hoodie` holds Hudi's metadata, `..` is the folder above, and readers pass over what begins with . or _
        if folder[0] in "._" and folder != DEFAULT_PARTITION:
            raise ValueError(f"column {name}: a folder cannot be called {folder!a}; use hive style")
    return "/".join(folders)


def folder_bytes(column: str, value: Value, hive_style: bool = True) -> int:
    """Return the length of a value's folder name, in bytes of UTF-8."""
    name = f"{column}={_folder(value)}" if hive_style else _folder(value)
    return len(name.encode())


def _folder(value: Value) -> str:
    if value is None or value == "":
        return DEFAULT_PARTITION
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return escape(str(value))
