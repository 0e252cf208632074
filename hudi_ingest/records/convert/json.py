"""JSON records -> rows: a whole batch by `pyarrow.json` where that is proved right, record by record where it is not.

`json_exact` says what is accepted. The fast path accepts a subset of it, with equal values: whatever it doubts goes
to the exact path, so the outcome for a record depends on neither the path nor its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from hudi_ingest.records.convert import Decoded, Options, Rejected
from hudi_ingest.records.convert.json_exact import RecordReader, bytes_of
from hudi_ingest.records.convert.mismatch import Mismatch
from hudi_ingest.records.convert.options import refuse_options
from hudi_ingest.records.convert.values import decoded, require_values
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_MICROSECOND

PARSE_BYTES = 512 * 1024 * 1024
"""Values that are parsed as one block; its size is an int32 in pyarrow."""
PARSE_ROWS = 65_536
"""Records that are parsed as one block; older releases of pyarrow stop at 100,000."""
EXACT_ROWS = 256
"""A doubtful batch is cut down to pieces of this size before it is read record by record."""

_PIECES = 16
_SCAN_BYTES = 256 * 1024
_WHITESPACE = " \t\n\r"
_NEGATIVE_EXPONENT = re.compile(rb"(?:\.([0-9]+))?[eE]-([0-9]+)")
_MOST_DIGITS = 38
"""Of a decimal, before or behind the point."""

Finish = Callable[[pa.Array], pa.Array]
"""Parsed column -> column of the declared type. Raises _Doubt, or ArrowInvalid or ValueError when a value is wrong."""


class _Doubt(Exception):
    """The fast path cannot prove that its result is the exact one."""


def json_converter(schema: pa.Schema, options: Options) -> JsonConverter:
    """Raises ValueError when a type in the schema cannot be read from JSON, or there are options."""
    refuse_options("json", options)
    return JsonConverter(schema)


class JsonConverter:
    """Decodes JSON objects to rows of `schema`; fields that it does not declare are ignored.

    Raises ValueError at construction when a type in the schema cannot be read from JSON. Schemas with a map are read
    record by record, because pyarrow's parser has no maps.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._reader = RecordReader(schema)
        self._fast = None if any(_holds(field.type, pa.types.is_map) for field in schema) else _FastPath(schema)

    def __reduce__(self) -> tuple[type[JsonConverter], tuple[pa.Schema]]:
        return (JsonConverter, (self._schema,))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises TypeError or ValueError when it is not that; bad content never raises."""
        require_values(values)
        rejected: list[Rejected] = []
        batches = [batch for piece, start in _blocks(values) for batch in self._decode(piece, start, rejected)]
        if len(batches) == 1:
            rows = batches[0]
        elif batches:
            rows = pa.concat_batches(batches)
        else:
            rows = self._batch([])
        return decoded(rows, len(values), rejected)

    def _decode(self, values: pa.BinaryArray, start: int, rejected: list[Rejected]) -> Iterator[pa.RecordBatch]:
        """The rows of `values`, whose first is number `start` of the batch; adds what is rejected to `rejected`."""
        rows = self._fast.rows(values) if self._fast else None
        if rows is not None:
            yield rows
        elif self._fast is None or len(values) <= EXACT_ROWS:
            yield self._decode_exactly(values, start, rejected)
        else:
            # One bad record must not send thousands of good ones down the slow path.
            size = max(-(-len(values) // _PIECES), EXACT_ROWS // _PIECES)
            for offset in range(0, len(values), size):
                yield from self._decode(values.slice(offset, size), start + offset, rejected)

    def _decode_exactly(self, values: pa.BinaryArray, start: int, rejected: list[Rejected]) -> pa.RecordBatch:
        rows = []
        for index, record in enumerate(values.to_pylist(), start):
            try:
                rows.append(self._reader.read(record))
            except Mismatch as mismatch:
                rejected.append(mismatch.rejected(index))
        return self._batch(rows)

    def _batch(self, rows: list[dict[str, object]]) -> pa.RecordBatch:
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _FastPath:
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
        self._finish = [_finish_field(field) for field in schema]
        self._decimals = any(_holds(field.type, pa.types.is_decimal) for field in schema)

    def rows(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """One row per value, or None when in doubt. `values`: at least one, no nulls, within the block limits."""
        try:
            return self._rows(values)
        except (_Doubt, ValueError, pa.ArrowNotImplementedError, pa.ArrowCapacityError):
            return None  # ArrowInvalid is a ValueError

    def _rows(self, values: pa.BinaryArray) -> pa.RecordBatch:
        text = values.cast(pa.string())  # no copy: verifies that each value is UTF-8, and raises ArrowInvalid if not
        if not _framed(text) and not _framed(pc.ascii_trim(text, characters=_WHITESPACE)):
            raise _Doubt
        seams = pa.array([0, len(text)], pa.int32())
        block = pc.binary_join(pa.ListArray.from_arrays(seams, text), "\n")[0].as_buffer()
        if block.size > PARSE_BYTES + len(text) or _contains(block, b"\0") or (self._decimals and _holds_tiny(block)):
            raise _Doubt
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=self._parse_options,
        )
        if table.num_rows != len(text):
            raise _Doubt
        columns = [
            finish(column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks))
            for finish, column in zip(self._finish, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _blocks(values: pa.BinaryArray) -> Iterator[tuple[pa.BinaryArray, int]]:
    """Cuts a batch into blocks within PARSE_ROWS and, but for single values beyond it, PARSE_BYTES: (block, start)."""
    waiting = [(0, len(values))]
    while waiting:
        start, end = waiting.pop()
        piece = values.slice(start, end - start)
        if len(piece) > PARSE_ROWS or (len(piece) > 1 and pc.sum(pc.binary_length(piece)).as_py() > PARSE_BYTES):
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
        elif len(piece):
            yield piece, start


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
    found = _NEGATIVE_EXPONENT.finditer(memoryview(block))
    return any(len(each[1] or b"") + int(each[2]) > _MOST_DIGITS for each in found)


def _holds(type_: pa.DataType, kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type, or one inside it, is of the kind."""
    return kind(type_) or any(_holds(type_.field(i).type, kind) for i in range(type_.num_fields))


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


