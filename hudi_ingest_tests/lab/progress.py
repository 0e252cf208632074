"""The progress of steps that take their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hudi_ingest.local.progress import Report
from hudi_ingest.model.deadline import watched

REPORT_SECONDS = 5.0
_MOST_SECONDS = 30.0


@contextmanager
def elapsed(report: Report, step: str) -> Iterator[None]:
    """Report how long `step` has taken, more and more rarely, until the block is left."""
    began = time.monotonic()

    def watch(done: threading.Event) -> None:
        pause = REPORT_SECONDS
        while not done.wait(pause):
            pause = min(2 * pause, _MOST_SECONDS)
            report(f"{step}: {time.monotonic() - began:.0f} s so far")

    with watched(watch, step):
        yield
