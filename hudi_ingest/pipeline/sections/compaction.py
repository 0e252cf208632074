"""`table.compaction` of a pipeline file: when the log files of a keyed table are merged into its base files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hudi_ingest.pipeline.settings.model import Model, Seconds, Whole


class CompactionLimits(Model):
    """When compaction is due. Only with `mode: upsert`."""

    delta_commits: Annotated[Whole, Field(ge=1, le=500)] = 5
    """Compaction is due when this many commits have log files that are not compacted. The more, the longer queries take; the
    fewer, the more often base files are rewritten."""

    log_files: Annotated[Whole, Field(ge=1, le=10_000)] = 20
    """It is due when a file group has this many log files that are not compacted: each costs a reader as much as some thousand
    rows, however small it is. A transaction writes one to a group for each Spark task, so large transactions reach this
    first."""

    log_bytes: Annotated[Whole, Field(ge=1024 * 1024)] = 4 * 1024**3
    """It is due when the log files that are not compacted reach this size together. The default is 4 GiB."""

    age_seconds: Annotated[Seconds, Field(ge=60, le=10_000_000_000)] = 86_400
    """It is due when the oldest commit that is not compacted is this old. Read-optimized queries return what is compacted."""

    timeout_seconds: Annotated[Seconds, Field(ge=60, le=86_400)] = 3600
    """A compaction that takes longer is cancelled, and a later run begins it again. One compaction rewrites about 16 GB."""
