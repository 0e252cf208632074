"""Finds topics that match a template's pattern: one sensor for each template."""

from __future__ import annotations

from datetime import datetime, timezone

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from hudi_ingest.exceptions import KafkaUnreachable, LedgerUnreachable
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.topic_discovery import Discovery, announce, refresh_topics
from hudi_ingest.pipeline.template import Template

_TICK_SECONDS = 30
_SHOWN = 10


def topics_sensor(template: Template) -> SensorDefinition:
    """Build the sensor of a template with a pattern, as it was loaded: it knows which topics have a pipeline here."""
    loaded = frozenset(topic.name for topic in template.topics)

    @sensor(
        name=f"{template.name}_topics",
        minimum_interval_seconds=_TICK_SECONDS,
        # On by default: it starts nothing, and without it a topic that appears would have no pipeline.
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Finds topics that match {template.source.topics_pattern}, for {template.path.name}.",
    )
    def discover(context: SensorEvaluationContext) -> SkipReason:
        home, now = Home.from_environment(), datetime.now(timezone.utc)
        try:
            with Ledger.open(home.ledger_url) as ledger:
                discovery = refresh_topics(template, home, ledger, now)
        except (KafkaUnreachable, LedgerUnreachable) as error:
            return SkipReason(str(error))
        changed = {topic.name for topic in discovery.known} ^ loaded
        if changed and not discovery.new:
            # Loading was asked for when they were found, perhaps where nobody heard it.
            announce(home, now)
        text = discovery_text(discovery, loaded)
        if changed or discovery.missing:
            context.log.warning(text)
        return SkipReason(text)

    return discover


def discovery_text(discovery: Discovery, loaded: frozenset[str]) -> str:
    known = {topic.name for topic in discovery.known}
    parts = [counted(len(known), "topic")]
    if without := sorted(known - loaded):
        parts.append(
            f"{listed(without, _SHOWN)} without a pipeline in this code location: `hudi-ingest up` loads it again within seconds; "
            "elsewhere, reload the code location"
        )
    if forgotten := sorted(loaded - known):
        parts.append(
            f"{listed(forgotten, _SHOWN)} forgotten; their pipelines go when the code location is loaded again"
        )
    if discovery.missing:
        parts.append(f"{listed(discovery.missing, _SHOWN)} not on the broker, so their pipelines fail")
    return "; ".join(parts)
