"""Where rows come from, for the names of their files and for messages."""

from __future__ import annotations

from dataclasses import dataclass

from hudi_ingest.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class RowSource:
    """The Kafka partition of rows, and the write token of files whose first row comes from it."""

    source: TopicPartition
    write_token: str

    def __str__(self) -> str:
        return str(self.source)
