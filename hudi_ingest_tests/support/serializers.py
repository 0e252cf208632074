"""Records as confluent-kafka's own serializers write them, schemas registered on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import Message

from hudi_ingest_tests.support.registry import Registry


def avro_bytes(
    registry: Registry,
    topic: str,
    schema: Any,
    value: Mapping[str, Any],
    *,
    field: str = MessageField.VALUE,
    **settings: Any,
) -> bytes:
    """`schema`: a text, or a Schema with references."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = AvroSerializer(client, schema, conf=settings)
        return _bytes(serialize(dict(value), SerializationContext(topic, field)))


def json_bytes(registry: Registry, topic: str, schema: str, value: Mapping[str, Any], **settings: Any) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = JSONSerializer(schema, client, conf=settings)
        return _bytes(serialize(dict(value), SerializationContext(topic, MessageField.VALUE)))


def protobuf_bytes(registry: Registry, topic: str, message: Message, **settings: Any) -> bytes:
    """Registers the files that the message's file imports, too."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        serialize = ProtobufSerializer(type(message), client, conf=settings)
        return _bytes(serialize(message, SerializationContext(topic, MessageField.VALUE)))


def _bytes(found: object) -> bytes:
    assert isinstance(found, bytes)
    return found
