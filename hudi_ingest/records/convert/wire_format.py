"""How records name their schemas in a registry, split for whole batches in Arrow and numpy.

The framing that Confluent's serializers put before a payload (docs.confluent.io, "Wire format" of Schema Registry's
serializers): one byte 0, the schema id as four bytes big-endian, then the payload. A Protobuf payload is preceded by message
indexes, which select the message type within the schema: their count, then each of them, all zigzag varints; a single byte 0 is
short for the list [0].

`header_schema_id_serializer` writes the schema into the record's headers instead. The header `__value_schema_id` or
`__key_schema_id` holds a byte 1 and the 16 bytes of the schema's GUID, or a byte 0 and the 4 bytes of its id; then, for Protobuf,
the message indexes. `with_schema_ids` puts before the payload what the other serializers write there, so that the same
converters read it; a GUID gets a number that no registry uses for an id.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.avro_bytes import AvroBytes
from hudi_ingest.records.convert.converter import FOUND_CHARACTERS, Mismatch, Rejected, shortened
from hudi_ingest.records.convert.values import Indexes, require_values, value_bytes, without_prefix
from hudi_ingest.records.schema.registered import RegisteredSchema

HEADER_BYTES = 5
"""The magic byte and the schema id."""
MAX_MESSAGE_INDEXES = 64
"""Maximum nesting of message types; protoc itself stops at 32."""

_WIRE_FORMAT = (
    "Confluent's wire format: byte 0, then a schema id of 4 bytes; ids in headers need `schema_registry.schema_ids: headers`, "
    "and Confluent's names of headers (Apicurio's serializers have others: set apicurio.registry.headers.enabled to false)"
)
_COMMON_PREFIXES = 8


class SchemaLookup(Protocol):
    """A registry's schemas of one kind by id. Picklable."""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema; None when the registry has no such schema. Raises UnusableSchema when no record of the id can be
        read, and when the registry does not answer."""


@dataclass(frozen=True)
class Framed:
    """A batch split into schema ids and payloads. Each value is either framed or rejected."""

    schema_ids: npt.NDArray[np.int64]
    """Schema id of each framed value, 0 to 2^32 - 1."""
    payloads: pa.BinaryArray
    """Bytes after the header of each framed value; may be empty."""
    indexes: Indexes | None
    """Indexes of the framed values in the batch; None when all are framed."""
    rejected: tuple[Rejected, ...]
    """Ascending by index."""

    def place(self, at: int) -> int:
        """Return the batch index of the framed value number `at`."""
        return at if self.indexes is None else int(self.indexes[at])

    def places(self, of: Indexes | None) -> Indexes:
        """Return the batch indexes of the framed values number `of`; None stands for all of them."""
        indexes = np.arange(len(self.payloads)) if self.indexes is None else self.indexes
        return indexes if of is None else indexes[of]

    def of_schema(self, schema_id: int) -> Framed:
        """Select the framed values of one schema."""
        same = self.schema_ids == schema_id
        return self if same.all() else self.only(same)

    def only(self, mask: npt.NDArray[np.bool_]) -> Framed:
        """Select the framed values where `mask` is true."""
        payloads = self.payloads.filter(pa.array(mask))
        return Framed(self.schema_ids[mask], payloads, self.places(None)[mask], self.rejected)


def split_schema_ids(values: pa.BinaryArray) -> Framed:
    """Remove the header of each value.

    `values`: binary, no nulls; otherwise raises TypeError or ValueError. Bad content never raises. The payloads are a
    copy: neighbours in a binary array share their offsets, so none can begin later than its predecessor ends.
    """
    require_values(values)
    data, starts = value_bytes(values)
    lengths = np.diff(starts)
    good = lengths >= HEADER_BYTES
    if len(data):
        # An empty value may begin at the end of the data; `good` already excludes it as too short.
        good &= data[np.minimum(starts[:-1], len(data) - 1)] == 0
    indexes: Indexes | None = None
    rejected: tuple[Rejected, ...] = ()
    if not good.all():
        indexes = np.flatnonzero(good)
        rejected = tuple(_no_header(values[index].as_py()).rejected(index) for index in np.flatnonzero(~good).tolist())
    begin = starts[:-1][good]
    ids = np.zeros(len(begin), np.int64)
    for place in range(1, HEADER_BYTES):
        ids = (ids << 8) | data[begin + place]
    payloads = without_prefix(values, np.minimum(lengths, HEADER_BYTES), indexes)
    return Framed(ids, payloads, indexes, rejected)


def select_known(framed: Framed, known: Collection[int], kind: str, faults: Mapping[int, Mismatch]) -> Framed:
    """Select the framed values whose schema ids are `known`, and reject only the others. `kind`: JSON or Protobuf. `faults`:
    why an id is not known, if not because the registry lacks it."""
    good = np.isin(framed.schema_ids, np.fromiter(known, np.int64, len(known)))
    if good.all():
        return replace(framed, rejected=())
    unknown = []
    for at in np.flatnonzero(~good).tolist():
        number = int(framed.schema_ids[at])
        fault = faults.get(number) or unknown_id(number, kind)
        unknown.append(fault.rejected(framed.place(at)))
    return replace(framed.only(good), rejected=tuple(unknown))


def unknown_id(number: int, kind: str) -> Mismatch:
    """Describe a record whose schema id the registry does not have."""
    article = "an" if kind == "Avro" else "a"
    guid = guid_of(number)
    found = f"schema id {number}" if guid is None else f"schema GUID {guid}"
    if number == 0:
        # No registry has it, but ids of 8 bytes begin with it.
        return Mismatch(
            f"the id of {article} {kind} schema in the schema registry, in 4 bytes (Apicurio's serializers write 8 unless "
            "apicurio.registry.as-confluent is true)",
            "schema id 0, as ids of 8 bytes begin",
        )
    return Mismatch(f"the id of {article} {kind} schema in the schema registry", f"{found}, which it does not have")


def unusable_schema(problem: ValueError) -> Mismatch:
    """Describe a record whose schema cannot be used to read records."""
    return Mismatch(
        "a schema that records can be read with", shortened(" ".join(str(problem).split()), 2 * FOUND_CHARACTERS)
    )


def by_header(values: pa.BinaryArray, size: int) -> Iterator[tuple[bytes, Indexes]]:
    """Yield each header of that many bytes with the indexes of its values, in order of appearance."""
    if not size:
        if len(values):
            yield b"", np.arange(len(values))
        return
    headers = pc.dictionary_encode(pc.binary_slice(values, 0, size))
    codes = headers.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(headers.dictionary)))
    begin = 0
    for header, end in zip(headers.dictionary.to_pylist(), ends.tolist(), strict=True):
        yield header, order[begin:end]
        begin = end


def read_schema_id(header: bytes) -> int:
    """Read the schema id from the first HEADER_BYTES of a value, or fewer if it is short. Raises Mismatch when it has none."""
    if len(header) == HEADER_BYTES and header[0] == 0:
        return int.from_bytes(header[1:], "big")
    raise _no_header(header)


def _no_header(value: bytes) -> Mismatch:
    if not value:
        found = "an empty value"
    elif value[0] == 1:
        # Producers that identify schemas by GUID write this byte; the GUID belongs in the record's headers.
        found = "first byte 0x01, of a schema GUID; make the producer write schema ids"
    elif value[0]:
        found = f"first byte 0x{value[0]:02x}; the producer may write no schema id, or write it into headers"
    else:
        found = f"{len(value)} byte" + ("s" if len(value) > 1 else "")
    return Mismatch(_WIRE_FORMAT, found)


@dataclass(frozen=True)
class MessageGroup:
    """The Protobuf payloads of a batch that have the same message type."""

    path: tuple[int, ...]
    """Index of a message type in its file, then of the one nested in it, and so on."""
    indexes: Indexes | None
    """Indexes of the payloads in the batch; None when all are in this group."""
    payloads: pa.BinaryArray
    """Bytes after the message indexes; may be empty."""


def split_message_indexes(values: pa.BinaryArray) -> tuple[tuple[MessageGroup, ...], tuple[Rejected, ...]]:
    """Remove the message indexes of each value. Each value is in one group or rejected; bad content never raises.

    Encodings of index lists are prefix-free, so all values that begin with the same encoding are found at once. Only
    batches with many different encodings are read value by value.
    """
    require_values(values)
    sizes = np.zeros(len(values), np.int64)
    unread: Indexes = np.arange(len(values), dtype=np.int64)
    by_path: dict[tuple[int, ...], list[Indexes]] = {}
    rejected: list[Rejected] = []
    rest = values
    for _ in range(_COMMON_PREFIXES):
        if not len(unread):
            break
        first = rest[0].as_py()
        try:
            path, size = _read_indexes(first)
        except ValueError as error:
            rejected.append(_bad_indexes(int(unread[0]), error))
            unread, rest = unread[1:], rest[1:]
            continue
        same = pc.starts_with(rest, first[:size])
        members = same.to_numpy(zero_copy_only=False)
        sizes[unread[members]] = size
        by_path.setdefault(path, []).append(unread[members])
        unread, rest = unread[~members], rest.filter(pc.invert(same))
    for index, value in zip(unread.tolist(), rest.to_pylist(), strict=True):
        try:
            path, sizes[index] = _read_indexes(value)
        except ValueError as error:
            rejected.append(_bad_indexes(index, error))
        else:
            by_path.setdefault(path, []).append(np.array([index], np.int64))
    groups = []
    for path, parts in by_path.items():
        indexes = np.sort(np.concatenate(parts))
        everything = None if len(indexes) == len(values) else indexes
        groups.append(MessageGroup(path, everything, without_prefix(values, sizes, everything)))
    return tuple(groups), tuple(sorted(rejected, key=attrgetter("index")))


def _bad_indexes(index: int, error: ValueError) -> Rejected:
    return Rejected(index, "", "message indexes of Confluent's wire format before the Protobuf message", str(error))


def _read_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of a message type, and the number of bytes that encode it. Raises ValueError."""
    data = AvroBytes(value)
    count = data.long()
    if count == 0:
        return (0,), data.at
    if not 0 < count <= MAX_MESSAGE_INDEXES:
        raise ValueError(f"{count} of them")
    path = []
    for _ in range(count):
        index = data.long()
        if index < 0:
            raise ValueError(f"the message index {index}")
        path.append(index)
    return tuple(path), data.at


VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_FIRST_NUMBER = 2**31
"""Registries' ids are Java's int."""
_GUID_END, _ID_END = 17, 5
_UNREADABLE = b"\xff"
"""Before a payload whose header names no schema; converters refuse it."""

_guids: list[bytes] = []
"""The GUIDs that this process has met, by their numbers; a record depends on none of them."""
_lock = threading.Lock()


def guid_of(number: int) -> UUID | None:
    """The GUID that got this number in this process; None if it is no GUID's."""
    place = number - _FIRST_NUMBER
    return UUID(bytes=_guids[place]) if 0 <= place < len(_guids) else None


def with_schema_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with what its headers name put before its values, and before its keys if it has them. Records without such a
    header stay as they are."""
    for column, header in (("value", VALUE_HEADER), ("key", KEY_HEADER)):
        if column in batch.schema.names:
            framed = _framed(batch[column], batch["headers"], header)
            batch = batch.set_column(batch.schema.get_field_index(column), column, framed)
    return batch


def _framed(payloads: pa.BinaryArray, headers: pa.ListArray, name: str) -> pa.BinaryArray:
    entries = headers.flatten()
    named = pc.and_(pc.equal(entries.field("key"), name), pc.is_valid(entries.field("value")))
    contents = entries.field("value").filter(named)
    if not len(contents):
        return payloads
    # The first header of the name counts, as for Confluent's deserializer.
    records, firsts = np.unique(pc.list_parent_indices(headers).filter(named).to_numpy(), return_index=True)
    encoded = pc.dictionary_encode(contents.take(pa.array(firsts)))
    prefixes = pa.array([*map(_prefix, encoded.dictionary.to_pylist()), b""], pa.binary())
    codes = np.full(len(payloads), len(prefixes) - 1)
    codes[records] = encoded.indices.to_numpy()
    return pc.binary_join_element_wise(prefixes.take(pa.array(codes)), payloads, pa.scalar(b"", pa.binary()))


def _prefix(header: bytes) -> bytes:
    if header[:1] == b"\x01" and len(header) >= _GUID_END:
        return b"\x00" + _number_of(header[1:_GUID_END]).to_bytes(4, "big") + header[_GUID_END:]
    if header[:1] == b"\x00" and len(header) >= _ID_END:
        return header
    return _UNREADABLE


@cache
def _number_of(guid: bytes) -> int:
    with _lock:
        if guid not in _guids:
            _guids.append(guid)
        return _FIRST_NUMBER + _guids.index(guid)
