"""JSON as Kafka Connect's converter writes it: `{"schema": …, "payload": …}`, or the payload alone.

All records of a table have the same schema text until its columns change, so records are grouped by that text, and each group's
payloads are read as plain JSON of what the schema says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.connect.values import decoded_rows, reading_of, wire_schema
from hudi_ingest.records.convert.converter import Decoded, Rejected, shortened
from hudi_ingest.records.convert.json.converter import JsonConverter, as_records, field_names
from hudi_ingest.records.convert.values import (
    Indexes,
    Refusal,
    RequiredFields,
    after_refusal,
    regrouped,
    require_values,
    value_bytes,
    without_faults,
)
from hudi_ingest.records.schema.columns import TIMESTAMP
from hudi_ingest.records.schema.connect import parse_connect_schema
from hudi_ingest.records.schema.wire_type import DECIMAL, UNKNOWN, WireType

_FRAME = b'{"schema":'
_PAYLOAD = b',"payload":'
_LOOKS_FRAMED = r'^[ \t\r\n]*\{[ \t\r\n]*"(?:schema|payload)"[ \t\r\n]*:'
_FIRST_LETTERS = np.frombuffer(b"sp\\", np.uint8)
_MOST_TEXTS = 16
"""Schema texts of a batch that are looked for by whole columns; records with others are read one by one."""
_MOST_READERS = 1000
_KEPT = "surrogateescape"
"""Bytes that are no UTF-8 are kept: whoever reads that part of a record says what is wrong."""
_SPACE = re.compile(r"[ \t\r\n]*")
_SCAN = json.JSONDecoder()
_FLOAT_TEXTS = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
"""Connect's converter puts quotes around what is no number in JSON."""
_NUMBER_IN_TIME = (
    ", because a number without Connect's schema has no unit: declare the column as long and use the transform `timestamp`, or "
    "let the producer send schemas"
)
_BASE64_IN_DECIMAL = (
    ", because base64 without Connect's schema does not say its scale: let the producer send schemas, or with Debezium set "
    "decimal.handling.mode to string"
)


