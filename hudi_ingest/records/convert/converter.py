"""The interface of converters: one for each format and declared schema, it decodes Kafka values to Arrow rows, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True)
class Rejected:
    """One value that is not a row of the declared schema, and the first thing wrong with it."""

    index: int
    """Its index in the decoded batch."""
    field: str
    """Path such as `customer.addresses[2].zip`; "" when the record as a whole is wrong."""
    expected: str
    found: str
    """At most 80 characters, printable, encodable as UTF-8."""


@dataclass(frozen=True)
class Decoded:
    """The outcome of a batch. Every input index is either a row or rejected, and rows keep the input's order."""

    rows: pa.RecordBatch
    """Exactly the good records, with exactly the declared schema."""
    kept: pa.Array | None
    """int64 input indexes of the rows, ascending; None when every value became a row."""
    rejected: tuple[Rejected, ...]
    """Ascending by index."""


@runtime_checkable
class Converter(Protocol):
    """Picklable, without state between calls: a value's outcome does not depend on the batch that it comes in.

    It does not know whether the bytes it decodes are the values or the keys of records; it has the schema of the columns
    that they become.
    """

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which has no nulls: the caller removes tombstones first. Bad content never raises."""


@runtime_checkable
class NamesFields(Protocol):
    """A converter of records whose fields have names."""

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        """The names of the fields at the top of these records, or in the object that is their field `within`. Raises what
        `decode` raises; bad records have no fields."""


Options = Mapping[str, Any]
"""A pipeline's options for its format, with files read and schemas fetched: option -> value."""
Factory = Callable[[pa.Schema, Options], Converter]
"""Creates a format's converter to rows of a schema. Raises ValueError for types and options that it does not support."""
