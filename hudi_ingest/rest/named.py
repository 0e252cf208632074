"""What most routes take: the server's home, and a pipeline by its name."""

from __future__ import annotations

import pathlib  # files: pipeline files
import re
from typing import Annotated

from fastapi import Depends, Path, Request

from hudi_ingest.exceptions import NoSuchPipeline
from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.folder import find_pipeline, load_folder
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.allowed import Allowed


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


def named_pipeline(home: HomeOf, name: Name) -> Pipeline:
    """Load the pipeline. Raises NoSuchPipeline, ConfigError."""
    # `find_pipeline` takes paths, too.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise NoSuchPipeline(str(home.pipelines), [f"no pipeline is called {quoted(name)}"])
    return find_pipeline(home.pipelines, name)


def file_of(home: Home, pipeline: Pipeline) -> pathlib.Path | None:
    """The pipeline's file; None if it has just gone. Raises ConfigError if the folder cannot be read."""
    return load_folder(home.pipelines, only=pipeline.name).paths.get(pipeline.name)


Named = Annotated[Pipeline, Depends(named_pipeline)]
