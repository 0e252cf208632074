"""Read one CSV record at a time: slow, exact, and able to say what is wrong.

A value is one record (RFC 4180), with or without a line end. A field is quoted as a whole or not at all; inside quotes,
delimiters and line breaks are text, and a quote is written twice. With an escape character, the character after it is
text everywhere. A field's text means the same for its type as that token in JSON (see `json_exact`): numbers, here also
with a leading + or zeros, `true` and `false`, dates and timestamps in ISO 8601, binary as base64. An unquoted field
written exactly as the null text is null, a quoted one never is; an omitted optional field is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.records.convert.json.exact import token_of, value_reader
from hudi_ingest.records.convert.mismatch import ABSENT, Mismatch, shown

LINE_ENDS = ("\r\n", "\n")


@dataclass(frozen=True)
class CsvOptions:
    """How the records are written."""

    delimiter: str = ","
    """The character between fields."""
    quote: str | None = '"'
    """The character around quoted fields; None when quotes are plain text."""
    escape: str | None = None
    """The character that makes the next one plain text; None when there is none."""
    null: str = ""
    """The text of an unquoted field that means null. It may begin with the escape, like \\N."""
    columns: tuple[str, ...] | None = None
    """Names of a record's fields in order; those that the schema does not declare are ignored. By default the schema's
    columns in order."""
    optional_fields: int = 0
    """Number of fields that a record may omit at its end; they are null then."""

    def __post_init__(self) -> None:
        signs = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        special = {name: sign for name, sign in signs.items() if sign is not None}
        for name, sign in special.items():
            if len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
                raise ValueError(f"{name} must be one ASCII character and no line break, found {sign!r}")
        if len(set(special.values())) < len(special):
            raise ValueError("delimiter, quote and escape must differ")
        escaped = self.escape is not None and self.null.startswith(self.escape) and len(self.null) > 1
        if any(sign in self.null[escaped:] for sign in [*special.values(), "\r", "\n"]):
            raise ValueError(
                f"null must hold no delimiter, quote or line break, and no escape except before its first sign, found {self.null!r}"
            )
        if self.optional_fields < 0:
            raise ValueError(f"optional_fields must be 0 or more, found {self.optional_fields}")

    def names(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the names of a record's fields. Raises ValueError when they do not cover the schema's columns."""
        names = tuple(schema.names) if self.columns is None else self.columns
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"format csv: columns named more than once: {', '.join(repeated)}")
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise ValueError(
                f"format csv: no field of a record is named {', '.join(missing)}; name all fields in `columns`, in the "
                "order in which they stand in a record"
            )
        if self.optional_fields >= max(len(names), 1):
            raise ValueError(
                f"format csv: optional_fields is {self.optional_fields}, but a record has only {len(names)} fields, and the "
                "first cannot be optional"
            )
        return names


class CsvReader:
    """Reads records of one schema. Raises ValueError at construction when a type cannot be read from CSV."""

    def __init__(self, schema: pa.Schema, options: CsvOptions) -> None:
        names = options.names(schema)
        if not names:
            raise ValueError("format csv: at least one column must be declared")
        for field in schema:
            if pa.types.is_nested(field.type):
                raise ValueError(f"format csv: column {field.name}: {field.type} cannot be one field of a CSV record")
        self._count, self._least = len(names), len(names) - options.optional_fields
        self._null = options.null
        self._delimiter = options.delimiter
        self._quote, self._escape = options.quote, options.escape
        self._columns = [(field.name, names.index(field.name), field, value_reader(field)) for field in schema]
        quote, escape = re.escape(options.quote or ""), re.escape(options.escape or "")
        plain = f"[^{re.escape(options.delimiter)}{quote}{escape}\\r\\n]"
        escaped = [f"{escape}."] if escape else []
        self._unquoted = _run_of(plain, escaped)
        # Without a quote sign no field begins with one, and this pattern is never used.
        self._quoted = _run_of(f"[^{quote}{escape}]", [quote * 2, *escaped], quote) if quote else self._unquoted
        self._written = re.compile("|".join([*([quote * 2] if quote else []), *escaped]) or "(?!)", re.DOTALL)

    def read(self, record: bytes) -> dict[str, object]:
        """Return column name -> value as `pyarrow.array` takes it. Raises Mismatch, nothing else."""
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Mismatch("a CSV record in UTF-8", f"bytes that are not UTF-8, at byte {error.start}") from None
        if text.startswith("\ufeff"):
            raise Mismatch("a CSV record", "a byte order mark before the CSV record")
        for end in LINE_ENDS:
            if text.endswith(end):
                text = text[: -len(end)]
                break
        fields = [*self._fields(text)]
        field_count = len(fields)
        if not self._least <= field_count <= self._count:
            allowed = f"{self._least} to {self._count}" if self._least < self._count else f"{self._count}"
            raise Mismatch(f"a CSV record of {allowed} fields", f"{field_count} fields" if text else "an empty value")
        fields += [None] * (self._count - field_count)
        row = {}
        name, place = "", 0
        try:
            for name, place, column, read in self._columns:
                cell = fields[place]
                is_text = pa.types.is_string(column.type)
                row[name] = read(cell if cell is None or is_text else self._token(cell, column))
        except Mismatch as mismatch:
            if place >= field_count:
                mismatch.found = ABSENT
            mismatch.under("." + name)
            raise
        return row

    def _token(self, text: str, column: pa.Field) -> object:
        number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        return token_of(text) if number or pa.types.is_boolean(column.type) else text

    def _fields(self, text: str) -> Iterator[str | None]:
        """Yield the fields' texts, None for null. Raises Mismatch."""
        at = 0
        while True:
            if self._quote is not None and text.startswith(self._quote, at):
                match = self._quoted.match(text, at)
                if match is None:
                    raise Mismatch("a CSV record", f"a quote that is not closed, at character {at}")
                yield self._unescaped(match[1], quoted=True)
            else:
                match = self._unquoted.match(text, at)
                assert match is not None  # the pattern also matches the empty string
                yield None if match[0] == self._null else self._unescaped(match[0], quoted=False)
            at = match.end()
            if at == len(text):
                return
            if text[at] != self._delimiter:
                obstacle = "a line break" if text[at] in "\r\n" else shown(text[at])
                raise Mismatch("a delimiter or the end of the CSV record", f"{obstacle} at character {at}")
            at += 1

    def _unescaped(self, text: str, quoted: bool) -> str:
        if self._escape is not None and self._escape in text:
            return self._written.sub(lambda match: match[0][1:], text)
        return text.replace(self._quote * 2, self._quote) if quoted and self._quote is not None else text


def _run_of(plain: str, alternatives: list[str], around: str = "") -> re.Pattern[str]:
    """Match any number of plain characters and alternatives, in group 1. Unrolled, so that matching takes linear time."""
    more = f"(?:(?:{'|'.join(alternatives)}){plain}*)*" if alternatives else ""
    return re.compile(f"{around}({plain}*{more}){around}", re.DOTALL)
