"""Converters from outside this package. Their outcomes are checked before they are trusted.

A package provides converters as entry points of the group `hudi_ingest.converters`. An import path is
`package.module:Name`. Either way the object is called with the schema and the options and returns a Converter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pyarrow as pa

from hudi_ingest.exceptions.problems import describe, quoted, suggestion
from hudi_ingest.records.convert.converter import Converter, Decoded, Factory, Options, Rejected
from hudi_ingest.records.convert.mismatch import shortened
from hudi_ingest.records.convert.values import require_values

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
