"""Schemas that records name in their headers, as Confluent's `header_schema_id_serializer` does, instead of before the payload.

The header `__value_schema_id` or `__key_schema_id` holds a byte 1 and the 16 bytes of the schema's GUID, or a byte 0 and the 4
bytes of its id; then, for Protobuf, the message indexes. The payload has nothing before it. Here it gets what other
serializers write there, so that the same converters read it; a GUID gets a number that no registry uses for an id.
"""

from __future__ import annotations

import threading
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_FIRST_NUMBER = 2**31
"""Registries' ids are Java's int."""
_GUID_END, _ID_END = 17, 5
_UNREADABLE = b"\xff"
"""Before a payload whose header names no schema; converters refuse it."""

_numbers: dict[bytes, int] = {}
_guids: list[bytes] = []
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


def _number_of(guid: bytes) -> int:
    with _lock:
        if guid not in _numbers:
            _numbers[guid] = _FIRST_NUMBER + len(_guids)
            _guids.append(guid)
        return _numbers[guid]