class ConnectJsonConverter:
    """Decodes payloads to rows of `schema`. `framed`: whether a record without `schema` and `payload` is bad. `required`: a
    record whose schema lacks one of these fields is bad, unless it deletes a row. `guard`: is called with each schema that has them,
    and says why its records are bad, like `required`, or raises ValueError, or an IngestError.

    Raises ValueError at construction when a type in the schema cannot be read from JSON.
    """

    def __init__(
        self,
        schema: pa.Schema,
        framed: bool,
        required: RequiredFields | None = None,
        guard: Callable[[WireType], Refusal | None] | None = None,
    ) -> None:
        self._schema = schema
        self._framed = framed
        self._required = required
        self._guard = guard
        self._readers: dict[bytes, PayloadReader | Rejected] = {}
        """Readers by schema text, or why there is none. The meaning of a text never changes."""
        self._without_schema = PayloadReader(schema, None)

    def __reduce__(self) -> tuple[type[ConnectJsonConverter], tuple[object, ...]]:
        return (ConnectJsonConverter, (self._schema, self._framed, self._required, self._guard))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises TypeError or ValueError when it is not that, and IngestErrors of the guard; bad content
        never raises."""
        require_values(values)
        groups: list[tuple[Indexes, Decoded]] = []
        rejected: list[Rejected] = []
        for payloads in payloads_of(values):
            if payloads.schema is None and self._framed:
                rejected += [_unframed(index, values[index].as_py()) for index in payloads.places.tolist()]
                continue
            reader = self._without_schema if payloads.schema is None else self._reader(payloads.schema)
            if isinstance(reader, Rejected):
                rejected += [replace(reader, index=index) for index in payloads.places.tolist()]
                continue
            read = reader.decode(payloads.values)
            if payloads.schema is None and self._required is not None and self._required.of_payloads:
                read = without_faults(
                    read, read.rows, len(payloads.values), _lacking(read, payloads.values, self._required)
                )
            groups.append((payloads.places, read))
        rejected.sort(key=lambda value: value.index)
        return regrouped(self._schema, len(values), groups, rejected)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return frozenset().union(*(field_names(payloads.values, within) for payloads in payloads_of(values)))

    def _reader(self, text: bytes) -> PayloadReader | Rejected:
        reader = self._readers.get(text)
        if reader is None:
            try:
                connect = parse_connect_schema(text)
                if connect is None:
                    reader = self._without_schema
                else:
                    refusal = self._required.refusal_of(connect.shape) if self._required is not None else None
                    if refusal is None and self._guard is not None:
                        refusal = self._guard(connect)
                    reader = PayloadReader(self._schema, connect, refusal)
            except ValueError as problem:
                reader = Rejected(
                    0, "schema", "a schema of Kafka Connect that fits the columns", shortened(str(problem))
                )
            if len(self._readers) < _MOST_READERS:
                self._readers[text] = reader
        return reader


class PayloadReader:
    """Reads payloads of one Connect schema, or of none. `refusal`: why those that write a row are bad."""

    def __init__(self, schema: pa.Schema, connect: WireType | None, refusal: Refusal | None = None) -> None:
        self._schema = schema
        self._refusal = refusal
        self._connect = connect
        first, second = _RowReader(schema, connect, plain=False), _RowReader(schema, connect, plain=True)
        self._readings = [first] if first.wire == second.wire else [first, second]

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        return after_refusal(self._read(payloads), self._refusal, len(payloads))

    def _read(self, payloads: pa.BinaryArray) -> Decoded:
        first = self._readings[0].decode(payloads)
        if not first.rejected:
            return first
        if len(self._readings) > 1:
            # Those whose decimals are numbers, or whose dates are text.
            first = self._with_second(first, payloads)
        return (
            first if self._connect is not None else replace(first, rejected=tuple(map(self._explained, first.rejected)))
        )

    def _explained(self, rejected: Rejected) -> Rejected:
        """Say of numbers whose meaning only a schema has why they are not read."""
        _, kind = self._place(rejected)
        if kind == TIMESTAMP and re.fullmatch(r"-?[0-9]+", rejected.found):
            return replace(rejected, expected=rejected.expected + _NUMBER_IN_TIME)
        if kind is not None and pa.types.is_decimal(kind) and rejected.found.startswith(('"', "an object")):
            return replace(rejected, expected=rejected.expected + _BASE64_IN_DECIMAL)
        return rejected

    def _with_second(self, first: Decoded, payloads: pa.BinaryArray) -> Decoded:
        places = np.array([rejected.index for rejected in first.rejected])
        second = self._readings[1].decode(payloads.take(pa.array(places)))
        kept = np.setdiff1d(np.arange(len(payloads)), places) if first.kept is not None else np.empty(0, np.int64)
        groups: list[tuple[Indexes, Decoded]] = [(kept, Decoded(first.rows, None, ()))]
        accepted = places if second.kept is None else places[second.kept.to_numpy(zero_copy_only=False)]
        groups.append((accepted, Decoded(second.rows, None, ())))
        faults = {rejected.index: rejected for rejected in first.rejected}
        again = [replace(rejected, index=int(places[rejected.index])) for rejected in second.rejected]
        remaining = [self._nearer(faults[fault.index], fault) for fault in again]
        return regrouped(first.rows.schema, len(payloads), groups, remaining)

    def _nearer(self, first: Rejected, second: Rejected) -> Rejected:
        """Which of the faults of two readings says what is wrong. A decimal that is written as the other reading has it is right."""
        if not self._is_decimal(first) or first.expected.startswith("a ") or not re.match(r"-?[0-9]", first.found):
            if self._is_decimal(second) and second.found.startswith('"'):
                return first
            return max(second, first, key=self._relevance)
        return second

    def _is_decimal(self, fault: Rejected) -> bool:
        """Whether the schema says that the field is a decimal, or has decimals as items."""
        connect = self._connect
        for name in _names(fault.field):
            while connect is not None and connect.items is not None:
                connect = connect.items
            connect = connect.members.get(name) if connect is not None else None
        while connect is not None and connect.items is not None:
            connect = connect.items
        return connect is not None and connect.meaning == DECIMAL

    def _relevance(self, fault: Rejected) -> tuple[tuple[int, ...], bool]:
        """Rank the fault among those of two readings: a field at which only one of them stops is right in the other, so the further one counts;
        at the same field, the one that knows the value as of its own kind, which `Reading.expected` tells."""
        return self._place(fault)[0], fault.expected.startswith("a ")

    def _place(self, rejected: Rejected) -> tuple[tuple[int, ...], pa.DataType | None]:
        """Where its field is among the columns and their members, and its type."""
        kind: pa.DataType | None = pa.struct(list(self._schema))
        place: tuple[int, ...] = ()
        for name in _names(rejected.field):
            index = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
            kind = kind.field(index).type if kind is not None and index >= 0 else None
            place += (index,)
        return place, kind


def _names(path: str) -> list[str]:
    """The names of the fields on the way to a field, without the places of items."""
    return re.sub(r"\[[^]]*\]", "", path).split(".")


class _RowReader:
    """Reads payloads of one Connect schema in one of the two ways of `reading_of`."""

    def __init__(self, schema: pa.Schema, connect: WireType | None, plain: bool) -> None:
        members = connect.members if connect is not None else {}
        if connect is not None and connect.kind != "struct" and len(schema) == 1:
            members = {schema.names[0]: connect}
        self._schema = schema
        self._readings = [reading_of(field.type, members.get(field.name), plain) for field in schema]
        self.wire = wire_schema(schema, self._readings)
        self._json = JsonConverter(self.wire, _FLOAT_TEXTS)

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        return decoded_rows(self._json, as_records(payloads, self._schema), self._schema, self._readings)


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads of records with the same schema text."""

    places: Indexes
    values: pa.BinaryArray
    schema: bytes | None
    """None if the records are not framed; then the values are the records."""


