"""`python -m benchmarks.converters`: CPU seconds that the converter alone takes for a million orders.

One process, without Kafka and Spark: batches as Spark passes them, and the fastest of several rounds, so that other work on
the machine matters little. The converter chooses the path that reads a batch, as always.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import encoded_orders
from benchmarks.loads import order_columns, order_values, parse_load
from hudi_ingest.records.convert.avro.converter import AvroValuesOf, ConfluentWireFormat, OneSchema
from hudi_ingest.records.convert.connect.debezium import DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Converter
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.convert.json.framed import RegisteredSchemas
from hudi_ingest.records.convert.protobuf.converter import RegisteredMessages
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema

_BATCH_ROWS = 40_000
_BATCHES = 5
_ROUNDS = 3
_HEADER = b"\0\0\0\0\7"


@dataclass(frozen=True)
class _OneId:
    """A registry with the same schema for every id."""

    text: str = "{}"
    compiled: bytes = b""

    def schema(self, schema_id: int) -> RegisteredSchema:
        return RegisteredSchema(self.text)

    def descriptor_set(self, schema_id: int) -> bytes:
        return self.compiled


def cpu_seconds_per_million(converter: Converter, batches: list[pa.BinaryArray]) -> float:
    """Return the time of the fastest of several rounds after a warm-up. Raises ValueError for a batch that does not become rows."""
    least = float("inf")
    for number in range(_ROUNDS + 1):
        began = time.process_time()
        for batch in batches:
            if converter.decode(batch).rejected:
                raise ValueError("one of the benchmark's own records was rejected")
        spent = time.process_time() - began
        least = min(least, spent) if number else least
    return least / sum(map(len, batches)) * 1e6


def converters() -> Iterator[tuple[str, Converter, list[pa.BinaryArray]]]:
    """Yield each format's name, converter and batches."""
    schema = parse_ddl(parse_load("orders-1k").shape.ddl)
    text = pa.schema([("value", pa.string())])
    orders = [order_columns(number * _BATCH_ROWS, _BATCH_ROWS) for number in range(_BATCHES)]
    in_json = [order_values(number * _BATCH_ROWS, _BATCH_ROWS) for number in range(_BATCHES)]
    in_avro, in_protobuf = [*map(encoded_orders.avro, orders)], [*map(encoded_orders.protobuf, orders)]
    descriptors, message = encoded_orders.protobuf_descriptors(), encoded_orders.PROTOBUF_MESSAGE
    written = RegisteredSchema(encoded_orders.AVRO_SCHEMA)
    registered = _OneId(encoded_orders.AVRO_SCHEMA, descriptors)
    yield "json", converter_for("json", schema), in_json
    naming = NamingFields(("id", "dt"), whole=True)
    events = DebeziumConverter(ConnectJsonConverter(event_schema(schema, naming), framed=False), schema, naming)
    changes = [*map(encoded_orders.debezium, in_json)]
    yield "debezium", events, changes
    yield "debezium, with schemas", events, [*map(encoded_orders.with_schemas, changes)]
    yield (
        "json_schema",
        converter_for("json_schema", schema, {"registered": RegisteredSchemas(_OneId())}),
        _behind(_HEADER, in_json),
    )
    yield "avro, datum", converter_for("avro", schema, {"values": AvroValuesOf(OneSchema(written))}), in_avro
    confluent = AvroValuesOf(ConfluentWireFormat(registered))
    yield "avro, confluent", converter_for("avro", schema, {"values": confluent}), _behind(_HEADER, in_avro)
    plain = {"descriptor_set": descriptors, "message": message}
    yield "protobuf, descriptor file", converter_for("protobuf", schema, plain), in_protobuf
    messages = {"registered": RegisteredMessages(registered, message)}
    yield "protobuf, registry", converter_for("protobuf", schema, messages), _behind(_HEADER + b"\0", in_protobuf)
    yield "csv", converter_for("csv", schema), [*map(_csv, orders)]
    yield "string", converter_for("string", text), in_json


def _behind(header: bytes, batches: list[pa.BinaryArray]) -> list[pa.BinaryArray]:
    return [pc.binary_join_element_wise(pa.scalar(header), batch, b"") for batch in batches]


def _csv(orders: pa.RecordBatch) -> pa.BinaryArray:
    ts, amount = (orders[name].cast(pa.string()) for name in ("ts", "amount"))
    joined = pc.binary_join_element_wise(
        orders["id"],
        ts,
        orders["user"],
        amount,
        pc.binary_join_element_wise('"', orders["note"], '"', ""),
        orders["dt"],
        ",",
    )
    return joined.cast(pa.binary())


def main() -> None:
    """Print a line of JSON for each format."""
    for name, converter, batches in converters():
        seconds = cpu_seconds_per_million(converter, batches)
        size = sum(pc.sum(pc.binary_length(batch)).as_py() for batch in batches) / sum(map(len, batches))
        sys.stdout.write(
            json.dumps({"format": name, "cpu_seconds_per_million": round(seconds, 3), "bytes": round(size)}) + "\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
