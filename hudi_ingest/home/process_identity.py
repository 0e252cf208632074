"""Which process is meant by a remembered pid: the one that also started at the remembered time.

Start times are in seconds since the machine's boot. The wall clock time of a start moves whenever the clock is set (a correction
by NTP, a resumed virtual machine), and would make a living process look like another one.
"""

from __future__ import annotations

import psutil

_SLACK_SECONDS = 0.5
"""How far two readings of one process's start may differ; start times have ticks of 10 ms."""


def started_since_boot(pid: int) -> float:
    """Seconds from the machine's boot to the start of `pid`. Raises psutil.NoSuchProcess."""
    boot = psutil.boot_time()
    return psutil.Process(pid).create_time() - boot


def same_start(one: float, other: float) -> bool:
    """Whether two readings of `started_since_boot` can be of one process."""
    return abs(one - other) <= _SLACK_SECONDS


def running_process(pid: int, started: float) -> psutil.Process | None:
    """The process that has this pid and started then, or None: it has ended, or is a zombie. Raises psutil.AccessDenied."""
    try:
        process = psutil.Process(pid)
        same = same_start(started_since_boot(pid), started)
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
