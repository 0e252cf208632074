"""The formats by name: those that are built in, those that other packages bring, and any class by its import path."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

import pyarrow as pa

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.converter import Converter, Options
from hudi_ingest.records.convert.user_converter import ENTRY_POINTS, ForeignConverter, imported

_BUILT_IN: Mapping[str, str] = {
    "json": "hudi_ingest.records.convert.json:json_converter",
    "avro": "hudi_ingest.records.convert.avro:avro_converter",
    "json_schema": "hudi_ingest.records.convert.json_framed:json_schema_converter",
    "protobuf": "hudi_ingest.records.convert.protobuf:protobuf_converter",
    "csv": "hudi_ingest.records.convert.csv:csv_converter",
    "string": "hudi_ingest.records.convert.plain:string_converter",
    "bytes": "hudi_ingest.records.convert.plain:bytes_converter",
}
"""Where the factory of a format is; imported when a pipeline uses it, because some bring large libraries."""


def converter_for(format: str, schema: pa.Schema, options: Options | None = None) -> Converter:
    """The converter of a `source.format` to rows of `schema`.

    Raises ValueError when the format is not known or its code cannot be used, and when a type in the schema or an
    option is not one that the format has.
    """
    if format in _BUILT_IN:
        return imported(format, _BUILT_IN[format])(schema, options or {})
    if ":" not in format and format not in known_formats():
        known = known_formats()
        raise ValueError(
            f"format {quoted(format)} is not known; known are: {', '.join(known)}, or the import path of a converter, "
            f"like mypackage.module:MyConverter{suggestion(format, known)}"
        )
    return ForeignConverter(format, schema, options or {})


def known_formats() -> tuple[str, ...]:
    """The names of all formats: those that are built in, then those of installed packages."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
    return (*_BUILT_IN, *sorted(installed - _BUILT_IN.keys()))
