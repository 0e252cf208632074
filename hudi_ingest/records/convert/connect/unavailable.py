"""Placeholders that Debezium writes for values that the database left out, in the shape of each type. Never become values of a row."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.converter import Converter, Decoded, NamesFields, Rejected
from hudi_ingest.records.convert.values import without_faults

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default for `unavailable.value.placeholder`."""

WHOLE_ROWS = "`alter table … replica identity full` makes PostgreSQL send the whole row (MySQL: binlog_row_image=FULL)"
_EXPECTED = f"a value, but this one the database leaves out of updates that do not change it; {WHOLE_ROWS}, or leave this column out"
_HEX = "hex:"
_GEOMETRIES = (
    # SRID=4326;POINT(-99999999 -99999999), of a geometry
    bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1"),
    # SRID=4326;POINT(179.999999 89.999999), of a geography
    bytes.fromhex("0101000020e61000000c21e7fdff7f66401842cefbff7f5640"),
)

_Flags = npt.NDArray[np.bool_]


def placeholder_bytes(placeholder: str) -> bytes:
    """The bytes that Debezium makes of its setting. Raises ValueError if there is no hex after `hex:`."""
    if not placeholder.startswith(_HEX):
        return placeholder.encode()
    if not placeholder[len(_HEX) :].strip():
        raise ValueError("no bytes")
    return bytes.fromhex(placeholder[len(_HEX) :])


@dataclass(frozen=True)
class AvailableValues:
    """Decodes as `converter` does, and refuses rows with a placeholder in a column. `placeholder`: as the connector's setting has
    it."""

    converter: Converter
    placeholder: str = UNAVAILABLE

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises what `converter` raises; bad content never raises."""
        read = self.converter.decode(values)
        faults: dict[int, Rejected] = {}
        for name, column in zip(read.rows.schema.names, read.rows.columns, strict=True):
            if name not in (DELETED, BEFORE):
                for index in np.flatnonzero(self._flags(column)).tolist():
                    faults.setdefault(index, Rejected(index, name, _EXPECTED, self.placeholder))
        return without_faults(read, read.rows, len(values), faults)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self.converter.fields(values, within) if isinstance(self.converter, NamesFields) else frozenset()

    def _flags(self, column: pa.Array) -> _Flags:
        """Which values are the placeholder, or have it within."""
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return _flags(pc.is_in(column, self._texts if pa.types.is_string(kind) else self._binaries))
        if pa.types.is_struct(kind):
            flags = np.zeros(len(column), np.bool_)
            for place in range(kind.num_fields):
                flags |= self._flags(pc.struct_field(column, [place]))
            return flags
        if pa.types.is_map(kind):
            return _any_within(column, self._flags(column.keys) | self._flags(column.items))
        if not pa.types.is_list(kind):
            return np.zeros(len(column), np.bool_)
        within = _any_within(column, self._flags(column.values))
        return within | self._numbers(column) if _factors(kind.value_type) else within

    def _numbers(self, lists: pa.ListArray) -> _Flags:
        """Which lists are the placeholder's bytes, as Debezium fills arrays of numbers."""
        flags = _flags(pc.equal(pc.list_value_length(lists), len(self._codes)))
        if flags.any():
            numbers = _as_floats(lists.filter(pa.array(flags)).flatten()).reshape(-1, len(self._codes))
            same = [
                np.isclose(numbers, self._codes * factor, atol=0).all(1) for factor in _factors(lists.type.value_type)
            ]
            flags[flags] = np.logical_or.reduce(same)
        return flags

    @cached_property
    def _bytes(self) -> bytes:
        return placeholder_bytes(self.placeholder)

    @cached_property
    def _codes(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._bytes, np.int8).astype(np.float64)

    @cached_property
    def _binaries(self) -> pa.Array:
        return pa.array([self._bytes, *_GEOMETRIES], pa.binary())

    @cached_property
    def _texts(self) -> pa.Array:
        """The text itself, and what UUIDs, hstore and columns of texts for bytes make of it."""
        text = self._bytes.decode(errors="replace")
        digest = hashlib.md5(self._bytes, usedforsecurity=False).digest()
        encoded = [
            form for part in (self._bytes, *_GEOMETRIES) for form in (part.hex(), base64.b64encode(part).decode())
        ]
        hstore = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
        return pa.array([text, str(uuid.UUID(bytes=digest, version=3)), hstore, *encoded])


def _flags(flags: pa.Array) -> _Flags:
    """Null is false."""
    array: _Flags = pc.fill_null(flags, False).to_numpy(zero_copy_only=False).copy()
    return array


def _any_within(containers: pa.Array, flags: _Flags) -> _Flags:
    """Which lists or maps have a flagged member. `flags`: of all members, also those beside a slice."""
    until = np.concatenate([[0], np.cumsum(flags)])[containers.offsets.to_numpy()]
    within: _Flags = np.diff(until) > 0
    return within & _flags(containers.is_valid())


def _factors(items: pa.DataType) -> Sequence[float]:
    """What Debezium's bytes are multiplied by where they become numbers of this type; none for other types."""
    if pa.types.is_integer(items) or pa.types.is_floating(items) or pa.types.is_date(items):
        return (1,)
    if pa.types.is_timestamp(items):
        return (1, 1000)
    if pa.types.is_decimal(items):
        # The bytes are the unscaled numbers of a column whose scale may be smaller than the declared one.
        return [10.0**-scale for scale in range(items.scale + 1)]
    return ()


def _as_floats(numbers: pa.Array) -> npt.NDArray[np.float64]:
    if pa.types.is_date(numbers.type):
        numbers = numbers.cast(pa.int32())
    elif pa.types.is_timestamp(numbers.type):
        numbers = numbers.cast(pa.int64())
    floats: npt.NDArray[np.float64] = numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats
