"""Why a value is not a row of the declared schema, in words that are short and safe to print."""

from __future__ import annotations

import json

from hudi_ingest.records.convert.converter import Rejected

FOUND_CHARACTERS = 80


class Mismatch(Exception):
    """A value is not what the schema declares. `path` grows while the exception passes the enclosing readers."""

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
        """The value at this place of its batch, rejected for this reason."""
        return Rejected(index, self.field, self.expected, self.found)


class Bare(str):
    """A text that messages show without quotes, like that of a number."""

    __slots__ = ()


def shown(value: object) -> str:
    """A parsed JSON value for an error message: printable, at most FOUND_CHARACTERS characters."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, Bare):
        return shortened(str(value))
    if isinstance(value, str):
        # Cut before quoting: a string of megabytes must not be escaped as a whole for 80 characters of it.
        return shortened(json.dumps(value[: FOUND_CHARACTERS + 1], ensure_ascii=False))
    return json.dumps(value)


def printable(text: str) -> str:
    """Escapes what a terminal or a log would obey instead of showing it (control characters, marks of writing direction), and
    lone surrogates, which cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
        for char in text
    )


def shortened(text: str, limit: int = FOUND_CHARACTERS) -> str:
    """Of a text that may hold a record's: printable, at most `limit` characters."""
    safe = printable(text[: limit + 1])
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
