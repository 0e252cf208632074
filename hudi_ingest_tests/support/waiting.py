"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


class NotInTime(AssertionError):
    """What was waited for did not come."""


def wait_for(condition: Callable[[], object], what: str, seconds: float = 300, pause_seconds: float = 0.02) -> None:
    """Returns when `condition` is truthy. Raises NotInTime after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {seconds:g} s: {what}")
        time.sleep(pause_seconds)
