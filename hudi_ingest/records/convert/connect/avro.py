"""Avro as Kafka Connect's converter writes it: values whose meaning only Connect knows, such as times of Debezium, are converted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hudi_ingest.records.convert.avro.converter import AvroConverter, Writers
from hudi_ingest.records.convert.connect.columns import misread
from hudi_ingest.records.convert.connect.values import Reading, avro_reading_of, decoded_rows, wire_schema
from hudi_ingest.records.convert.converter import Decoded, Mismatch
from hudi_ingest.records.convert.values import (
    Indexes,
    Refusal,
    RequiredFields,
    after_refusal,
    regrouped,
    require_values,
)
from hudi_ingest.records.convert.wire_format import by_header
from hudi_ingest.records.schema.avro import NO_RESOLUTION, Resolution, parse_connect_avro
from hudi_ingest.records.schema.registered import RegisteredSchema, UnusableSchema
from hudi_ingest.records.schema.wire_type import WireType, named_by
from hudi_ingest.records.transform.casts import convert_exactly


class ConnectAvroConverter:
    """Decodes Avro records to rows of `schema`.

    `required`: as in AvroConverter. `declared`: whether numbers of any unit may be in a column of numbers. Raises ValueError at construction when a column's type cannot be read from Avro.
    """

    def __init__(
        self,
        schema: pa.Schema,
        writers: Writers,
        resolution: Resolution = NO_RESOLUTION,
        required: RequiredFields | None = None,
        declared: bool = True,
    ) -> None:
        self._schema = schema
        self._writers = writers
        self._resolution = resolution
        self._required = required
        self._declared = declared
        self._plain = AvroConverter(schema, writers, resolution, required)
        self._readers: dict[bytes, tuple[AvroConverter, list[Reading], Refusal | None]] = {}
        """Readers by the header, whose meaning never changes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConnectAvroConverter, (self._schema, self._writers, self._resolution, self._required, self._declared))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which are binary without nulls. Raises what AvroConverter.decode raises; bad content never raises."""
        require_values(values)
        groups: list[tuple[Indexes, Decoded]] = []
        parts = [(self._reader(header), places) for header, places in by_header(values, self._writers.header_bytes)]
        if all(converter is self._plain and refusal is None for (converter, _, refusal), _ in parts):
            return self._plain.decode(values)
        for (converter, readings, refusal), places in parts:
            part = values if len(places) == len(values) else values.take(pa.array(places))
            read = decoded_rows(converter, part, self._schema, readings)
            groups.append((places, after_refusal(read, refusal, len(places))))
        return regrouped(self._schema, len(values), groups, ())

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self._plain.fields(values, within)

    def _reader(self, header: bytes) -> tuple[AvroConverter, list[Reading], Refusal | None]:
        known = self._readers.get(header)
        if known is not None:
            return known
        try:
            connect = parse_connect_avro(self._writers.schema(header))
        except (Mismatch, UnusableSchema, ValueError):
            # The plain converter says what is wrong with the header or its schema.
            return self._plain, [], None
        row = named_by(connect, pa.struct(list(self._schema)), self._resolution.written_name)
        members = row.members
        readings = [avro_reading_of(field.type, members.get(field.name)) for field in self._schema]
        converter = self._plain
        if not all(reading.is_plain for reading in readings):
            wire = wire_schema(self._schema, readings)
            converter = AvroConverter(wire, self._writers, self._resolution, self._required)
        others = () if self._declared else (other for other in misread(self._schema, row) if other.has_unit)
        refusal = next((other.refusal() for other in others), None)
        self._readers[header] = converter, readings, refusal
        return converter, readings, refusal


def with_meant_defaults(resolution: Resolution, schema: RegisteredSchema, columns: Iterable[pa.Field]) -> Resolution:
    """The resolution with the defaults of a schema that Connect's converter registered as values of the columns. One that its column
    cannot hold is unfit. Raises ValueError when it is no schema."""
    meant, unfit = dict(resolution.defaults), dict(resolution.unfit)

    def convert(fields: Iterable[pa.Field], connect: WireType, parent: str) -> None:
        for field in fields:
            path, member = f"{parent}{field.name}", connect.members.get(field.name)
            if member is None:
                continue
            if pa.types.is_struct(field.type):
                convert(field.type, member, f"{path}.")
            reading = avro_reading_of(field.type, member)
            if reading.convert is not None and meant.get(path) is not None:
                default = meant.pop(path)
                values, bad = convert_exactly(pa.array([default], reading.wire), reading.convert, field.type)
                if bad:
                    unfit[path] = f"default {str(default)[:40]}, which is not {reading.expected}"
                else:
                    meant[path] = values[0].as_py()

    convert(columns, parse_connect_avro(schema), "")
    return replace(resolution, defaults=meant, unfit=unfit)
