"""Converters that are not part of this package: their outcomes are checked before they are believed.

A package brings converters by entry points of the group `hudi_ingest.converters`. An import path is
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
            made = factory(schema, self._options)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"format {quoted(format)}: it was called with the schema and the options, {why}"
            ) from error
        if not isinstance(made, Converter):
            raise ValueError(
                f"format {quoted(format)} made {type(made).__name__}, which is no converter: it has no method `decode`"
            )
        self._converter = made

    def __reduce__(self) -> tuple[type[ForeignConverter], tuple[str, pa.Schema, Mapping[str, Any]]]:
        return (ForeignConverter, (self._format, self._schema, self._options))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        found = self._converter.decode(values)
        problem = _broken_rule(found, self._schema, len(values))
        if problem:
            raise ValueError(
                f"format {quoted(self._format)}: its converter {problem}; this is a defect of the converter"
            )
        return Decoded(found.rows, found.kept, tuple(map(_printable, found.rejected)))


def _factory(format: str) -> Factory:
    if ":" in format:
        return imported(format, format)
    paths = sorted({each.value for each in entry_points(group=ENTRY_POINTS) if each.name == format})
    if len(paths) == 1:
        return imported(format, paths[0])
    if paths:
        raise ValueError(
            f"format {quoted(format)} is brought by several packages ({', '.join(paths)}); remove one, or write the import "
            "path of the one that is meant"
        )
    raise ValueError(
        f"format {quoted(format)}: no package that brings it (entry point group {ENTRY_POINTS}) is installed here; install "
        "it where the pipeline runs, and on Spark's workers"
    )


def imported(format: str, path: str) -> Factory:
    """The object at an import path. Raises ValueError: code that fails while it is imported is the pipeline's problem."""
    where = f"format {quoted(format)}" if format == path else f"format {quoted(format)}, which is {path}"
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{where}: not an import path; write it like mypackage.module:MyConverter")
    try:
        found = import_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{where}: importing {module} failed, {why}; install its package where the pipeline runs, and on Spark's "
            "workers"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [each for each in dir(found) if not each.startswith("_")]
            raise ValueError(f"{where}: {module} has no {part}{suggestion(part, names)}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(
            f"{where}: {name} is no converter but {describe(found)}; it must be a class or a function that takes the schema "
            "and the options and returns a converter"
        )
    factory: Factory = found
    return factory


def _broken_rule(found: object, schema: pa.Schema, count: int) -> str | None:
    if not isinstance(found, Decoded):
        return f"returned {type(found).__name__} instead of Decoded"
    if not isinstance(found.rows, pa.RecordBatch) or not found.rows.schema.equals(schema):
        return "returned rows that do not have the declared schema"
    try:
        found.rows.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"returned rows that are not valid, {error}"
    for field, column in zip(schema, found.rows.columns, strict=True):
        if column.null_count and not field.nullable:
            return f"returned null in the column {field.name}, which is NOT NULL"
    kept = np.arange(count) if found.kept is None else found.kept.to_numpy(zero_copy_only=False)
    out = np.array([rejected.index for rejected in found.rejected], np.int64)
    if len(kept) != found.rows.num_rows:
        return f"returned {found.rows.num_rows} rows for {len(kept)} values"
    if (np.diff(kept) < 1).any() or (np.diff(out) < 1).any():
        return "returned rows or rejections that are not in the order of the values"
    if not np.array_equal(np.sort(np.concatenate([kept, out])), np.arange(count)):
        return f"returned {len(kept)} rows and {len(out)} rejections for {count} values, or the same value twice"
    return None


def _printable(rejected: Rejected) -> Rejected:
    return replace(rejected, expected=shortened(rejected.expected), found=shortened(rejected.found))