def payloads_of(values: pa.BinaryArray) -> Iterator[Payloads]:
    """Group a batch's records by their schema text."""
    framed = _framed(values)
    others = np.flatnonzero(~framed)
    if len(others):
        yield Payloads(others, values if len(others) == len(values) else values.take(pa.array(others)), None)
    remaining = np.flatnonzero(framed)
    one_by_one: list[int] = []
    for _ in range(_MOST_TEXTS):
        if not len(remaining):
            break
        part = values if len(remaining) == len(values) else values.take(pa.array(remaining))
        text = _leading_schema(part[0].as_py())
        if text is None:
            one_by_one.append(int(remaining[0]))
            remaining = remaining[1:]
            continue
        prefix = _FRAME + text + _PAYLOAD
        same = pc.and_(pc.starts_with(part, prefix), pc.ends_with(part, b"}")).to_numpy(zero_copy_only=False)
        chosen = part if same.all() else part.filter(pa.array(same))
        yield Payloads(remaining[same], _inside(chosen, len(prefix), 1), text)
        remaining = remaining[~same]
    yield from _one_by_one(values, sorted([*one_by_one, *remaining.tolist()]))


def _framed(values: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Which values begin with a schema or a payload."""
    data, starts = value_bytes(values)
    flags = np.ones(len(values), np.bool_)
    long = np.flatnonzero(np.diff(starts) > 2)
    # Most others show by their third byte that they do not, like {"before", and need no regular expression.
    flags[long] = ~((data[starts[long] + 1] == ord('"')) & ~np.isin(data[starts[long] + 2], _FIRST_LETTERS))
    doubtful = np.flatnonzero(flags)
    if len(doubtful):
        part = values if len(doubtful) == len(values) else values.take(pa.array(doubtful))
        flags[doubtful] = pc.match_substring_regex(part, _LOOKS_FRAMED).to_numpy(zero_copy_only=False)
    return flags


def _leading_schema(value: bytes) -> bytes | None:
    """The schema's text where Connect puts it; None when the record is written in another way."""
    if not value.startswith(_FRAME) or not value.endswith(b"}"):
        return None
    try:
        text = value.decode(errors=_KEPT)
        _, end = _SCAN.raw_decode(text, len(_FRAME))
    except (ValueError, RecursionError):
        return None
    schema = text[len(_FRAME) : end].encode(errors=_KEPT)
    return schema if value.startswith(_PAYLOAD, len(_FRAME) + len(schema)) else None


def _one_by_one(values: pa.BinaryArray, places: list[int]) -> Iterator[Payloads]:
    groups: dict[bytes | None, list[tuple[int, bytes]]] = {}
    for place in places:
        value = values[place].as_py()
        parts = _parts(value)
        schema, payload = (None, value) if parts is None else parts
        groups.setdefault(schema, []).append((place, payload))
    for schema, records in groups.items():
        indexes = np.array([place for place, _ in records])
        yield Payloads(indexes, pa.array([payload for _, payload in records], pa.binary()), schema)


def _parts(value: bytes) -> tuple[bytes, bytes] | None:
    """The texts of a record's schema and payload; None when it does not have both, or is no JSON object."""
    members = members_of(value)
    if members is None or not {"schema", "payload"} <= members.keys():
        return None
    return members["schema"], members["payload"]


def members_of(value: bytes) -> dict[str, bytes] | None:
    """The texts of an object's members by their names; None when it is no JSON object, or has a member twice."""
    members: dict[str, bytes] = {}
    try:
        text = value.decode(errors=_KEPT)
        at = _past_space(text, 0) + 1
        while text[at - 1 : at] in ("{", ","):
            name, at = _SCAN.raw_decode(text, _past_space(text, at))
            at = _past_space(text, at)
            if not isinstance(name, str) or text[at : at + 1] != ":" or name in members:
                return None
            start = _past_space(text, at + 1)
            _, at = _SCAN.raw_decode(text, start)
            members[name] = text[start:at].encode(errors=_KEPT)
            at = _past_space(text, at) + 1
    except (ValueError, RecursionError):
        return None
    return members if text[at - 1 :].strip(" \t\r\n") == "}" else None


def _past_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _inside(values: pa.BinaryArray, before: int, after: int) -> pa.BinaryArray:
    """The values without their first and last bytes, whose bytes are not copied until they are gathered."""
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    cuts = np.empty(3 * len(values) + 1, np.int32)
    cuts[0::3] = offsets
    cuts[1::3] = offsets[:-1] + before
    cuts[2::3] = offsets[1:] - after
    parts = pa.BinaryArray.from_buffers(pa.binary(), 3 * len(values), [None, pa.py_buffer(cuts), values.buffers()[2]])
    return parts.take(pa.array(3 * np.arange(len(values)) + 1))


def _lacking(read: Decoded, values: pa.BinaryArray, required: RequiredFields) -> dict[int, Rejected]:
    """The rows, by their places in `read`, whose records have no field for a column. A source loses a column for good, so only if the
    last row without a value has no field either are the others looked at."""
    rows = read.rows[required.within]
    faults: dict[int, Rejected] = {}
    known: dict[int, Rejected | None] = {}

    def fault_of(place: int) -> Rejected | None:
        if place not in known:
            record = values[place if read.kept is None else read.kept[place].as_py()].as_py()
            row = (members_of(record) or {}).get(required.within, b"")
            names = pa.struct([pa.field(name, UNKNOWN) for name in members_of(row) or ()])
            refusal = required.refusal_of(pa.struct([pa.field(required.within, names)]))
            known[place] = refusal.fault if refusal is not None else None
        return known[place]

    for index in range(rows.type.num_fields):
        nulls = pc.indices_nonzero(pc.and_(rows.is_valid(), pc.struct_field(rows, [index]).is_null()))
        if len(nulls) and fault_of(nulls[-1].as_py()) is not None:
            faults |= {place: fault for place in nulls.to_pylist() if (fault := fault_of(place)) is not None}
    return faults


def _unframed(index: int, value: bytes) -> Rejected:
    found = "an empty value" if not value else "something else"
    return Rejected(index, "", "an object with a schema and a payload, as Kafka Connect writes it", found)
