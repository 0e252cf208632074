"""Encode the benchmark's orders as producers' Avro and Protobuf libraries do."""

from __future__ import annotations

import io
import json
from functools import cache

import fastavro
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.records.convert.protobuf_schema import ProtobufSchema
from hudi_ingest.records.convert.protoc import compile_protos

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
