"""Finds topics that match a template's pattern: one sensor for each template."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timezone

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from hudi_ingest.exceptions import KafkaUnreachable, LedgerUnreachable
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.topic_discovery import Discovery, announce, remember_topics, topics_on_broker
from hudi_ingest.pipeline.template import Template

_TICK_SECONDS = 4
"""Dagster looks for due sensors every five seconds, when one of five is mostly a little too young."""
_QUIET_SECONDS = 30
"""How long the ledger is left alone while the broker lists the same topics."""
_SHOWN = 10


def topics_sensor(template: Template) -> SensorDefinition:
    """Build the sensor of a template with a pattern, as it was loaded: it knows which topics have a pipeline here."""
    loaded = frozenset(topic.name for topic in template.topics)
    listed: Collection[str] | None = None
    at, text = 0.0, ""

    @sensor(
        name=f"{template.name}_topics",
        minimum_interval_seconds=_TICK_SECONDS,
        # On by default: it starts nothing, and without it a topic that appears would have no pipeline.
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Finds topics that match {template.source.topics_pattern}, for {template.path.name}.",
    )
    def discover(context: SensorEvaluationContext) -> SkipReason:
        nonlocal listed, at, text
        home, now = Home.from_environment(), datetime.now(timezone.utc)
        try:
            on_broker = topics_on_broker(template)
            if on_broker == listed and time.monotonic() - at < _QUIET_SECONDS:
                return SkipReason(text)
            with Ledger.open(home.ledger_url) as ledger:
                discovery = remember_topics(template, on_broker, home, ledger, now)
        except (KafkaUnreachable, LedgerUnreachable) as error:
            return SkipReason(str(error))
        changed = {topic.name for topic in discovery.known} ^ loaded
        if changed and not discovery.new:
            # Loading was asked for when they were found, perhaps where nothing loads them.
            announce(home, now)
        listed, at, text = on_broker, time.monotonic(), discovery_text(discovery, loaded)
        if changed or discovery.missing:
            context.log.warning(text)
        return SkipReason(text)

    return discover


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
