"""Steps that take their time: their progress, and Ctrl-C while they are stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from hudi_ingest.model.deadline import watched

Report = Callable[[str], None]
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


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def one_interrupt() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C, SIGTERM and the end of the terminal interrupt once, so that a second one does not disturb the stopping. Yields a
    function after which none interrupts."""
    before = {number: signal.getsignal(number) for number in _STOPPING}
    # Who has set them to be ignored, as nohup does, wants that.
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def ignore() -> None:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)

    def interrupt(number: int, frame: FrameType | None) -> None:
        ignore()
        raise KeyboardInterrupt

    for number in heeded:
        signal.signal(number, interrupt)
    try:
        yield ignore
    finally:
        for number in heeded:
            signal.signal(number, before[number])
