"""Which topics match a template's pattern now, and which of them have had a pipeline so far."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.home.folder import Home, write_private
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.pipeline.template import ROUTE, Template, Variant, pipeline_name


@dataclass(frozen=True, slots=True)
class Discovery:
    """A template's topics at one moment."""

    known: tuple[SeenTopic, ...]
    """All that have a pipeline, oldest first."""
    new: tuple[str, ...]
    missing: tuple[str, ...]
    """Topics that are not on the broker. Their pipelines fail until the topics are back or are forgotten."""


@dataclass(frozen=True, slots=True)
class TemplateTopic:
    """A topic of a template."""

    topic: str
    pipeline: str
    seen_at: datetime | None
    """When it first matched the pattern; None if the file lists it."""
    missing: bool | None
    """Whether it is not on the broker; None if that has not been checked."""

    def to_dict(self) -> dict[str, Any]:
        seen_at = self.seen_at.isoformat(timespec="seconds") if self.seen_at else None
        return {**asdict(self), "seen_at": seen_at}


def template_topics(template: Template, discovery: Discovery | None = None) -> list[TemplateTopic]:
    """The topics that the file lists or that have matched its pattern, with their pipelines. `discovery`: what `refresh_topics` has
    just found."""
    listed = [TemplateTopic(topic, _pipeline_of(template, topic), None, None) for topic in template.source.topics]
    seen = [
        TemplateTopic(
            topic.name,
            _pipeline_of(template, topic.name),
            topic.seen_at,
            topic.name in discovery.missing if discovery else None,
        )
        for topic in (discovery.known if discovery else template.topics)
    ]
    return [*listed, *seen]


def _pipeline_of(template: Template, topic: str) -> str:
    return pipeline_name(template.pipeline_name, Variant(topic))


def deserted_templates(
    templates: Mapping[str, Sequence[SeenTopic]], pipelines: Collection[str], since: datetime
) -> tuple[str, ...]:
    """The templates of whose topics none was first seen at `since` or later, and none has one of these pipelines. `templates`: each
    one's topics by its `pipeline_name`. Pure."""

    def has_pipeline(template: str, topic: SeenTopic) -> bool:
        name = pipeline_name(template, Variant(topic.name))
        if ROUTE not in name:
            return name in pipelines
        pattern = re.compile(re.escape(name).replace(re.escape(ROUTE), r"\w+"))
        return any(map(pattern.fullmatch, pipelines))

    return tuple(
        template
        for template, topics in sorted(templates.items())
        if all(topic.seen_at < since and not has_pipeline(template, topic) for topic in topics)
    )


def refresh_topics(template: Template, home: Home, ledger: Ledger, now: datetime) -> Discovery:
    """List the topics and remember those that are new. Raises KafkaUnreachable, KafkaRefused."""
    return remember_topics(template, topics_on_broker(template), home, ledger, now)


def topics_on_broker(template: Template) -> Collection[str]:
    """Return the topics that match the template now. Raises KafkaUnreachable, KafkaRefused."""
    with kept_cluster(template.source) as cluster:
        return cluster.topic_names()


def remember_topics(
    template: Template, on_broker: Collection[str], home: Home, ledger: Ledger, now: datetime
) -> Discovery:
    """Remember those topics that are new."""
    new = ledger.topics.remember(template.pipeline_name, on_broker, now)
    if new:
        announce(home, now)
    known = tuple(
        topic for topic in ledger.topics.of_template(template.pipeline_name) if template.source.reads(topic.name)
    )
    missing = tuple(topic.name for topic in known if topic.name not in on_broker)
    return Discovery(known, new, missing)


def forget_topic(template: Template, topic: str, home: Home, ledger: Ledger, now: datetime) -> None:
    """Forget a topic that was deleted for good. Its pipeline disappears, and its table stays. Raises NothingToDo if the topic is on
    the broker or is not known; KafkaUnreachable, KafkaRefused."""
    if topic in topics_on_broker(template):
        remedy = "it would be found again; exclude it from source.topics_pattern"
        raise NothingToDo(template.name, f"topic {topic} is on the broker, so {remedy}")
    if not ledger.topics.forget(template.pipeline_name, topic):
        raise NothingToDo(template.name, f"topic {topic} is not known")
    announce(home, now)


def announce(home: Home, now: datetime) -> None:
    """Have the embedded code server load the pipelines again."""
    home.make()
    write_private(home.topics_file, f"{now.isoformat()}\n")
