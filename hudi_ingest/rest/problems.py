"""Errors as answers: one shape, RFC 9457's `application/problem+json`, and the HTTP status of each of our errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from hudi_ingest.exceptions import (
    BadRecord,
    ConfigError,
    EnvironmentProblem,
    FileChanged,
    FileExists,
    FileNotWritable,
    IngestError,
    NoSuchOffset,
    NoSuchPipeline,
    NoSuchSavepoint,
    NothingToDo,
    RangeRefused,
    Transient,
)
from hudi_ingest.exceptions.problems import Place, dotted
from hudi_ingest.operations.requests.asked_ranges import EmptyRange, WrongSelection
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import setting_at

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
"""Seconds after which a client may repeat what failed for the moment."""
_INVALID = "The request is not valid"
_logger = logging.getLogger(__name__)


class PlacedProblem(BaseModel):
    """One thing that is wrong, and what to do about it."""

    text: str = Field(description="What is wrong, with the values that are allowed or the next step.")
    place: str | None = Field(default=None, description="Key in the pipeline file or the body, such as `table.schema`.")
    line: int | None = Field(default=None, description="Line of that key in the pipeline file.")
    allowed: str | None = Field(default=None, description="What the key may hold.")
    help: str | None = Field(default=None, description="What the key is for.")


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str = Field(default="about:blank", description="`about:blank`: the status says what kind of problem it is.")
    title: str = Field(description="The kind of problem, in a few words.", examples=["No such pipeline"])
    status: int = Field(description="The HTTP status.", examples=[404])
    detail: str = Field(description="What happened, where, why, and what to do next.")
    error: str | None = Field(
        default=None, description="The error's class in hudi-ingest.", examples=["KafkaUnreachable"]
    )
    topic: str | None = Field(default=None, description="The Kafka topic that it is about.")
    partition: int | None = Field(default=None, description="The Kafka partition that it is about.")
    offset: int | None = Field(default=None, description="The Kafka offset that it is about.")
    problems: list[PlacedProblem] = Field(default=[], description="Everything that is wrong, one by one.")


class Refused(Exception):
    """Ends a request with this problem."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        problems: Sequence[PlacedProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(title=title, status=status, detail=detail, problems=list(problems))
        self.headers = dict(headers or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the problem."""
        await _response(self.problem, self.headers)(scope, receive, send)


_STATUSES: tuple[tuple[type[IngestError], int, str], ...] = (
    (NothingToDo, 409, "Nothing to do"),
    (NoSuchPipeline, 404, "No such pipeline"),
    (NoSuchSavepoint, 404, "No such savepoint"),
    (FileExists, 409, "The pipeline exists"),
    (FileChanged, 412, "The pipeline file was changed"),
    (FileNotWritable, 409, "The pipeline file cannot be written"),
    (NoSuchOffset, 422, "No such offset"),
    (RangeRefused, 409, "Refused"),
    (ConfigError, 409, "The pipeline file is broken"),
    (BadRecord, 409, "Bad records"),
    (EnvironmentProblem, 503, "The server lacks something"),
    (Transient, 503, "Try again"),
    (IngestError, 409, "Not possible now"),
)
"""The answers to errors, of which the first class that fits counts. 503: the same request may succeed later; 409: a person has to change something first."""


def problem_of(error: IngestError) -> Problem:
    """The problem that an error of hudi-ingest becomes."""
    status, title = next((status, title) for kind, status, title in _STATUSES if isinstance(error, kind))
    listed = error.problems if isinstance(error, (ConfigError, RangeRefused)) else ()
    return Problem(
        title=title,
        status=status,
        detail=str(error),
        error=type(error).__name__,
        topic=error.topic,
        partition=error.partition,
        offset=error.offset,
        problems=[PlacedProblem(text=text) for text in listed],
    )


def answer_errors(app: FastAPI) -> None:
    """Make every error of the application a problem."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return _response(error.problem, error.headers)

    @app.exception_handler(WrongSelection)
    async def wrong(request: Request, error: WrongSelection) -> JSONResponse:
        if isinstance(error, EmptyRange):
            return _response(Problem(title="The range is empty", status=422, detail=str(error), error="EmptyRange"))
        problems = [PlacedProblem(text=str(error))]
        return _response(Problem(title=_INVALID, status=422, detail=f"body: {error}", problems=problems))

    @app.exception_handler(IngestError)
    async def failed(request: Request, error: IngestError) -> JSONResponse:
        return _response(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [
            PlacedProblem(text=details["msg"].removeprefix("Value error, "), place=_place(details["loc"]))
            for details in error.errors()
        ]
        syntax = any(details["type"] == "json_invalid" for details in error.errors())
        detail = "; ".join(f"{problem.place or 'body'}: {problem.text}" for problem in problems)
        title = "Not JSON" if syntax else _INVALID
        return _response(Problem(title=title, status=400 if syntax else 422, detail=detail, problems=problems))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        detail = f"{request.method} {request.url.path}: {error.detail}. The operations are in /openapi.json."
        problem = Problem(title=str(error.detail), status=error.status_code, detail=detail)
        return _response(problem, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        detail = f"{type(error).__name__}: an error in hudi-ingest; the server's log has it. Please report it."
        return _response(Problem(title="Internal error", status=500, detail=detail))


def _place(location: tuple[str | int, ...]) -> str | None:
    """The dotted place in the body, or the name of a parameter. A syntax error's is its column."""
    names = [part for part in location if part not in ("body", "query", "path", "header")]
    return dotted(tuple(names)) if any(isinstance(name, str) for name in names) else None


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # Nothing that a person has to mend.
    passes = problem.status == 503 and problem.error != EnvironmentProblem.__name__
    retry = {"Retry-After": str(RETRY_SECONDS)} if passes else {}
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, problem.status, {**retry, **(headers or {})}, MEDIA_TYPE)


_PLACED = re.compile(r"(?P<place>[a-z_]+(?:\.[^\s.:\[\]]+|\[\d+\])*): ")


def placed(problems: Iterable[str], lines: Mapping[str, int]) -> list[PlacedProblem]:
    """Give each problem its place. `lines`: the file's lines by dotted place."""
    return [_placed(problem, lines) for problem in problems]


def _placed(problem: str, lines: Mapping[str, int]) -> PlacedProblem:
    match = _PLACED.match(problem)
    if match is None:
        line = re.match(r"line (\d+)", problem)
        return PlacedProblem(text=problem, line=int(line[1]) if line else None)
    shown = match["place"]
    setting = setting_at(_parsed(shown), Pipeline)
    return PlacedProblem(
        text=problem,
        place=shown,
        line=lines.get(shown),
        allowed=setting.allowed or None,
        help=setting.description or None,
    )


def _parsed(shown: str) -> Place:
    return tuple(int(part[1:-1]) if part[0] == "[" else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", shown))
