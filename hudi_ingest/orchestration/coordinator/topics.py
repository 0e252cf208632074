"""Topics that match a template's pattern, looked for as a step of the coordinator's ticks."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from hudi_ingest.exceptions import KafkaUnreachable, LedgerUnreachable
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.looks import Looks
from hudi_ingest.operations.topic_discovery import Discovery, announce, remember_topics, topics_on_broker
from hudi_ingest.pipeline.template import Template

TICK_SECONDS = 4
"""Dagster looks for due sensors every five seconds, when one of five is mostly a little too young."""
_QUIET_SECONDS = 30
"""How long the ledger is left alone while the broker lists the same topics."""
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Found:
    """The topics of a template, in words. `is_news`: whether a person may have to do something."""

    template: str
    text: str
    is_news: bool = False


class TopicFinder:
    """Finds the topics of a template with a pattern, as it was loaded: it knows which topics have a pipeline here."""

    def __init__(self, template: Template) -> None:
        self.name = template.name
        self._template = template
        self._loaded = frozenset(topic.name for topic in template.topics)
        self._listed: Collection[str] | None = None
        self._found = Found(template.name, "")
        self._at = 0.0

    def find(self) -> Found:
        """Look for topics, remember new ones, and have the code location loaded again for them. Raises KafkaRefused."""
        home, now = Home.from_environment(), datetime.now(timezone.utc)
        try:
            on_broker = topics_on_broker(self._template)
            if on_broker == self._listed and time.monotonic() - self._at < _QUIET_SECONDS:
                return self._found
            with Ledger.open(home.ledger_url) as ledger:
                discovery = remember_topics(self._template, on_broker, home, ledger, now)
        except (KafkaUnreachable, LedgerUnreachable) as error:
            return Found(self.name, str(error))
        changed = {topic.name for topic in discovery.known} ^ self._loaded
        if changed and not discovery.new:
            # Loading was asked for when they were found, perhaps where nothing loads them.
            announce(home, now)
        text = discovery_text(discovery, self._loaded)
        self._listed, self._at = on_broker, time.monotonic()
        self._found = Found(self.name, text, bool(changed or discovery.missing))
        return self._found


class TopicSearch:
    """The finders of a code location's templates. Each look for topics has a thread of its own, so that a silent cluster delays neither
    others nor the tick."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self._finders = [TopicFinder(template) for template in templates if template.finds_topics]
        self._looks = Looks[Found]("hudi_ingest_topics")
        self._found: dict[str, Found] = {}

    def __bool__(self) -> bool:
        return bool(self._finders)

    def step(self, seconds: float) -> list[Found]:
        """Look for topics, wait at most `seconds`, and return the results that differ from those of the last step."""
        looks = self._looks.take(self._finders, TopicFinder.find, seconds)
        found = [_result(name, look.exception() or look.result()) for name, look in looks.items() if look.done()]
        changed = [each for each in found if self._found.get(each.template) != each]
        self._found |= {each.template: each for each in found}
        return changed

    @property
    def text(self) -> str:
        return "\n".join(f"topics of {name}: {found.text}" for name, found in sorted(self._found.items()))


def _result(name: str, found: Found | BaseException) -> Found:
    return found if isinstance(found, Found) else Found(name, f"{type(found).__name__}: {found}", is_news=True)


def discovery_text(discovery: Discovery, loaded: frozenset[str]) -> str:
    known = {topic.name for topic in discovery.known}
    parts = [counted(len(known), "topic")]
    if without := sorted(known - loaded):
        parts.append(
            f"{listed(without, _SHOWN)} without a pipeline in this code location: `hudi-ingest up` and `code-server` load it again within "
            "seconds; elsewhere, reload the code location"
        )
    if forgotten := sorted(loaded - known):
        parts.append(
            f"{listed(forgotten, _SHOWN)} forgotten; their pipelines go when the code location is loaded again"
        )
    if discovery.missing:
        parts.append(f"{listed(discovery.missing, _SHOWN)} not on the broker, so their pipelines fail")
    return "; ".join(parts)
