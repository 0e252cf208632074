"""Routes of pipelines, which are files in the pipelines folder, and of the topics of files that make a pipeline of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Any
from urllib.parse import quote

import yaml
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.pipeline_files import PipelineFiles, StoredFile
from hudi_ingest.operations.topic_discovery import Discovery, forget_topic, refresh_topics, template_topics
from hudi_ingest.operations.validation import Validation
from hudi_ingest.orchestration.switch import Switches, switched
from hudi_ingest.pipeline.file import shown_file
from hudi_ingest.pipeline.folder import FolderFile, find_template
from hudi_ingest.pipeline.template import Template
from hudi_ingest.rest.models import (
    PIPELINE_EXAMPLE,
    PipelineFile,
    PipelineSummary,
    PipelineText,
    TemplateTopic,
    ValidationResult,
)
from hudi_ingest.rest.named import AllowedOf, HomeOf, Name, as_written, written_sections
from hudi_ingest.rest.problems import Refused, placed

ROUTES = APIRouter(tags=["pipelines"])
TOPICS = APIRouter(tags=["topics"])
TemplateName = Annotated[
    str, Path(description="The file's name without its ending, or its `name` with `{topic}`.", examples=["shop"])
]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/PipelineText"}},
            "application/yaml": {"schema": {"type": "string"}, "example": PIPELINE_EXAMPLE},
        },
    }
}
_ETAG = {"headers": {"ETag": {"description": "The file's version, quoted.", "schema": {"type": "string"}}}}


MOST_CHARACTERS = 100_000
"""The size of a pipeline file that comes over REST: a reader's, too, is parsed several times. Files are kilobytes."""


async def submitted_text(request: Request) -> str:
    """The YAML of a pipeline file that was sent as such or in JSON."""
    text = await _submitted_text(request)
    if len(text) > MOST_CHARACTERS:
        detail = (
            f"{len(text):,} characters; allowed: up to {MOST_CHARACTERS:,}. Put large schemas into files of their own, or this file into the "
            "pipelines folder yourself."
        )
        raise Refused(413, "Pipeline file too large", detail)
    return text


async def _submitted_text(request: Request) -> str:
    body = await request.body()
    if "yaml" in request.headers.get("content-type", ""):
        try:
            return body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(400, "Not UTF-8", f"byte {error.start + 1} of the body is not UTF-8 text.") from None
    try:
        sent = PipelineText.model_validate_json(body)
    except ValidationError as error:
        # Without the input, which may hold a secret.
        raise RequestValidationError(error.errors(include_input=False, include_url=False)) from None
    return sent.text if sent.text is not None else yaml.safe_dump(sent.settings, sort_keys=False, allow_unicode=True)


Text = Annotated[str, Depends(submitted_text)]
IfMatch = Annotated[str | None, Header(alias="If-Match", description='The ETag of the file to change, or "*".')]


@ROUTES.get("/pipelines", summary="List pipelines")
def list_pipelines(home: HomeOf) -> list[PipelineSummary]:
    """All pipelines of the folder, each on or paused, and the files that cannot be loaded."""
    files = PipelineFiles(home).all()
    switches = switched(home)
    return [summary for file in files for summary in _summaries(file, switches)]


@ROUTES.post("/pipelines", status_code=201, summary="Create a pipeline", openapi_extra=_BODY, responses={201: _ETAG})
def create_pipeline(home: HomeOf, allowed: AllowedOf, text: Text, request: Request, response: Response) -> PipelineFile:
    """Write a new pipeline file, `<name>.yaml`, after checking it and its conflicts with the other files. 409 if the pipeline
    has a file, 422 if the file is not valid."""
    _require_valid(text, allowed.problems(text, home.pipelines))
    stored, validation = PipelineFiles(home).create(text)
    _require_valid(text, validation.problems)
    response.headers["Location"] = f"{request.url.path}/{quote(stored.name)}"
    return _answer(stored, response, validation)


@ROUTES.get("/pipelines/{name}", summary="Get a pipeline's file", responses={200: _ETAG})
def get_pipeline(home: HomeOf, name: Name, response: Response) -> PipelineFile:
    """The file's text and settings. References such as `${PASSWORD}` are not filled in, and secrets in the file are masked."""
    stored, file = PipelineFiles(home).read(name)
    return _answer(stored, response, Validation(stored.name, file.problems))


@ROUTES.put("/pipelines/{name}", summary="Change a pipeline's file", openapi_extra=_BODY, responses={200: _ETAG})
def update_pipeline(
    home: HomeOf, allowed: AllowedOf, name: Name, text: Text, response: Response, if_match: IfMatch = None
) -> PipelineFile:
    """Replace the file by a new text with the same name, after the same checks as at its creation. `If-Match` must be the ETag
    that it was read with: 428 without it, 412 if the file has changed since."""
    version = _version(if_match)
    _require_valid(text, allowed.problems(text, home.pipelines))
    stored, validation = PipelineFiles(home).replace(name, text, version)
    _require_valid(text, validation.problems)
    return _answer(stored, response, validation)


@ROUTES.delete("/pipelines/{name}", status_code=204, summary="Delete a pipeline's file")
def delete_pipeline(home: HomeOf, name: Name, if_match: IfMatch = None) -> None:
    """The table, its offsets and the ledger stay: a pipeline file with the same name continues where this one ended."""
    PipelineFiles(home).delete(name, _version(if_match))


