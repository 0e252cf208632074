"""Identify a process by its recorded pid and start time, because pids are reused.

Start times are seconds since the machine booted. A wall-clock start time moves whenever the clock is set (an NTP
correction, a resumed virtual machine), and would make a living process look like a different one.
"""

from __future__ import annotations

import psutil

_SLACK_SECONDS = 0.5
"""How far two readings of the same start time may differ; start times have a resolution of 10 ms."""


def started_since_boot(pid: int) -> float:
    """Return the seconds from boot to the start of `pid`. Raises psutil.NoSuchProcess."""
    boot = psutil.boot_time()
    return psutil.Process(pid).create_time() - boot


def same_start(started: float, recorded: float) -> bool:
    """Whether two readings of `started_since_boot` can be from the same process."""
    return abs(started - recorded) <= _SLACK_SECONDS


def running_process(pid: int, started: float) -> psutil.Process | None:
    """Return the process with this pid and start time, None if it has ended or is a zombie. Raises psutil.AccessDenied."""
    try:
        process = psutil.Process(pid)
        same = same_start(started_since_boot(pid), started)
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
