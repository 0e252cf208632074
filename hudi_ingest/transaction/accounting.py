"""The accounting that a commit carries in its metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hudi_ingest.hudi.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline


def commit_metadata(
    pipeline: Pipeline, plan: TransactionPlan, checkpoint: Checkpoint, reports: Sequence[SliceReport]
) -> dict[str, str]:
    """The commit's extra metadata: the checkpoint, this transaction's accounting, and Hudi Streamer's checkpoint for a
    pipeline of one topic (`topic,0:123,1:456`, next offsets), so that users can move to Hudi Streamer and back."""
    accounting = {
        "version": 1,
        "transaction": plan.transaction_id,
        "sequence": plan.sequence,
        "kind": plan.kind.value,
        "slices": [
            {
                "topic": each.slice.topic,
                "partition": each.slice.partition,
                "start": each.slice.start,
                "end": each.slice.end,
                "rows": each.rows,
                "skipped": each.skipped,
                "filtered": each.filtered,
                "rejected": each.rejected,
                "gaps": each.gaps,
                "attempt": each.attempt,
            }
            for each in sorted(reports, key=lambda report: report.slice)
        ],
        "resets": [each.to_dict() for each in plan.resets],
        **({"respect_deletes": True} if plan.respect_deletes else {}),
        "schema_changes": list(plan.schema_changes),
        **({"take_over": plan.take_over.to_dict()} if plan.take_over else {}),
    }
    metadata = {
        pipeline.checkpoint_key: checkpoint.to_json(),
        pipeline.transaction_key: json.dumps(accounting, separators=(",", ":")),
    }
    if len(pipeline.source.topics) == 1:
        topic = pipeline.source.topics[0]
        # The pipeline may have had other topics before.
        offsets = {source.partition: offset for source, offset in checkpoint.offsets.items() if source.topic == topic}
        metadata[STREAMER_KEY] = streamer_text(topic, offsets)
    return metadata
