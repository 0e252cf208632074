"""Avro records -> rows: whole batches by `avro.fast` where its result is proved right, otherwise record by record.

A record's value begins with a header that names its writer's schema, unless all records have the same one. `avro.exact`
defines what is accepted and the result. The batch path accepts a subset, with equal values, and leaves anything it doubts
to the exact path, so a record's outcome depends on neither the path nor its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa

from hudi_ingest.records.convert.avro.exact import DatumReader
from hudi_ingest.records.convert.avro.fast import BatchReader
from hudi_ingest.records.convert.converter import Decoded, Mismatch, Options, Rejected
from hudi_ingest.records.convert.fast_path import Doubt, Fast, Limits, decode_in_pieces, record_by_record
from hudi_ingest.records.convert.values import (
    Indexes,
    Refusal,
    RequiredFields,
    after_refusal,
    regrouped,
    require_values,
)
from hudi_ingest.records.convert.wire_format import (
    HEADER_BYTES,
    SchemaLookup,
    by_header,
    read_schema_id,
    unknown_id,
    unusable_schema,
)
from hudi_ingest.records.schema.avro import (
    NO_RESOLUTION,
    Resolution,
    WriterSchemaProblem,
    crc_64,
    parse_writer,
)
from hudi_ingest.records.schema.registered import RegisteredSchema, UnusableSchema
from hudi_ingest.records.schema.wire_type import UNKNOWN, WireType, named_by

LIMITS = Limits(rows=65_536, bytes=32 * 1024 * 1024, doubts=4)
"""Limits of one batch. Doubts are limited so that a producer whose records are all in doubt does not have each of them read
several times."""


class Writers(Protocol):
    """How a record says which schema it was written with. Picklable."""

    @property
    def header_bytes(self) -> int:
        """The number of bytes before the datum."""

    def schema(self, header: bytes) -> RegisteredSchema:
        """Return the schema that a header names. Raises Mismatch when it names none."""


@dataclass(frozen=True)
class OneSchema:
    """Values that are bare datums, all written with the same schema."""

    written: RegisteredSchema
    header_bytes: int = field(default=0, init=False)

    def schema(self, header: bytes) -> RegisteredSchema:
        return self.written


@dataclass(frozen=True)
class ConfluentWireFormat:
    """Values that begin with a zero byte and the 4 bytes of a schema's id in a registry."""

    registry: SchemaLookup
    header_bytes: int = field(default=HEADER_BYTES, init=False)

    def schema(self, header: bytes) -> RegisteredSchema:
        number = read_schema_id(header)
        written = self.registry.schema(number)
        if written is None:
            raise unknown_id(number, "Avro")
        return written


@dataclass(frozen=True)
class SingleObjectEncoding:
    """Values that begin with the bytes C3 01 and the 8 bytes of their schema's CRC-64-AVRO fingerprint."""

    schemas: Mapping[bytes, RegisteredSchema]
    header_bytes: int = field(default=10, init=False)

    @classmethod
    def of(cls, *texts: str) -> SingleObjectEncoding:
        """Accept records written with any of these schemas. Raises WriterSchemaProblem."""
        return cls({crc_64(text): RegisteredSchema(text) for text in texts})

    def schema(self, header: bytes) -> RegisteredSchema:
        expected = "the bytes C3 01 and a schema's fingerprint"
        if not header:
            raise Mismatch(expected, "an empty value")
        if header[:2] != b"\xc3\x01" or len(header) < self.header_bytes:
            raise Mismatch(expected, f"a value that begins with {header[:2].hex(' ').upper()}")
        written = self.schemas.get(header[2:])
        if written is None:
            raise Mismatch(
                "the fingerprint of a schema of this pipeline",
                f"fingerprint {header[2:][::-1].hex()} of another schema",
            )
        return written


@dataclass(frozen=True)
class AvroValuesOf:
    """A pipeline's settings for Avro values. Picklable."""

    writers: Writers
    resolution: Resolution = NO_RESOLUTION


def avro_converter(schema: pa.Schema, options: Options) -> AvroConverter:
    """Create the converter. `values`, an AvroValuesOf, is the only option. Raises ValueError when it is missing or a column
    cannot be read."""
    values = options.get("values")
    if not isinstance(values, AvroValuesOf) or len(options) != 1:
        raise ValueError("format avro: give one option, values: how Avro values name their schemas")
    return AvroConverter(schema, values.writers, values.resolution)


