"""CSV records -> rows: by `pyarrow.csv` where its result is proved right, otherwise one by one.

CsvReader defines what is accepted: it is slow, exact, and able to say what is wrong. A value is one record (RFC 4180), with or
without a line end. A field is quoted as a whole or not at all; inside quotes, delimiters and line breaks are text, and a quote is
written twice. With an escape character, the character after it is text everywhere. A field's text means the same for its type as
that token in JSON (see `json.exact`): numbers, here also with a leading + or zeros, `true` and `false`, dates and timestamps in
ISO 8601, binary as base64. An unquoted field written exactly as the null text is null, a quoted one never is; an omitted optional
field is null.

Why the rows of FastPath are the same: it reads only records without line breaks, those with escape characters only if a regular
expression proves that these are in the null text, and those with quotes only if one proves them well-formed. So each record is
one line with quotes only around whole fields, which RFC 4180 and pyarrow split alike, and splitting into texts is all that
pyarrow does. A column is converted only if all its texts match a grammar for its type. The grammar is a subset of what the exact
path accepts, and has only texts that mean the same to Arrow's casts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hudi_ingest.records.convert.converter import ABSENT, Decoded, Mismatch, Options, shown
from hudi_ingest.records.convert.fast_path import (
    Doubt,
    Finish,
    Proved,
    binary_of,
    dates_of,
    decode_in_pieces,
    finite,
    known_timestamps,
    of_field,
    record_by_record,
    within_precision,
)
from hudi_ingest.records.convert.json.exact import token_of, value_reader
from hudi_ingest.records.convert.values import read_options, require_values

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


PARSE_BYTES = 512 * 1024 * 1024
"""Maximum size of the values parsed as one block; pyarrow keeps the size in an int32."""

_LINE_END = r"\r?\n\z"
_BYTE_ORDER_MARK = "\ufeff"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_INTEGER = r"-?[0-9]{1,20}"
_FLOAT = rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,4}})?"
_DECIMAL = r"[+-]?[0-9]{1,38}(?:\.[0-9]{1,38})?"


class FastPath:
    """Reads a block of records in one `pyarrow.csv` parse."""

    def __init__(self, schema: pa.Schema, options: CsvOptions) -> None:
        self._schema = schema
        self._options = options
        names = options.names(schema)
        self._names = [f"f{place}" for place in range(len(names))]
        self._columns = [self._names[names.index(name)] for name in schema.names]
        self._finish = [of_field(field, _finish_type(field.type)) for field in schema]
        self._well_formed = _well_formed(options)
        self._unescaped = _unescaped(options)
        self._padding = pa.array(
            [(options.delimiter + options.null) * count for count in range(options.optional_fields + 1)]
        )
        self._parse = pyarrow.csv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            double_quote=True,
            escape_char=False,
            newlines_in_values=False,
            ignore_empty_lines=False,
        )
        self._convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=self._columns,
            check_utf8=False,
        )

    def read(self, values: pa.BinaryArray) -> Proved:
        """Return the proved rows, and which records they are. Raises as `fast_path.Fast` does."""
        text = values.cast(pa.string())  # no copy: verifies that each value is UTF-8, and raises ArrowInvalid if not
        if pc.any(pc.ends_with(text, "\n")).as_py():
            text = pc.replace_substring_regex(text, _LINE_END, "")
        proved = self._simple(text)
        if not proved.all():
            text = text.filter(pa.array(proved))
        if self._options.optional_fields:
            text, whole = self._padded(text)
            proved[np.flatnonzero(proved)[~whole]] = False
        if not len(text):
            raise Doubt("no record of one plain line")
        seams = pa.array([0, len(text)], pa.int32())
        block = pc.binary_join(pa.ListArray.from_arrays(seams, text), "\n")[0].as_buffer()
        if block.size > PARSE_BYTES:
            raise Doubt("a block that is too large for the parser")
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=block.size + 2, column_names=self._names
            ),
            parse_options=self._parse,
            convert_options=self._convert,
        )
        if table.num_rows != len(text):
            raise Doubt("not one row per record")
        columns = [
            finish(table[name].combine_chunks() if table[name].num_chunks != 1 else table[name].chunk(0))
            for finish, name in zip(self._finish, self._columns, strict=True)
        ]
        return Proved(pa.RecordBatch.from_arrays(columns, schema=self._schema), proved)

    def _padded(self, text: pa.StringArray) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
        """Return the records that can be padded to all fields with nulls, and which ones they are.

        Excludes records with quotes that seem to lack a field: pyarrow may treat an empty field after a quoted one as quoted.
        """
        missing = len(self._names) - 1 - pc.count_substring(text, self._options.delimiter).to_numpy().astype(np.int64)
        plain = np.ones(len(text), np.bool_)
        if self._options.quote is not None:
            plain = ~_mask(pc.match_substring(text, self._options.quote))
        whole = np.where(plain, (missing >= 0) & (missing <= self._options.optional_fields), missing <= 0)
        missing = np.where(plain, missing, 0)[whole]
        text = text.filter(pa.array(whole))
        return pc.binary_join_element_wise(text, self._padding.take(pa.array(missing)), ""), whole

    def _simple(self, text: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Return which records are one line without escapes and, if they have quotes, well-formed."""
        options = self._options
        # As one text: hardly any batch has these characters, and one search is faster than one per record.
        block = _bytes(text)
        doubtful = [
            sign for sign in ("\n", "\r", "\0", _BYTE_ORDER_MARK, options.escape) if sign and sign.encode() in block
        ]
        simple = np.ones(len(text), np.bool_)
        for sign in doubtful:
            plain = ~_mask(pc.match_substring(text, sign))
            if sign == options.escape and sign in options.null:
                plain |= _mask(pc.match_substring_regex(text, self._unescaped))
            simple &= plain
        if options.quote is not None and options.quote.encode() in block:
            plain = ~_mask(pc.match_substring(text, options.quote))
            simple &= plain | _mask(pc.match_substring_regex(text, self._well_formed))
            if options.null:
                simple &= plain | ~_mask(pc.match_substring(text, options.null))
        # Some releases of pyarrow do not count an empty line as a record.
        return simple & _mask(pc.greater(pc.binary_length(text), 0))


