"""What a converter is: it knows one format and one declared schema, and decodes Kafka values to Arrow rows, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


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


@runtime_checkable
class Converter(Protocol):
    """Picklable, without state between calls: the outcome for a value does not depend on the batch it came in.

    It does not know whether it is given the values or the keys of records: whatever bytes a batch holds, with the schema
    of the columns that they become.
    """

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values` holds no nulls: the caller takes tombstones out before. Bad content never raises."""


Options = Mapping[str, Any]
"""What a pipeline says about its format beyond the name, with files read and schemas fetched: option -> value."""
Factory = Callable[[pa.Schema, Options], Converter]
"""Makes the converter of a format to rows of a schema. Raises ValueError for types and options that cannot be."""
