"""Reports of progress, and Ctrl-C while servers are stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Report = Callable[[str], None]
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
