"""Pipeline files that stand for several pipelines: `{topic}` in `table.base_path` and `name` makes one for each topic. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.model.seen_topic import SeenTopic
from hudi_ingest.pipeline.source import KafkaSource
from hudi_ingest.pipeline.yaml_document import Document

TOPIC = "{topic}"
_IDENTIFIERS = {("name",), ("asset", "group"), ("catalog", "database"), ("catalog", "table")}
"""Where a topic becomes a name of letters, digits and _."""


@dataclass(frozen=True, slots=True)
class Template:
    """A pipeline file with `{topic}`."""

    path: Path
    pipeline_name: str
    """The `name` of the file, with `{topic}`. The ledger knows the template by it."""
    source: KafkaSource
    """With the file's own `topics` or `topics_pattern`."""
    topics: tuple[SeenTopic, ...]
    """The topics that have matched its pattern, oldest first. () if it lists topics."""

    @property
    def name(self) -> str:
        """The file's name, as Dagster and the command line accept it."""
        return re.sub(r"[^A-Za-z0-9_]", "_", self.path.stem)


def is_template(data: Mapping[str, Any]) -> bool:
    table = data.get("table")
    base_path = table.get("base_path") if isinstance(table, Mapping) else None
    return isinstance(base_path, str) and TOPIC in base_path


def pipeline_name(name: str, topic: str) -> str:
    """The name of the topic's pipeline; two topics may have the same."""
    return name.replace(TOPIC, _identifier(topic))


def for_topic(document: Document, topic: str, from_first_offset: bool) -> Document:
    """The file as it would be written for one topic. `from_first_offset`: whatever its `starting_offsets` are."""
    data = _filled(document.data, (), topic)
    source = {key: value for key, value in data["source"].items() if key != "topics_pattern"}
    starts = source.get("starting_offsets")
    if from_first_offset:
        source["starting_offsets"] = "earliest"
    elif isinstance(starts, Mapping) and "timestamp" not in starts:
        source["starting_offsets"] = {topic: starts[topic]} if topic in starts else "earliest"
    return replace(document, data={**data, "source": {**source, "topics": [topic]}}, problems=[*document.problems])


def _filled(value: Any, place: Place, topic: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, (*place, key), topic) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, (*place, index), topic) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    if place not in _IDENTIFIERS:
        return value.replace(TOPIC, topic)
    return value.replace(TOPIC, _identifier(topic).lower() if place[0] == "catalog" else _identifier(topic))


def _identifier(topic: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)
