"""A block of JSON records by `pyarrow.json`, where its result is proved to be that of the exact path."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from hudi_ingest.records.convert.fast_path import Doubt, Limits, Proved
from hudi_ingest.records.convert.proved_columns import (
    Finish,
    binary_of,
    dates_of,
    finite,
    known_timestamps,
    list_column,
    of_field,
    struct_column,
    struct_member,
    within_precision,
)

LIMITS = Limits(rows=65_536, bytes=512 * 1024 * 1024)
"""Of one block: its size is an int32 in pyarrow, and older releases stop at 100,000 records."""

_SCAN_BYTES = 256 * 1024
_WHITESPACE = " \t\n\r"
_NEGATIVE_EXPONENT = re.compile(rb"(?:\.([0-9]+))?[eE]-([0-9]+)")
_MOST_DIGITS = 38
"""Of a decimal, before or behind the point."""


class FastPath:
    """A block of records by one `pyarrow.json` parse.

    Why an accepted block is one row per record, each row being its record's. The parser reads a stream of JSON values,
    whatever lines they stand on. Records are joined by newlines, each begins with `{` and ends with `}` but for white
    space, and there is no NUL, at which some releases of the parser stop without an error. If all of that parses:

    - At a seam the text reads `}`, newline, `{`. No seam is inside a string: JSON forbids raw newlines there. Outside
      strings, an object following a `}` without a comma is legal only between top-level values. So every seam lies
      between top-level values, and each record holds one or more of them, wholly.
    - Each top-level value gives one row (objects and, wrongly, null) or an error. So each record gives at least one
      row, and when there are as many rows as records, each gives exactly one: that of the object it begins with.

    That the first value is an object also keeps the process alive: pyarrow crashes on a block that begins with null.

    Why a row's values are the exact path's: UTF-8 is verified before, escapes are verified by the parser, and each
    type's `Finish` checks what the parser lets pass (non-finite floats, decimals beyond the precision, years beyond
    what Python has, nulls where none may be).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parse_options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([_parsed_field(field) for field in schema]), unexpected_field_behavior="ignore"
        )
        self._finish = [of_field(field, _finish_type(field.type)) for field in schema]
        self._decimals = any(holds(field.type, pa.types.is_decimal) for field in schema)

    def read(self, values: pa.BinaryArray) -> Proved:
        """One row per value. `values`: at least one, no nulls, within LIMITS. Raises as `fast_path.Fast` does."""
        text = values.cast(pa.string())  # no copy: verifies that each value is UTF-8, and raises ArrowInvalid if not
        if not _framed(text) and not _framed(pc.ascii_trim(text, characters=_WHITESPACE)):
            raise Doubt("a record that is not framed by braces")
        seams = pa.array([0, len(text)], pa.int32())
        block = pc.binary_join(pa.ListArray.from_arrays(seams, text), "\n")[0].as_buffer()
        if block.size > LIMITS.bytes + len(text) or _contains(block, b"\0") or (self._decimals and _holds_tiny(block)):
            raise Doubt("a block that the parser may misread")
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=self._parse_options,
        )
        if table.num_rows != len(text):
            raise Doubt("not one row per record")
        columns = [
            finish(column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks))
            for finish, column in zip(self._finish, table.columns, strict=True)
        ]
        return Proved(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def _framed(text: pa.StringArray) -> bool:
    return bool(pc.all(pc.starts_with(text, "{")).as_py() and pc.all(pc.ends_with(text, "}")).as_py())


def _contains(block: pa.Buffer, *texts: bytes) -> bool:
    """Whether one of the texts is in the block."""
    # Piecewise: `bytes` finds a text ten times faster than Arrow does, and pieces stay in the processor's cache. They overlap,
    # so that no text is cut.
    view, overlap = memoryview(block), max(map(len, texts)) - 1
    for at in range(0, len(view), _SCAN_BYTES):
        piece = view[at : at + _SCAN_BYTES + overlap].tobytes()
        if any(text in piece for text in texts):
            return True
    return False


def _holds_tiny(block: pa.Buffer) -> bool:
    """Whether there may be a number with a digit behind the last one that decimals have: the parser reads some of them as 0."""
    # Nearly always neither is there, and both are found ten times faster than the pattern.
    if not _contains(block, b"e-", b"E-"):
        return False
    exponents = _NEGATIVE_EXPONENT.finditer(memoryview(block))
    return any(len(match[1] or b"") + int(match[2]) > _MOST_DIGITS for match in exponents)


def holds(type_: pa.DataType, kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type, or one inside it, is of the kind."""
    return kind(type_) or any(holds(type_.field(i).type, kind) for i in range(type_.num_fields))


def _parsed_field(field: pa.Field) -> pa.Field:
    # Nullable throughout: of a null struct the parser would say that its required fields are missing.
    return pa.field(field.name, _parsed_type(field.type), nullable=True)


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """The type that the parser is asked for: it cannot read dates and takes binary to be plain text."""
    if pa.types.is_date32(type_) or pa.types.is_binary(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([_parsed_field(type_.field(i)) for i in range(type_.num_fields)])
    if pa.types.is_list(type_):
        return pa.list_(_parsed_field(type_.value_field))
    return type_


def _finish_type(type_: pa.DataType) -> Finish:
    if pa.types.is_floating(type_):
        return finite
    if pa.types.is_decimal(type_):
        return within_precision
    if pa.types.is_timestamp(type_):
        return known_timestamps
    if pa.types.is_date32(type_):
        return dates_of
    if pa.types.is_binary(type_):
        return binary_of
    if pa.types.is_list(type_):
        return list_column(type_, of_field(type_.value_field, _finish_type(type_.value_type)))
    if pa.types.is_struct(type_):
        members = [struct_member(i, field.nullable, _finish_type(field.type)) for i, field in enumerate(type_)]
        return struct_column([*type_], members)
    return lambda parsed: parsed