def _bytes(text: pa.StringArray) -> bytes:
    offsets = np.frombuffer(text.buffers()[1], np.int32)
    data = text.buffers()[2]
    begin, end = int(offsets[text.offset]), int(offsets[text.offset + len(text)])
    return b"" if data is None else data.slice(begin, end - begin).to_pybytes()


def _mask(matches: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
    return mask


def _well_formed(options: CsvOptions) -> str:
    """Return the RE2 pattern of a line whose fields are each quoted as a whole, or unquoted and not empty.

    pyarrow may treat an empty field after a quoted one as quoted, so that it would never be null.
    """
    delimiter, quote = re.escape(options.delimiter), re.escape(options.quote or "")
    field = f"(?:[^{delimiter}{quote}]+|{quote}(?:[^{quote}]|{quote}{quote})*{quote})"
    return f"^{field}(?:{delimiter}{field})*$"


def _unescaped(options: CsvOptions) -> str:
    """Return the RE2 pattern of a line without quotes whose only escapes are in fields that are the null text."""
    delimiter = re.escape(options.delimiter)
    field = f"(?:[^{delimiter}{re.escape((options.quote or '') + (options.escape or ''))}]*|{re.escape(options.null)})"
    return f"^{field}(?:{delimiter}{field})*$"


def _finish_type(type_: pa.DataType) -> Finish:
    if pa.types.is_boolean(type_):
        return lambda texts: pc.equal(_all_match(texts, "true|false"), "true")
    if pa.types.is_integer(type_):
        return lambda texts: _all_match(texts, _INTEGER).cast(type_)
    if pa.types.is_floating(type_):
        return lambda texts: finite(_all_match(texts, _FLOAT).cast(type_))
    if pa.types.is_decimal(type_):
        return lambda texts: within_precision(_all_match(texts, _DECIMAL).cast(type_))
    if pa.types.is_timestamp(type_):
        return lambda texts: _timestamps(texts).cast(type_)
    if pa.types.is_date32(type_):
        return lambda texts: dates_of(_all_match(texts, _DATE))
    if pa.types.is_binary(type_):
        return binary_of
    return lambda texts: texts


def _all_match(texts: pa.Array, pattern: str) -> pa.Array:
    if pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py() is False:
        raise Doubt("a text that does not match the grammar of its type")
    return texts


def _timestamps(texts: pa.Array) -> pa.Array:
    """Parse timestamps in UTC, without a zone. Batches with zones other than Z are left to the exact path."""
    _all_match(texts, rf"{_DATE}(?:[ T]{_TIME}Z?)?")
    if pc.any(pc.ends_with(texts, "Z")).as_py():
        texts = pc.replace_substring_regex(texts, r"Z\z", "")
    return known_timestamps(texts.cast(pa.timestamp("us")))


def csv_converter(schema: pa.Schema, options: Options) -> CsvConverter:
    """Create the converter. Raises ValueError when a column's type cannot be read from CSV, or an option is wrong."""
    return CsvConverter(schema, read_options(CsvOptions, "csv", options))


class CsvConverter:
    """Decodes CSV records to rows of `schema`. Raises ValueError at construction as `csv_converter` does."""

    def __init__(self, schema: pa.Schema, options: CsvOptions) -> None:
        self._schema, self._options = schema, options
        self._exact = record_by_record(schema, CsvReader(schema, options).read)
        self._fast = FastPath(schema, options).read

    def __reduce__(self) -> tuple[type[CsvConverter], tuple[pa.Schema, CsvOptions]]:
        return (CsvConverter, (self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        return decode_in_pieces(self._schema, values, self._fast, self._exact)