def _finish_field(field: pa.Field) -> Finish:
    finish = _finish_type(field.type)
    return finish if field.nullable else lambda parsed: finish(_without_nulls(parsed))


def _without_nulls(parsed: pa.Array) -> pa.Array:
    if parsed.null_count:
        raise _Doubt
    return parsed


def _finish_type(type_: pa.DataType) -> Finish:
    if pa.types.is_floating(type_):
        return _finite
    if pa.types.is_decimal(type_):
        return _within_precision
    if pa.types.is_timestamp(type_):
        return _timestamps
    if pa.types.is_date32(type_):
        return _dates
    if pa.types.is_binary(type_):
        return _binaries
    if pa.types.is_list(type_):
        return _finish_list(type_)
    if pa.types.is_struct(type_):
        return _finish_struct(type_)
    return lambda parsed: parsed


def _finite(parsed: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(parsed)).as_py() is False:
        raise _Doubt
    return parsed


def _within_precision(parsed: pa.Array) -> pa.Array:
    parsed.validate(full=True)  # 12345 fits decimal(5,2) by its digits and becomes 12345.00, which does not
    return parsed


def _timestamps(parsed: pa.Array) -> pa.Array:
    _refuse_outside(parsed.cast(pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return parsed


def _dates(parsed: pa.Array) -> pa.Array:
    dates = parsed.cast(pa.date32())
    _refuse_outside(dates.cast(pa.int32()), FIRST_DAY, None)  # four digits of year cannot pass 9999
    return dates


def _refuse_outside(numbers: pa.Array, lowest: int, highest: int | None) -> None:
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < lowest or (highest is not None and most > highest)):
        raise _Doubt


def _binaries(parsed: pa.Array) -> pa.Array:
    return pa.array([None if text is None else bytes_of(text) for text in parsed.to_pylist()], pa.binary())


def _finish_list(type_: pa.DataType) -> Finish:
    finish_item = _finish_field(type_.value_field)

    def finish(parsed: pa.Array) -> pa.Array:
        # Null lists hold no items, so a null among the items is one that the record gave.
        items = finish_item(parsed.values)
        return pa.Array.from_buffers(
            type_, len(parsed), parsed.buffers()[:2], parsed.null_count, parsed.offset, children=[items]
        )

    return finish


def _finish_struct(type_: pa.DataType) -> Finish:
    fields = [type_.field(i) for i in range(type_.num_fields)]
    members = [(i, _finish_type(field.type), field.nullable) for i, field in enumerate(fields)]

    def finish(parsed: pa.Array) -> pa.Array:
        children = []
        for i, finish_member, nullable in members:
            child = parsed.field(i)
            # A null struct has null members in Arrow; only where the struct is present a null was given.
            if (
                not nullable
                and child.null_count
                and (parsed.null_count == 0 or pc.any(pc.and_(pc.is_valid(parsed), pc.is_null(child))).as_py())
            ):
                raise _Doubt
            children.append(finish_member(child))
        return pa.Array.from_buffers(
            type_, len(parsed), parsed.buffers()[:1], parsed.null_count, parsed.offset, children=children
        )

    return finish
