"""Kafka values -> Arrow rows. A converter knows one format and one declared schema, and decodes batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from hudi_ingest.convert.avro import AvroValuesOf


@dataclass(frozen=True)
class Rejected:
    """One value that is not a row of the declared schema: the first thing wrong with it."""

    index: int
    """Place in the batch that was decoded."""
    field: str
    """Path such as `customer.addresses[2].zip`; "" when the record as a whole is wrong."""
    expected: str
    found: str
    """At most 80 characters, printable, encodable as UTF-8."""


@dataclass(frozen=True)
class Decoded:
    """What became of a batch. Every input index is either a row or rejected, and rows keep the input's order."""

    rows: pa.RecordBatch
    """Exactly the good records, with exactly the declared schema."""
    kept: pa.Array | None
    """int64 input indexes of the rows, ascending; None when every value became a row."""
    rejected: tuple[Rejected, ...]
    """Ascending by index."""


class Converter(Protocol):
    """Picklable, without state between calls: the outcome for a value does not depend on the batch it came in."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values` holds no nulls: the caller takes tombstones out before. Bad content never raises."""


KNOWN_FORMATS = ("json", "avro")


def converter_for(format: str, schema: pa.Schema, avro: AvroValuesOf | None = None) -> Converter:
    """The converter of a `source.format`; `avro` says how Avro values name their schemas, and is needed for them.

    Raises ValueError when the format or a type in the schema is not supported.
    """
    # Imported here because the converters' modules import this one for Decoded and Rejected.
    if format == "json":
        from hudi_ingest.convert.json import JsonConverter

        return JsonConverter(schema)
    if format == "avro":
        if avro is None:
            raise ValueError("format avro needs to know how values name their schemas")
        from hudi_ingest.convert.avro import AvroConverter

        return AvroConverter(schema, avro.writers, avro.defaults)
    raise ValueError(f"format {format!r} is not known; known are: {', '.join(KNOWN_FORMATS)}")
