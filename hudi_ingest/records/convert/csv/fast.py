"""Read a block of CSV records with `pyarrow.csv`, where its result is proved equal to that of the exact path.

Why the rows are the same: only records without line breaks are read here, those with escape characters only if a regular
expression proves that these are in the null text, and those with quotes only if one proves them well-formed. So each
record is one line with quotes only around whole fields, which RFC 4180 and pyarrow split alike, and splitting into texts is all that pyarrow does. A column is converted only if
all its texts match a grammar for its type. The grammar is a subset of what the exact path accepts, and has only texts
that mean the same to Arrow's casts.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from hudi_ingest.records.convert.csv.exact import CsvOptions
from hudi_ingest.records.convert.fast_path import Doubt, Proved
from hudi_ingest.records.convert.proved_columns import (
    Finish,
    binary_of,
    dates_of,
    finite,
    known_timestamps,
    of_field,
    within_precision,
)

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
