"""The metadata of a commit."""

from __future__ import annotations

from collections.abc import Sequence

from hudi_ingest.hudi.timeline.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline


def commit_metadata(
    pipeline: Pipeline, plan: TransactionPlan, checkpoint: Checkpoint, reports: Sequence[SliceReport]
) -> dict[str, str]:
    """The commit's extra metadata: the checkpoint, this transaction's accounting, and Hudi Streamer's checkpoint for a
    pipeline of one topic (`topic,0:123,1:456`, next offsets), so that users can move to Hudi Streamer and back."""
    metadata = {
        pipeline.checkpoint_key: checkpoint.to_json(),
        pipeline.transaction_key: Accounting.of(plan, reports).to_json(),
    }
    if len(pipeline.source.topics) == 1:
        topic = pipeline.source.topics[0]
        # The pipeline may have read other topics before.
        offsets = {source.partition: offset for source, offset in checkpoint.offsets.items() if source.topic == topic}
        metadata[STREAMER_KEY] = streamer_text(topic, offsets)
    return metadata
