"""Find a format's converter: built in, from an installed package's entry point, or any class by its import path."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

import pyarrow as pa

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.converter import Converter, Options
from hudi_ingest.records.convert.user_converter import ENTRY_POINTS, ForeignConverter, imported

_BUILT_IN: Mapping[str, str] = {
    "json": "hudi_ingest.records.convert.json.converter:json_converter",
    "avro": "hudi_ingest.records.convert.avro.converter:avro_converter",
    "json_schema": "hudi_ingest.records.convert.json.framed:json_schema_converter",
    "protobuf": "hudi_ingest.records.convert.protobuf.converter:protobuf_converter",
    "csv": "hudi_ingest.records.convert.csv.converter:csv_converter",
    "string": "hudi_ingest.records.convert.plain:string_converter",
    "bytes": "hudi_ingest.records.convert.plain:bytes_converter",
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
