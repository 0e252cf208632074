"""The formats: how a converter is found, those of whole values (`string`, `bytes`), and converters from outside this package.

A package provides converters as entry points of the group `hudi_ingest.converters`; any class can be named by its import path,
`package.module:Name`. Either way the object is called with the schema and the options and returns a Converter, and its outcomes
are checked before they are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import describe, quoted, suggestion
from hudi_ingest.records.convert.converter import Converter, Decoded, Factory, Options, Rejected, shortened
from hudi_ingest.records.convert.values import decoded, refuse_options, require_values, value_bytes

_BUILT_IN: Mapping[str, str] = {
    "json": "hudi_ingest.records.convert.json.converter:json_converter",
    "avro": "hudi_ingest.records.convert.avro.converter:avro_converter",
    "json_schema": "hudi_ingest.records.convert.json.framed:json_schema_converter",
    "protobuf": "hudi_ingest.records.convert.protobuf.converter:protobuf_converter",
    "csv": "hudi_ingest.records.convert.csv:csv_converter",
    "string": "hudi_ingest.records.convert.formats:string_converter",
    "bytes": "hudi_ingest.records.convert.formats:bytes_converter",
}
"""Import path of each format's factory; imported only if a pipeline uses it, because some load large libraries."""


def converter_for(format: str, schema: pa.Schema, options: Options | None = None) -> Converter:
    """Create the converter of a `source.format` to rows of `schema`.

    Raises ValueError when the format is unknown or its code cannot be used, and when it does not support a type of the
    schema or an option.
    """
    if is_built_in(format):
        return imported(format, _BUILT_IN[format])(schema, options or {})
    if ":" not in format and format not in known_formats():
        known = known_formats()
        raise ValueError(
            f"format {quoted(format)} is not known; known are: {', '.join(known)}, or the import path of a converter, "
            f"like mypackage.module:MyConverter{suggestion(format, known)}"
        )
    return ForeignConverter(format, schema, options or {})


def is_built_in(format: str) -> bool:
    """Whether the format is one of ours, so that making its converter runs no code of others."""
    return format in _BUILT_IN


