"""Whether a process still runs, and which of several servers accepts connections.

A process is identified by its process table, pid and start time, because pids are reused, and others have the same ones.

Start times are seconds since the machine booted. A wall-clock start time moves whenever the clock is set (an NTP
correction, a resumed virtual machine), and would make a living process look like a different one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_SLACK_SECONDS = 0.5
"""How far two readings of the same start time may differ; start times have a resolution of 10 ms."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Random at each boot of a kernel, and the same in all its containers."""
_BOOT_DIGITS = 12
CONNECT_SECONDS = 5.0
RUN_NAME = "hudi-run"
IDLE_RUN_NAME = "hudi-run-idle"
"""The names, for `ps` and `top` on Linux, of a process that executes a run, and of one that waits for its next run."""


def set_process_name(name: str) -> None:
    """Name this process, where the system lets it; at most 15 characters."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def process_table() -> str:
    """Name the processes that this one can see: `<host name>/<boot>/<pid namespace>`.

    Only boot and pid namespace together name a process table. Two containers may have the same host name and still not see
    each other's processes. Two machines may have the same host name, too, and their first pid namespace always has the same
    number.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
        boot = _BOOT_ID.read_text().replace("-", "")[:_BOOT_DIGITS].strip()
    except OSError:  # no pid namespaces here: macOS, a sandbox without /proc
        namespace, boot = "0", f"{psutil.boot_time():.0f}"
    return f"{socket.gethostname()}/{boot}/{namespace}"


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


def first_listening(addresses: Sequence[str]) -> tuple[str | None, dict[str, OSError]]:
    """Connect to one `host:port` or `scheme://host:port` after the other until one accepts. Returns it, None if none does, and why
    those before it did not."""
    refusals: dict[str, OSError] = {}
    for address in addresses:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            return address, refusals
        except OSError as error:
            refusals[address] = error
    return None, refusals
