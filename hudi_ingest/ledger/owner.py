"""Who runs a transaction, and whether that owner is provably dead.

A wrong "dead" rolls back a living transaction; a wrong "alive" only makes others wait for its deadline. So an owner counts
as alive unless proved dead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import psutil

from hudi_ingest.home.liveness import process_table, running_process, same_start, started_since_boot


@dataclass(frozen=True, slots=True)
class Owner:
    """A Dagster run or an operating system process. Its text form is `<kind>:<ident>`.

    `ident` is the run id, or `<host>:<pid>:<start>`, where host is the process table and start is the number of seconds from
    boot to the process's start: see home/liveness.py. Raises ValueError for an `ident` that is neither.

    >>> str(Owner.dagster_run("8b1f"))
    'dagster:8b1f'
    >>> Owner.parse(str(Owner.this_process())) == Owner.this_process()
    True
    """

    kind: Literal["dagster", "process"]
    ident: str

    def __post_init__(self) -> None:
        if self.kind == "process":
            _process_parts(self.ident)
        elif self.kind != "dagster" or not self.ident:
            raise ValueError(f"an owner is dagster:<run id> or process:<host>:<pid>:<start>, found {str(self)!r}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.ident}"

    @property
    def has_one_begin(self) -> bool:
        """Whether it begins one transaction at a time: a run has one begin op, a process may have several threads."""
        return self.kind == "dagster"

    @classmethod
    def this_process(cls) -> Owner:
        """Return the owner that is dead as soon as this process has ended."""
        pid = os.getpid()
        return cls("process", f"{process_table()}:{pid}:{started_since_boot(pid):.2f}")

    @classmethod
    def dagster_run(cls, run_id: str) -> Owner:
        """Return the owner that is dead as soon as the run has ended, in whichever process."""
        return cls("dagster", run_id)

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Parse `str(owner)`. Raises ValueError when the text is not an owner."""
        kind, _, ident = text.partition(":")
        return cls(cast("Literal['dagster', 'process']", kind), ident)


def is_of_this_host(owner: Owner) -> bool:
    """Whether `owner` is a process that this host can inspect: of the same boot and pid namespace as this process."""
    return owner.kind == "process" and _process_parts(owner.ident)[0] == process_table()


def living_process(owner: Owner) -> psutil.Process | None:
    """Return `owner`'s process on this host, None if it has ended, runs on another host, or is a Dagster run."""
    if owner.kind != "process":
        return None
    host, pid, started = _process_parts(owner.ident)
    if host != process_table():
        return None
    try:
        return running_process(pid, started)
    except psutil.Error:
        return None


def is_dead(owner: Owner, run_is_finished: Callable[[str], bool | None]) -> bool:
    """Whether `owner` provably no longer runs.

    `run_is_finished` takes a Dagster run id and returns None when it does not know that run. A process on another host, in
    another container, or from before a reboot cannot be inspected, so it counts as alive until its transaction's deadline.
    Nothing tells a reboot from another machine for certain: clones of a virtual machine have its host name and machine id,
    often its disks, and may use the same ledger.
    """
    if owner.kind == "dagster":
        return run_is_finished(owner.ident) is True
    host, pid, started = _process_parts(owner.ident)
    if host != process_table():
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return not same_start(started_since_boot(pid), started)
    except psutil.NoSuchProcess:
        # With `hidepid`, another user's living process has no /proc entry, so also ask the kernel with signal 0.
        return not psutil.pid_exists(pid)
    except psutil.AccessDenied:
        return False


def _process_parts(ident: str) -> tuple[str, int, float]:
    try:
        host, pid, started = ident.rsplit(":", 2)
        parts = host, int(pid), float(started)
    except ValueError:
        raise ValueError(f"a process owner is process:<host>:<pid>:<start>, found {'process:' + ident!r}") from None
    if not host or parts[1] <= 0:
        raise ValueError(f"a process owner is process:<host>:<pid>:<start>, found {'process:' + ident!r}")
    return parts
