"""The server's home, a pipeline by its name, and the settings as its file has them: the values of the server's variables are not for
those who read an answer."""

from __future__ import annotations

import pathlib  # files: pipeline files
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Request

from hudi_ingest.exceptions import NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.file import shown_file
from hudi_ingest.pipeline.folder import find_with_file
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.allowed import Allowed

Value = TypeVar("Value")


def _home(request: Request) -> Home:
    home = request.app.state.home
    assert isinstance(home, Home)
    return home


def _allowed(request: Request) -> Allowed:
    allowed = request.app.state.allowed
    assert isinstance(allowed, Allowed)
    return allowed


HomeOf = Annotated[Home, Depends(_home)]
AllowedOf = Annotated[Allowed, Depends(_allowed)]
Name = Annotated[str, Path(description="The pipeline's name.", examples=["payments"])]


def _found(home: HomeOf, name: Name) -> tuple[Pipeline, pathlib.Path]:
    """Load the pipeline, once for each request. Raises NoSuchPipeline, ConfigError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise NoSuchPipeline(str(home.pipelines), [f"no pipeline is called {quoted(name)}"])
    return find_with_file(home.pipelines, name)


_Found = Annotated[tuple[Pipeline, pathlib.Path], Depends(_found)]


def named_pipeline(found: _Found) -> Pipeline:
    return found[0]


def named_file(found: _Found) -> pathlib.Path:
    return found[1]


Named = Annotated[Pipeline, Depends(named_pipeline)]
NamedFile = Annotated[pathlib.Path, Depends(named_file)]
"""The named pipeline's file."""


def written_sections(path: pathlib.Path, *sections: str) -> list[Mapping[str, Any]]:
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


def written_base_path(pipeline: Pipeline, path: pathlib.Path | None) -> str | None:
    """`table.base_path` of the pipeline of this file; None if that has just gone."""
    if path is None:
        return None
    (table,) = written_sections(path, "table")
    return as_written(table.get("base_path"), pipeline.table.base_path)
