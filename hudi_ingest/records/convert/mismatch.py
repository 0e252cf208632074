"""Why a value is not a row of the declared schema, as short text that is safe to print."""

from __future__ import annotations

import json

from hudi_ingest.records.convert.converter import Rejected

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
