"""The topics of pipeline files that make a pipeline of each."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.topic_discovery import Discovery, forget_topic, refresh_topics, template_topics
from hudi_ingest.pipeline.folder import find_template
from hudi_ingest.pipeline.template import Template
from hudi_ingest.rest.models import TemplateTopic
from hudi_ingest.rest.named import HomeOf
from hudi_ingest.rest.problems import Refused

ROUTES = APIRouter(tags=["topics"])
TemplateName = Annotated[
    str, Path(description="The file's name without its ending, or its `name` with `{topic}`.", examples=["shop"])
]


def _template(home: HomeOf, name: TemplateName) -> Template:
    return find_template(home.pipelines, name)


TemplateOf = Annotated[Template, Depends(_template)]


@ROUTES.get("/pipelines/{name}/topics", summary="List a template's topics")
def list_topics(template: TemplateOf) -> list[TemplateTopic]:
    """The topics that have matched its pattern so far, or that it lists, with their pipelines. Asks no broker."""
    return _answer(template)


@ROUTES.post("/pipelines/{name}/topics/refresh", summary="Look for new topics", name="refresh_topics")
def refresh(home: HomeOf, template: TemplateOf) -> list[TemplateTopic]:
    """List the broker's topics now; new ones that match get a pipeline. Dagster does the same on its own, by a sensor."""
    _require_pattern(template)
    return _refreshed(home, template)


@ROUTES.delete("/pipelines/{name}/topics/{topic}", summary="Forget a topic", name="forget_topic")
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
    return _answer(template, discovery)


def _require_pattern(template: Template) -> None:
    if not template.finds_topics:
        detail = f"{template.path.name} makes no pipelines of topics that appear; it has no topics_pattern."
        raise Refused(409, "Nothing to do", detail)


def _answer(template: Template, discovery: Discovery | None = None) -> list[TemplateTopic]:
    return [TemplateTopic.model_validate(topic.to_dict()) for topic in template_topics(template, discovery)]
