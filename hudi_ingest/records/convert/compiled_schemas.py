"""A registry's Protobuf schemas as descriptor sets: compiled when a record needs them, once per process and text.

A registry keeps a schema as the text of a `.proto` file or, as some producers (confluent-kafka's) register it, as a
serialized FileDescriptorProto in base64. The same goes for the schemas that it references.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from functools import lru_cache

from hudi_ingest.records.convert.protobuf.protoc import compile_protos
from hudi_ingest.records.convert.protobuf.schema import descriptor_set, known_imports, with_files
from hudi_ingest.records.convert.wire_format import SchemaLookup
from hudi_ingest.records.schema.registered import RegisteredSchema

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
"""The text of a `.proto` file always has other characters."""
_OWN_NAME = "hudi_ingest_registered_schema.proto"


@dataclass(frozen=True)
class CompiledSchemas:
    """Protobuf schemas by id. Picklable, like the lookup."""

    schemas: SchemaLookup

    def descriptor_set(self, schema_id: int) -> bytes | None:
        """Return the schema as a serialized FileDescriptorSet; None when the registry has no such Protobuf schema. Raises
        ValueError, which says why a schema cannot be compiled, and what the lookup raises."""
        schema = self.schemas.schema(schema_id)
        return None if schema is None else compiled(schema)


@lru_cache(maxsize=256)
def compiled(schema: RegisteredSchema) -> bytes:
    """Return the serialized FileDescriptorSet of a schema and all its imports, the schema last. Raises ValueError."""
    texts: dict[str, str] = {}
    serialized: list[bytes] = []
    for name, text in zip(schema.names, schema.references, strict=True):
        file = _serialized(text)
        if file is None:
            texts[name] = text
        else:
            serialized.append(file)
    own = _serialized(schema.text)
    if own is None:
        texts[_OWN_NAME] = schema.text
    descriptors = b""
    if texts:
        known = known_imports(texts.values(), serialized)
        descriptors = compile_protos([*texts], texts, descriptor_set([*known, *serialized]))
    # A serialized file may import one that is text, or no text may import it, so it is added last.
    return descriptors if own is None else with_files(descriptors, [*serialized, own])


def _serialized(text: str) -> bytes | None:
    return b64decode(text) if _BASE64.fullmatch(text) else None
