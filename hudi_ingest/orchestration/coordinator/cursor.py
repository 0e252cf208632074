"""The state that the coordinator's ticks keep from one to the next."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from hudi_ingest.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SensorCursor:
    """Times are seconds since 1970."""

    settings: str = ""
    """The fingerprint of the pipeline file at the last tick."""
    changed_at: float = 0.0
    """When it was seen to change: runs that failed before say nothing about the current file. 0: never."""
    blind_since: float | None = None
    """Since when broker and table have been unreachable; None if the last tick reached them."""

    @classmethod
    def read(cls, text: str | None) -> SensorCursor:
        """Parse a cursor. Unknown text, e.g. of another version, counts as empty: all that is lost is a wait."""
        try:
            return cls(**json.loads(text or "{}"))
        except (ValueError, TypeError):
            return cls()

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    def after(self, settings: str, blind: bool, now: datetime) -> SensorCursor:
        """Return the cursor after a tick at `now` with these `settings`; `blind`: it could not reach broker or table."""
        moment = now.timestamp()
        changed = bool(self.settings) and self.settings != settings
        return replace(
            self,
            settings=settings,
            changed_at=moment if changed else self.changed_at,
            blind_since=(self.blind_since or moment) if blind else None,
        )


def fingerprint(pipeline: Pipeline) -> str:
    """Return a hash of the pipeline's settings and declared columns, without secrets, which repr hides."""
    columns = str(pipeline.table_schema.columns) if pipeline.table.declares_schema else ""
    return hashlib.sha256(f"{pipeline!r}{columns}".encode()).hexdigest()[:16]