def known_formats() -> tuple[str, ...]:
    """Return the names of all formats: the built-in ones, then those of installed packages."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
    return (*_BUILT_IN, *sorted(installed - _BUILT_IN.keys()))


ENTRY_POINTS = "hudi_ingest.converters"


class ForeignConverter:
    """A converter found by entry point or import path. Raises ValueError at construction when there is none.

    `decode` raises ValueError when the converter breaks the rules of `Converter`: rows and rejections must account for
    every value, and the rows must have the declared schema.
    """

    def __init__(self, format: str, schema: pa.Schema, options: Options) -> None:
        self._format = format
        self._schema = schema
        self._options = dict(options)
        factory = _factory(format)
        try:
            converter = factory(schema, self._options)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"format {quoted(format)}: it was called with the schema and the options, {why}"
            ) from error
        if not isinstance(converter, Converter):
            raise ValueError(
                f"format {quoted(format)} returned {type(converter).__name__}, which is not a converter: it has no method "
                "`decode`"
            )
        self._converter = converter

    def __reduce__(self) -> tuple[type[ForeignConverter], tuple[str, pa.Schema, Mapping[str, Any]]]:
        return (ForeignConverter, (self._format, self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        decoded = self._converter.decode(values)
        problem = _broken_rule(decoded, self._schema, len(values))
        if problem:
            raise ValueError(
                f"format {quoted(self._format)}: its converter {problem}; this is a defect of the converter"
            )
        return Decoded(decoded.rows, decoded.kept, tuple(map(_printable, decoded.rejected)))


def _factory(format: str) -> Factory:
    if ":" in format:
        return imported(format, format)
    paths = sorted(
        {entry_point.value for entry_point in entry_points(group=ENTRY_POINTS) if entry_point.name == format}
    )
    if len(paths) == 1:
        return imported(format, paths[0])
    if paths:
        raise ValueError(
            f"several packages provide format {quoted(format)} ({', '.join(paths)}); remove one, or write the import path of "
            "the one you mean"
        )
    raise ValueError(
        f"format {quoted(format)}: no package that provides it (entry point group {ENTRY_POINTS}) is installed here; install "
        "it where the pipeline runs, and on Spark's workers"
    )


def imported(format: str, path: str) -> Factory:
    """Return the object at an import path. Raises ValueError, also when the code fails on import: that is the pipeline's
    problem."""
    where = f"format {quoted(format)}" if format == path else f"format {quoted(format)}, which is {path}"
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{where}: not an import path; write it like mypackage.module:MyConverter")
    try:
        target = import_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{where}: importing {module} failed, {why}; install its package where the pipeline runs, and on Spark's "
            "workers"
        ) from error
    for part in name.split("."):
        if not hasattr(target, part):
            names = [attribute for attribute in dir(target) if not attribute.startswith("_")]
            raise ValueError(f"{where}: {module} has no {part}{suggestion(part, names)}")
        target = getattr(target, part)
    if not callable(target):
        raise ValueError(
            f"{where}: {name} is {describe(target)}, not a converter; it must be a class or a function that takes the schema "
            "and the options and returns a converter"
        )
    factory: Factory = target
    return factory


def _broken_rule(decoded: object, schema: pa.Schema, count: int) -> str | None:
    if not isinstance(decoded, Decoded):
        return f"returned {type(decoded).__name__} instead of Decoded"
    if not isinstance(decoded.rows, pa.RecordBatch) or not decoded.rows.schema.equals(schema):
        return "returned rows that do not have the declared schema"
    try:
        decoded.rows.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"returned rows that are not valid, {error}"
    for field, column in zip(schema, decoded.rows.columns, strict=True):
        if column.null_count and not field.nullable:
            return f"returned null in the column {field.name}, which is NOT NULL"
    places = np.arange(count) if decoded.kept is None else decoded.kept.to_numpy(zero_copy_only=False)
    out = np.array([rejected.index for rejected in decoded.rejected], np.int64)
    if len(places) != decoded.rows.num_rows:
        return f"returned {decoded.rows.num_rows} rows for {len(places)} values"
    if (np.diff(places) < 1).any() or (np.diff(out) < 1).any():
        return "returned rows or rejections that are not in the order of the values"
    if not np.array_equal(np.sort(np.concatenate([places, out])), np.arange(count)):
        return f"returned {len(places)} rows and {len(out)} rejections for {count} values, or the same value twice"
    return None


def _printable(rejected: Rejected) -> Rejected:
    return replace(rejected, expected=shortened(rejected.expected), found=shortened(rejected.found))


def string_converter(schema: pa.Schema, options: Options) -> StringConverter:
    """Create the converter. Raises ValueError unless the schema is one string column, of any name, and there are no options."""
    refuse_options("string", options)
    return StringConverter(schema)


def bytes_converter(schema: pa.Schema, options: Options) -> BytesConverter:
    """Create the converter. Raises ValueError unless the schema is one binary or number column, of any name, and there are no
    options."""
    refuse_options("bytes", options)
    return BytesConverter(schema)


class StringConverter:
    """Decodes each value as UTF-8 text; other bytes are rejected. An empty value is an empty string."""

    def __init__(self, schema: pa.Schema) -> None:
        _require_one_column("string", schema, "string", pa.types.is_string)
        self._schema = schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        rejected: list[Rejected] = []
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:
            rejected = [fault for index, value in enumerate(values.to_pylist()) for fault in self._faults(index, value)]
            good = np.ones(len(values), np.bool_)
            good[[fault.index for fault in rejected]] = False
            text = values.filter(pa.array(good)).cast(pa.string())
        return decoded(pa.RecordBatch.from_arrays([text], schema=self._schema), len(values), rejected)

    def _faults(self, index: int, value: bytes) -> list[Rejected]:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"bytes that are not UTF-8, at byte {error.start}"
            return [Rejected(index, self._schema.names[0], "string in UTF-8", found)]
        return []


_NUMBERS = {pa.int32(): ">i4", pa.int64(): ">i8", pa.float32(): ">f4", pa.float64(): ">f8"}


class BytesConverter:
    """Keeps each value as it is, or reads it as the big-endian number that Kafka's own serializers write."""

    def __init__(self, schema: pa.Schema) -> None:
        _require_one_column(
            "bytes",
            schema,
            "binary, int, long, float or double",
            lambda type_: type_ == pa.binary() or type_ in _NUMBERS,
        )
        self._schema = schema
        self._number = _NUMBERS.get(schema.field(0).type)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        if self._number is None:
            return Decoded(pa.RecordBatch.from_arrays([values], schema=self._schema), None, ())
        number = np.dtype(self._number)
        lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
        good = lengths == number.itemsize
        expected = f"{number.itemsize} bytes, a big-endian {self._schema.field(0).type}"
        rejected = [
            Rejected(index, self._schema.names[0], expected, f"{lengths[index]} bytes")
            for index in np.flatnonzero(~good).tolist()
        ]
        data, starts = value_bytes(values)
        places = starts[:-1][good][:, None] + np.arange(number.itemsize)
        numbers = data[places].reshape(-1).view(number)
        column = pa.array(numbers.astype(number.newbyteorder("=")), self._schema.field(0).type)
        return decoded(pa.RecordBatch.from_arrays([column], schema=self._schema), len(values), rejected)


def _require_one_column(format: str, schema: pa.Schema, required: str, fits: Callable[[pa.DataType], bool]) -> None:
    if len(schema) != 1 or not fits(schema.field(0).type):
        columns = ", ".join(f"{column.name} {column.type}" for column in schema) or "none"
        raise ValueError(
            f"format {format}: the schema must be one column of type {required}, of any name; found {columns}"
        )