@ROUTES.post("/validate", summary="Validate a pipeline file", openapi_extra=_BODY)
def validate_pipeline(
    home: HomeOf,
    allowed: AllowedOf,
    text: Text,
    name: Annotated[str | None, Query(description="The pipeline whose file would get this text.")] = None,
) -> ValidationResult:
    """Check a pipeline file without saving it: all problems at once, with conflicts with the other files."""
    shown = shown_file(text)
    if problems := allowed.problems(text, home.pipelines):
        written = shown.settings.get("name")
        named = written if isinstance(written, str) else None
        return ValidationResult(valid=False, name=named, problems=placed(problems, shown.lines))
    validation = PipelineFiles(home).validate(text, name)
    return ValidationResult(
        valid=not validation.problems,
        name=validation.name,
        problems=placed(validation.problems, shown.lines),
        warnings=list(validation.warnings),
        columns=validation.columns or None,
    )


def _summaries(file: FolderFile, switches: Switches) -> list[PipelineSummary]:
    if file.problems:
        broken = placed(file.problems, {})
        return [PipelineSummary(name=file.name, file=file.path.name, state="broken", problems=broken)]
    if not file.pipelines:
        return [PipelineSummary(name=file.name, file=file.path.name, state="waiting")]
    source, table = written_sections(file.path, "source", "table")
    return [
        PipelineSummary(
            name=pipeline.name,
            file=file.path.name,
            state="on" if switches.is_on(pipeline) else "paused",
            enabled=pipeline.enabled,
            topics=as_written(source.get("topics"), list(pipeline.source.topics)),
            topics_pattern=as_written(source.get("topics_pattern"), pipeline.source.topics_pattern),
            format=as_written(source.get("format"), pipeline.source.format),
            base_path=as_written(table.get("base_path"), pipeline.table.base_path),
            mode=pipeline.table.mode,
        )
        for pipeline in file.pipelines
    ]


def _answer(stored: StoredFile, response: Response, validation: Validation) -> PipelineFile:
    response.headers["ETag"] = f'"{stored.version}"'
    shown = shown_file(stored.content.decode(errors="replace"))
    return PipelineFile(
        name=stored.name,
        file=stored.path.name,
        version=stored.version,
        text=shown.text,
        settings=shown.settings,
        masked=list(shown.masked),
        problems=placed(validation.problems, shown.lines),
        warnings=list(validation.warnings),
    )


def _require_valid(text: str, problems: Sequence[str]) -> None:
    if problems:
        detail = "Nothing was written:\n" + "\n".join(f"- {problem}" for problem in problems)
        raise Refused(422, "The pipeline file is not valid", detail, placed(problems, shown_file(text).lines))


def _version(if_match: str | None) -> str | None:
    """The version that the file must have; None for any."""
    if if_match is None:
        detail = "Read the pipeline, and send its ETag as If-Match, so that no change of another is lost."
        raise Refused(428, "If-Match is missing", detail)
    if if_match.strip() == "*":
        return None
    quoted = re.fullmatch(r'\s*"([^"]*)"\s*', if_match)
    # The version without quotes is in the answers, too.
    return quoted[1] if quoted else if_match.strip()


def _template(home: HomeOf, name: TemplateName) -> Template:
    return find_template(home.pipelines, name)


TemplateOf = Annotated[Template, Depends(_template)]


@TOPICS.get("/pipelines/{name}/topics", summary="List a template's topics")
def list_topics(template: TemplateOf) -> list[TemplateTopic]:
    """The topics that have matched its pattern so far, or that it lists, with their pipelines. Asks no broker."""
    return _topics(template)


@TOPICS.post("/pipelines/{name}/topics/refresh", summary="Look for new topics", name="refresh_topics")
def refresh(home: HomeOf, template: TemplateOf) -> list[TemplateTopic]:
    """List the broker's topics now; new ones that match get a pipeline. Dagster does the same on its own, in ticks."""
    _require_pattern(template)
    return _refreshed(home, template)


@TOPICS.delete("/pipelines/{name}/topics/{topic}", summary="Forget a topic", name="forget_topic")
def forget(
    home: HomeOf, template: TemplateOf, topic: Annotated[str, Path(description="A topic that was deleted for good.")]
) -> list[TemplateTopic]:
    """Its pipeline disappears, and its table stays. 409 while the topic is on the broker, and if it is not known."""
    _require_pattern(template)
    with Ledger.open(home.ledger_url) as ledger:
        forget_topic(template, topic, home, ledger, datetime.now(timezone.utc))
    return _refreshed(home, template)


def _refreshed(home: Home, template: Template) -> list[TemplateTopic]:
    with Ledger.open(home.ledger_url) as ledger:
        discovery = refresh_topics(template, home, ledger, datetime.now(timezone.utc))
    return _topics(template, discovery)


def _require_pattern(template: Template) -> None:
    if not template.finds_topics:
        detail = f"{template.path.name} makes no pipelines of topics that appear; it has no topics_pattern."
        raise Refused(409, "Nothing to do", detail)


def _topics(template: Template, discovery: Discovery | None = None) -> list[TemplateTopic]:
    return [TemplateTopic.model_validate(topic.to_dict()) for topic in template_topics(template, discovery)]
