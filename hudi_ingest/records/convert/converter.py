"""The interface of converters: one for each format and declared schema, it decodes Kafka values to Arrow rows, batch by batch.

A value that is not a row is Rejected, with the reason as short text that is safe to print.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


@dataclass(frozen=True)
class Rejected:
    """One value that is not a row of the declared schema, and the first thing wrong with it.

    >>> Rejected(index=3, field="customer.age", expected="int", found='"old"').field
    'customer.age'
    """

    index: int
    """Its index in the decoded batch."""
    field: str
    """Path such as `customer.addresses[2].zip`; "" when the record as a whole is wrong."""
    expected: str
    """The type or form that the schema asks for, in a few words."""
    found: str
    """At most 80 characters, printable, encodable as UTF-8."""
    control: str = ""
    """One of `model.counts.CONTROL` if nothing is wrong with it: it is about the source's log and no row; "" for a bad one."""
    rule: str = ""
    """The expectation that it violates, if that is what is wrong."""


@dataclass(frozen=True)
class Decoded:
    """The outcome of a batch. Every input index is either a row or rejected, and rows keep the input's order.

    >>> rows = pa.record_batch({"id": ["a", "c"]})
    >>> bad = Rejected(index=1, field="", expected="UTF-8 text", found="bytes that are no text")
    >>> Decoded(rows, kept=pa.array([0, 2]), rejected=(bad,)).rows.num_rows
    2
    """

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
    that they become. A pipeline names it by `source.format: package.module:Class`, which is called with the `pyarrow.Schema` of
    the declared columns and the mapping `source.format_options`, and may raise ValueError for those that it does not support.

    >>> class Hex:
    ...     def __init__(self, schema, options):
    ...         self.schema = schema
    ...     def decode(self, values):
    ...         texts = pa.array([value.hex() for value in values.to_pylist()], pa.string())
    ...         return Decoded(pa.RecordBatch.from_arrays([texts], schema=self.schema), None, ())
    >>> converter = Hex(pa.schema([pa.field("payload", pa.string())]), {})
    >>> isinstance(converter, Converter)
    True
    >>> converter.decode(pa.array([b"\\x01\\xff"], pa.binary())).rows["payload"].to_pylist()
    ['01ff']
    """

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode a batch of any length.

        `values`: without nulls, because the caller removes tombstones first. Bad content never raises: it is rejected. An error that
        is raised fails the transaction.
        """


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


FOUND_CHARACTERS = 80
ABSENT = "no such field"


class Mismatch(Exception):
    """A value does not match the declared schema. The field's path grows as the exception passes the enclosing readers."""

    def __init__(self, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        self._path: list[str] = []
        super().__init__(expected, found)

    def under(self, part: str) -> None:
        self._path.append(part)

    @property
    def at_the_value_itself(self) -> bool:
        return not self._path

    @property
    def field(self) -> str:
        return "".join(reversed(self._path)).removeprefix(".")

    def rejected(self, index: int) -> Rejected:
        """Reject the value at this index of its batch."""
        return Rejected(index, self.field, self.expected, self.found)


def read_items(values: Iterable[Any], read: Callable[[Any], Any]) -> list[Any]:
    """Read the items of a list. Raises the Mismatch of the first that does not match, with its index in the path."""
    items: list[Any] = []
    try:
        for value in values:
            items.append(read(value))  # one by one: the length is the index of the item that fails
    except Mismatch as mismatch:
        mismatch.under(f"[{len(items)}]")
        raise
    return items


class Bare(str):
    """Text that messages show without quotes, like a number's."""

    __slots__ = ()


def shown(value: object) -> str:
    """Format a parsed JSON value for an error message: printable, at most FOUND_CHARACTERS characters."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, Bare):
        return shortened(str(value))
    if isinstance(value, str):
        # Cut before quoting: do not escape megabytes to show 80 characters.
        return shortened(json.dumps(value[: FOUND_CHARACTERS + 1], ensure_ascii=False))
    return json.dumps(value)


def printable(text: str) -> str:
    """Escape characters that a terminal or a log would obey instead of showing (control characters, writing direction marks),
    and lone surrogates, which cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
        for char in text
    )


def shortened(text: str, limit: int = FOUND_CHARACTERS) -> str:
    """Make text from a record printable, and cut it to `limit` characters."""
    safe = printable(text[: limit + 1])
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
