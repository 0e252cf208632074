"""Encode the benchmark's orders as producers' Avro and Protobuf libraries do."""

from __future__ import annotations

import io
import json
from functools import cache

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos

AVRO_SCHEMA = """{"type": "record", "name": "Order", "namespace": "bench", "fields": [
  {"name": "id", "type": "string"},
  {"name": "ts", "type": "long"},
  {"name": "user", "type": "string"},
  {"name": "amount", "type": "double"},
  {"name": "note", "type": ["null", "string"]},
  {"name": "dt", "type": "string"}]}"""

PROTOBUF_MESSAGE = "bench.Order"
_PROTO = """syntax = "proto3";
package bench;
message Order {
  string id = 1;
  int64 ts = 2;
  string user = 3;
  double amount = 4;
  optional string note = 5;
  string dt = 6;
}
"""


_SOURCE = (
    b'{"version":"3.3.1.Final","connector":"postgresql","name":"shop","ts_ms":1767225600000,"snapshot":"false","db":"shop",'
    b'"sequence":"[\\"26639000\\",\\"26639056\\"]","ts_us":1767225600000000,"ts_ns":1767225600000000000,"schema":"public",'
    b'"table":"orders","txId":745,"lsn":26639056,"xmin":null}'
)
_FIELDS = [
    {"field": "id", "type": "string"},
    {"field": "ts", "type": "int64"},
    {"field": "user", "type": "string"},
    {"field": "amount", "type": "double"},
    {"field": "note", "type": "string", "optional": True},
    {"field": "dt", "type": "string"},
]


def debezium(orders: pa.BinaryArray) -> pa.BinaryArray:
    """Turn orders in JSON into Debezium's updates, with the whole row before and after."""
    head, middle = b'{"before":', b',"after":'
    tail = b',"source":' + _SOURCE + b',"transaction":null,"op":"u","ts_ms":1767225600000}'
    return pc.binary_join_element_wise(head, orders, middle, orders, tail, b"")


def with_schemas(events: pa.BinaryArray) -> pa.BinaryArray:
    """Put Connect's schema around Debezium's events."""
    source = [
        {"field": name, "type": "int64" if isinstance(value, int) else "string", "optional": True}
        for name, value in json.loads(_SOURCE).items()
    ]
    row = {"type": "struct", "optional": True, "name": "shop.public.orders.Value", "fields": _FIELDS}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}]
    fields += [{"type": "struct", "fields": source, "field": "source"}, {"type": "string", "field": "op"}]
    schema = {"type": "struct", "fields": fields, "name": "shop.public.orders.Envelope", "version": 2}
    frame = b'{"schema":' + json.dumps(schema, separators=(",", ":")).encode() + b',"payload":'
    return pc.binary_join_element_wise(frame, events, b"}", b"")


def avro(orders: pa.RecordBatch) -> pa.BinaryArray:
    """Encode orders as datums of AVRO_SCHEMA."""
    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    values = []
    for order in orders.to_pylist():
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, order)
        values.append(target.getvalue())
    return pa.array(values, pa.binary())


def protobuf(orders: pa.RecordBatch) -> pa.BinaryArray:
    """Encode orders as bare messages."""
    message = GetMessageClass(ProtobufSchema(protobuf_descriptors()).message(PROTOBUF_MESSAGE))
    return pa.array([message(**order).SerializeToString() for order in orders.to_pylist()], pa.binary())


@cache
def protobuf_descriptors() -> bytes:
    """Return the message's descriptor file."""
    return compile_protos("bench_order.proto", {"bench_order.proto": _PROTO})
