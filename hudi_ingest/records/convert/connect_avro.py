"""Avro as Kafka Connect's converter writes it: values whose meaning only Connect knows, such as times of Debezium, are converted."""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.records.convert.avro import AvroConverter, Writers
from hudi_ingest.records.convert.connect_schema import parse_avro_schema
from hudi_ingest.records.convert.connect_values import Reading, avro_reading_of, decoded_rows, wire_schema
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.mismatch import Mismatch
from hudi_ingest.records.convert.values import Indexes, regrouped, require_values
from hudi_ingest.records.convert.wire_format import by_header
from hudi_ingest.records.schema.avro import NO_RESOLUTION, Resolution
from hudi_ingest.records.schema.registered import UnusableSchema


class ConnectAvroConverter:
    """Decodes Avro records to rows of `schema`.

    Raises ValueError at construction when a column's type cannot be read from Avro.
    """

    def __init__(self, schema: pa.Schema, writers: Writers, resolution: Resolution = NO_RESOLUTION) -> None:
        self._schema = schema
        self._writers = writers
        self._resolution = resolution
        self._plain = AvroConverter(schema, writers, resolution)
        self._readers: dict[bytes, tuple[AvroConverter, list[Reading]]] = {}
        """By header; its meaning never changes."""

    def __reduce__(self) -> tuple[type[ConnectAvroConverter], tuple[pa.Schema, Writers, Resolution]]:
        return (ConnectAvroConverter, (self._schema, self._writers, self._resolution))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which are binary without nulls. Raises what AvroConverter.decode raises; bad content never raises."""
        require_values(values)
        groups: list[tuple[Indexes, Decoded]] = []
        for header, places in by_header(values, self._writers.header_bytes):
            converter, readings = self._reader(header)
            part = values if len(places) == len(values) else values.take(pa.array(places))
            groups.append((places, decoded_rows(converter, part, self._schema, readings)))
        return regrouped(self._schema, len(values), groups, ())

    def _reader(self, header: bytes) -> tuple[AvroConverter, list[Reading]]:
        known = self._readers.get(header)
        if known is not None:
            return known
        try:
            connect = parse_avro_schema(self._writers.schema(header))
        except (Mismatch, UnusableSchema, ValueError):
            # The plain converter says what is wrong with the header or its schema.
            return self._plain, []
        readings = [avro_reading_of(field.type, connect.members.get(field.name)) for field in self._schema]
        converter = AvroConverter(wire_schema(self._schema, readings), self._writers, self._resolution)
        self._readers[header] = converter, readings
        return converter, readings
