"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil


class NotInTime(AssertionError):
    """What was waited for did not come."""


def wait_for(condition: Callable[[], object], what: str, seconds: float = 300, pause_seconds: float = 0.02) -> None:
    """Returns when `condition` is truthy. Raises NotInTime after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {seconds:g} s: {what}")
        time.sleep(pause_seconds)


def suspend(process: psutil.Process) -> None:
    """Stops a process, and returns once each of its threads stands still: until one of them takes the signal, they all run on."""
    process.suspend()
    wait_for(lambda: set(_thread_states(process.pid)) == {"T"}, "all its threads have stopped")


def _thread_states(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # It may have ended meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
