"""The server's home, a pipeline by its name, the settings as its file has them (the values of the server's variables are not for
those who read an answer), and work of the pipeline that needs Spark."""

from __future__ import annotations

import pathlib  # files: pipeline files
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Request

from hudi_ingest.exceptions import NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.file import shown_file
from hudi_ingest.pipeline.folder import find_pipeline, find_with_file
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.access import Allowed
from hudi_ingest.rest.problems import Refused

Value = TypeVar("Value")
_running_spark = threading.Lock()


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
    """Return these sections as the file itself has them, empty if it was deleted a moment ago."""
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


def in_spark_process(work: Callable[[Pipeline, Home], Value], pipeline: Pipeline, home: Home) -> Value:
    """Return `work(pipeline, home)`, which runs in a process of its own, so that Spark's JVM ends with it.

    `work` and its result can be pickled: a function of a module, or a `partial` of one. Raises its exceptions, and Refused (503)
    while another runs: each may start a Spark driver, which takes a gigabyte.
    """
    if not _running_spark.acquire(blocking=False):
        detail = "Another operation that needs Spark is running; this server runs one at a time."
        raise Refused(503, "Try again", detail)
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(_run, work, pipeline.name, home).result()
    finally:
        _running_spark.release()


def _run(work: Callable[[Pipeline, Home], Value], name: str, home: Home) -> Value:
    # By name, so that no secret of the pipeline is pickled.
    return work(find_pipeline(home.pipelines, name), home)
