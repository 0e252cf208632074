"""The plan as Dagster run config and tags, so that a run shows every slice before anything is read, and back."""

from __future__ import annotations

from typing import Any

from dagster import Config
from pydantic import Field

from hudi_ingest.config import Pipeline
from hudi_ingest.model import Slice, TransactionPlan
from hudi_ingest.orchestration import tags

BEGIN = "begin"


class SliceConfig(Config):
    """One Kafka partition's offset range [start, end)."""

    topic: str = Field(description="Kafka topic")
    partition: int = Field(description="Kafka partition")
    start: int = Field(description="First offset to read: the table's committed offset")
    end: int = Field(description="Offset to stop before")


class BeginConfig(Config):
    """The transaction to run. Leave all of it out to plan one now, from the committed offsets to the topic's ends."""

    transaction_id: str = Field(default="", description="Name of the transaction; empty: plan now")
    sequence: int = Field(default=0, description="Number of the transaction: the table's last one plus 1")
    slices: list[SliceConfig] = Field(default=[], description="Offset ranges, one for each Kafka partition")

    def plan(self, pipeline: str) -> TransactionPlan | None:
        """The plan that the config holds, or None when it holds none."""
        if not self.transaction_id:
            return None
        slices = tuple(Slice(each.topic, each.partition, each.start, each.end) for each in self.slices)
        return TransactionPlan(pipeline, self.transaction_id, self.sequence, slices)


def run_config(pipeline: Pipeline, plan: TransactionPlan) -> dict[str, Any]:
    """Run config of the pipeline's job for exactly this plan."""
    shown = plan.to_dict()
    begin = {key: shown[key] for key in ("transaction_id", "sequence", "slices")}
    return {"ops": {pipeline.name: {"ops": {BEGIN: {"config": begin}}}}}


def run_tags(pipeline: Pipeline, plan: TransactionPlan) -> dict[str, str]:
    """Tags by which a run of this plan is found: by people in the UI, and by the sensor."""
    return {
        tags.PIPELINE: pipeline.name,
        tags.TABLE: pipeline.table.base_path,
        tags.TRANSACTION: plan.transaction_id,
        tags.SEQUENCE: str(plan.sequence),
    }
