"""Settings as a pipeline's file has them: the values of the server's variables are nobody's business who reads an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from hudi_ingest.pipeline.file import shown_file
from hudi_ingest.pipeline.pipeline import Pipeline

Value = TypeVar("Value")


def written_sections(path: Path, *sections: str) -> list[Mapping[str, Any]]:
    """What the file itself says in these sections; nothing if it was deleted a moment ago."""
    try:
        settings = shown_file(path.read_text(errors="replace")).settings
    except OSError:
        settings = {}
    found = (settings.get(name) for name in sections)
    return [section if isinstance(section, Mapping) else {} for section in found]


def as_written(written: Any, value: Value) -> Value:
    """The file's own text where it has references, else the value."""
    return written if "${" in str(written) else value


def written_base_path(pipeline: Pipeline, path: Path | None) -> str | None:
    """`table.base_path` of the pipeline of this file; None if that has just gone."""
    if path is None:
        return None
    (table,) = written_sections(path, "table")
    return as_written(table.get("base_path"), pipeline.table.base_path)
