"""Keeps the logs of long-lived processes from growing for ever.

The processes write to their logs by an open file in append mode, so a log cannot be moved away from under them: it is copied and
cut back to nothing. Lines that come between the two are lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from hudi_ingest.home.folder import Home

MOST_BYTES = 16 << 20
"""Of a log before it is cut back; as much of it is kept beside it."""


def stack_logs(home: Home) -> tuple[Path, ...]:
    """Logs of the embedded stack's processes."""
    return (*sorted(home.logs.glob("*.log")), home.kafka / "broker.log")


def cut_back(logs: Iterable[Path], most_bytes: int = MOST_BYTES) -> None:
    """Moves what is in each log of more than `most_bytes` to a file beside it, `NAME.1`, of which only the newest `most_bytes`
    are kept. Raises OSError; logs that are not there are fine."""
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
