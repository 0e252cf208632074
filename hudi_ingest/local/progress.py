"""Progress of steps that take their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]
REPORT_SECONDS = 5.0


@contextmanager
def elapsed(report: Report, step: str) -> Iterator[None]:
    """Report every few seconds how long `step` has taken, until the block is left."""
    began, done = time.monotonic(), threading.Event()

    def watch() -> None:
        while not done.wait(REPORT_SECONDS):
            report(f"{step}: {time.monotonic() - began:.0f} s so far")

    watcher = threading.Thread(target=watch, name=step, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
