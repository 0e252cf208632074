"""A pipeline's table: its timeline, its storage, and what the pipeline itself has committed to it."""

from __future__ import annotations

from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.committed_state import CommittedState, committed_state
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.pipeline.pipeline import Pipeline


class PipelineTable:
    """The table that a pipeline writes to. Each call reads the storage again."""

    def __init__(self, pipeline: Pipeline, timeline: Timeline | None = None) -> None:
        self.pipeline = pipeline
        self.timeline = timeline or Timeline(pipeline.table.base_path, pipeline.table.storage_options)

    @property
    def storage(self) -> TableStorage:
        return self.timeline.storage

    def committed(self) -> CommittedState:
        """Read the pipeline's checkpoint. Raises what `committed_state` raises."""
        return committed_state(self.timeline, self.pipeline.checkpoint_key, self.pipeline.transaction_key)

    def commits(self) -> tuple[CommittedInstant, ...]:
        """List the pipeline's own completed instants on the active timeline, oldest first. Raises TableUnreachable."""
        return self.timeline.commits_of(self.pipeline.transaction_key)

    def instant_of(self, transaction_id: str) -> str | None:
        """Find the completed instant that published the transaction, or None. Raises TableUnreachable."""
        return self.timeline.instant_of(self.pipeline.transaction_key, transaction_id)
