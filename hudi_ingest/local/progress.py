"""Progress of steps that take their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]
REPORT_SECONDS = 5.0
_MOST_SECONDS = 30.0


@contextmanager
def elapsed(report: Report, step: str) -> Iterator[None]:
    """Report how long `step` has taken, more and more rarely, until the block is left."""
    began, done = time.monotonic(), threading.Event()

    def watch() -> None:
        pause = REPORT_SECONDS
        while not done.wait(pause):
            pause = min(2 * pause, _MOST_SECONDS)
            report(f"{step}: {time.monotonic() - began:.0f} s so far")

    watcher = threading.Thread(target=watch, name=step, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
