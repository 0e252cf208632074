"""Keep the logs of long-lived processes from growing forever.

The processes hold their logs open in append mode, so a log cannot be moved away from under them. It is copied, then
truncated; lines written in between are lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from hudi_ingest.home.folder import Home

MOST_BYTES = 16 << 20
"""Size at which a log is cut back; this much of it is kept in a file beside it."""


def stack_logs(home: Home) -> tuple[Path, ...]:
    """List the logs of the embedded stack's processes."""
    return (*sorted(home.logs.glob("*.log")), home.kafka / "broker.log")


def cut_back(logs: Iterable[Path], most_bytes: int = MOST_BYTES) -> None:
    """Move the newest `most_bytes` of each larger log to a file beside it, `NAME.1`, and empty the log.

    Missing logs are ignored. Raises OSError.
    """
    for log in logs:
        try:
            size = log.stat().st_size
        except FileNotFoundError:
            continue
        if size <= most_bytes:
            continue
        kept, partial = log.with_name(f"{log.name}.1"), log.with_name(f"{log.name}.partial")
        with log.open("r+b") as source, partial.open("wb") as target:
            source.seek(size - most_bytes)
            shutil.copyfileobj(source, target)
            partial.rename(kept)
            source.truncate(0)