class AvroConverter:
    """Decodes Avro records to rows of `schema`.

    `required`: a record is bad whose schema lacks one of these columns, unless it deletes a row.
    Raises ValueError at construction when a column's type cannot be read from Avro.
    """

    def __init__(
        self,
        schema: pa.Schema,
        writers: Writers,
        resolution: Resolution = NO_RESOLUTION,
        required: RequiredFields | None = None,
    ) -> None:
        self._schema = schema
        self._writers = writers
        self._resolution = resolution
        self._required = required
        self._readers: dict[bytes, _Reader | _UnionReader | Mismatch] = {}
        """Readers by header. Only headers that name a schema are kept: there may be as many others as records. A header's
        meaning never changes, so this is not state that a record's outcome could depend on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (AvroConverter, (self._schema, self._writers, self._resolution, self._required))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which are binary without nulls. Raises TypeError or ValueError when they are not, and what
        `SchemaLookup` raises when it is unavailable; bad content never raises."""
        require_values(values)
        groups: list[tuple[Indexes, Decoded]] = []
        rejected: list[Rejected] = []
        for header, places in by_header(values, self._writers.header_bytes):
            reader = self._reader(header)
            if isinstance(reader, Mismatch):
                rejected += map(reader.rejected, places.tolist())
            else:
                of_header = values if len(places) == len(values) else values.take(pa.array(places))
                groups.append((places, reader.decode(of_header)))
        return regrouped(self._schema, len(values), groups, rejected)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        readers = [self._reader(header) for header, _ in by_header(values, self._writers.header_bytes)]
        return frozenset().union(*(reader.fields(within) for reader in readers if isinstance(reader, _Reader)))

    def _reader(self, header: bytes) -> _Reader | _UnionReader | Mismatch:
        if header not in self._readers:
            try:
                written = self._writers.schema(header)
            except Mismatch as mismatch:
                return mismatch
            except UnusableSchema as problem:
                return unusable_schema(problem)
            self._readers[header] = self._reader_of(written)
        return self._readers[header]

    def _reader_of(self, written: RegisteredSchema) -> _Reader | _UnionReader | Mismatch:
        try:
            writer = parse_writer(written)
            if writer.kind == "union" and all(part.kind in ("record", "null") for part in writer.parts):
                refusals = [self._refusal_of(written, writer, branch) for branch in range(len(writer.parts))]
                return _UnionReader(writer, self._schema, self._resolution, self._writers.header_bytes, refusals)
            refusal = self._refusal_of(written, writer)
            return _Reader(writer, self._schema, self._resolution, self._writers.header_bytes, refusal)
        except Mismatch as mismatch:
            return mismatch
        except WriterSchemaProblem as problem:
            return unusable_schema(problem)

    def _refusal_of(self, written: RegisteredSchema, writer: WireType, branch: int | None = None) -> Refusal | None:
        """`branch`: which of the records of a union, in the versions before it, too."""
        required = self._required
        if required is None:
            return None

        def shape(of: WireType) -> pa.DataType:
            if branch is not None and of.kind == "union":
                of = of.parts[branch] if branch < len(of.parts) else WireType("null")
            return named_by(of, required.record, self._resolution.written_name).shape

        def shape_of(version: RegisteredSchema) -> pa.DataType:
            try:
                return shape(parse_writer(version))
            except WriterSchemaProblem:
                return UNKNOWN

        return required.refusal_of(shape(writer), written.__eq__, shape_of)


class _Reader:
    """Reads the values of one writer's schema. `refusal`: why those that write a row are bad."""

    def __init__(
        self,
        writer: WireType,
        schema: pa.Schema,
        resolution: Resolution,
        header_bytes: int,
        refusal: Refusal | None = None,
    ) -> None:
        if writer.inner[0].kind not in ("record", "union") and len(schema) == 1:
            # The one column: a record of one field is encoded like the field.
            writer = WireType("record", names=(schema.names[0],), parts=(writer,))
        if writer.kind != "record":
            raise Mismatch("a record", f"a value of schema {writer}"[:80])
        self._schema = schema
        self._writer = writer
        self._refusal = refusal
        exact = DatumReader(writer, schema, resolution, header_bytes)
        self._exact = record_by_record(schema, exact.read, exact.parsed)
        try:
            self._fast: Fast | None = BatchReader(writer, schema, resolution, header_bytes).read
        except Doubt:
            self._fast = None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        read = decode_in_pieces(self._schema, values, self._fast, self._exact, LIMITS)
        return after_refusal(read, self._refusal, len(values))

    def fields(self, within: str) -> tuple[str, ...]:
        """The names of the writer's fields, or of those of the record that is its field `within`."""
        if not within:
            return self._writer.names
        inner = dict(zip(self._writer.names, self._writer.parts, strict=True)).get(within)
        return inner.inner[0].names if inner is not None and inner.inner[0].kind == "record" else ()


class _UnionReader:
    """Reads the values of a union of records: each begins with the number of its branch, which is one more byte of header."""

    def __init__(
        self,
        writer: WireType,
        schema: pa.Schema,
        resolution: Resolution,
        header_bytes: int,
        refusals: Sequence[Refusal | None],
    ) -> None:
        self._schema = schema
        self._header_bytes = header_bytes + 1
        self._branches = {
            bytes([2 * number]): _Reader(part, schema, resolution, self._header_bytes, refusals[number])
            for number, part in enumerate(writer.parts[:64])
            if part.kind == "record"
        }

    def decode(self, values: pa.BinaryArray) -> Decoded:
        groups: list[tuple[Indexes, Decoded]] = []
        rejected: list[Rejected] = []
        for header, places in by_header(values, self._header_bytes):
            branch = header[self._header_bytes - 1 :]
            reader = self._branches.get(branch)
            if reader is None:
                fault = Mismatch(
                    "the number of a record in its schema's union", f"byte {branch.hex()}" if branch else "no byte"
                )
                rejected += map(fault.rejected, places.tolist())
            else:
                groups.append((places, reader.decode(values.take(pa.array(places)))))
        return regrouped(self._schema, len(values), groups, sorted(rejected, key=attrgetter("index")))
