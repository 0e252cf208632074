"""What a pipeline file says about dead letters."""

from __future__ import annotations

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.pipeline.settings.model import Model, Topic


class DeadLetters(Model):
    """What dead letters hold, with `on_bad_record: dead_letter`, and where else they go."""

    keep_masked: bool = False
    """Whether dead letters hold the records' bytes (value, key and headers) even if the pipeline masks fields. Without it,
    such a pipeline's dead letters say only where the record is and what is wrong with it, and cannot be retried."""

    topic: Topic | None = None
    """A topic of the source's cluster that gets a copy of each dead letter after its commit, at least once, with Kafka
    Connect's `__connect.errors.…` headers. Without it there are no copies."""


def loop_problem(letters: DeadLetters, source: KafkaSource) -> str:
    """Say so if the source reads the topic of the copies; "" if it does not."""
    if letters.topic is None or not source.reads(letters.topic):
        return ""
    read = "is one of source.topics" if source.topics else "matches source.topics_pattern"
    return f"found {quoted(letters.topic)}, which {read}, so dead letters would be ingested again; name another topic"
