"""One lock per Hudi table, held across processes, and released by the kernel or the server when its holder dies.

SQLite ledgers: `flock` on `<database>.locks/<sha256 of the table>`, so the lock covers one machine, as the ledger does.
PostgreSQL ledgers: a session's advisory lock on its own connection. A pooler in transaction mode (pgbouncer) breaks
session locks: give the ledger a direct connection or a pooler in session mode.

A holder that hangs without dying (a stopped process, a lost machine behind an open connection) loses its lock after
`stale_seconds`. Whatever it does when it wakes up must therefore be safe without the lock: for a table's transactions, the
epoch and the guard inside Hudi's lock ensure that. A holder that nothing fences says so, and keeps the lock for as long as
it lives.

The holding time is measured by the machine's monotonic clock, or by the server's clock, so setting this machine's clock
takes no lock from a living holder.

Not reentrant: a thread that requests a lock it already holds waits for itself until the timeout.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Protocol

import sqlalchemy as sa

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.ledger.database import commit_each_statement
from hudi_ingest.ledger.owner import Owner

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.1
_UNFENCED = "unfenced"
"""Marks a holder whose lock may not be taken away."""
_HOLDERS = """
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.classid::bigint = :high AND l.objid::bigint = :low
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class HeldLock(Protocol):
    """A lock that this thread holds."""

    def release(self) -> None:
        """Release the lock. Never raises, because the work under the lock is done; logs a lock lost meanwhile."""


class _Lock(HeldLock, Protocol):
    def try_acquire(self) -> bool: ...

    def holder(self) -> str:
        """Describe the holder for an error message."""

    def take_away(self, stale_seconds: float) -> str | None:
        """Take the lock from a process that has held it for longer than that, and name it; None if there is none."""


def acquire(
    engine: sa.Engine, name: str, timeout_seconds: float, stale_seconds: float | None = None, unfenced: bool = False
) -> HeldLock:
    """Wait at most `timeout_seconds` (0: one try) for the lock called `name`. An `unfenced` holder never loses it to others.

    Takes the lock from a holder that has had it for longer than `stale_seconds` (None: never). Raises
    TransactionInFlight when it is held for all that time. Polls instead of blocking in the driver, so that signals
    (Dagster's termination, Ctrl-C) reach the waiting thread.
    """
    lock: _Lock
    if engine.dialect.name == "sqlite":
        database = engine.url.database
        assert database is not None
        lock = _FileLock(Path(f"{database}.locks"), name, unfenced)
    else:
        lock = _AdvisoryLock(engine, name, unfenced)
    acquired = False
    try:
        deadline = time.monotonic() + timeout_seconds
        wait = _FIRST_WAIT_SECONDS
        while not (acquired := lock.try_acquire()):
            if stale_seconds is not None and (hung := lock.take_away(stale_seconds)) is not None:
                _LOG.warning(
                    "%s: taking its lock from %s, which has held it for more than %g s", name, hung, stale_seconds
                )
                # Retry soon; it may still fail if another process is faster or the server is slow to release.
                wait = _FIRST_WAIT_SECONDS
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TransactionInFlight(
                    f"{name}: its lock was not free within {timeout_seconds:g} s, held by {lock.holder()}. "
                    "Begin, commit, recover and abort of one table take turns. Try again; if the holder hangs, kill it: "
                    "that releases its lock at once."
                )
            time.sleep(min(wait, remaining))
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    finally:
        if not acquired:
            lock.release()
    return lock


class _FileLock:
    """A lock on a file, which is deleted only to take the lock away; processes that have the deleted file open reopen it."""

    def __init__(self, folder: Path, name: str, unfenced: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._unfenced = unfenced
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()
        self._file = self._open(self._path)

    @staticmethod
    def _open(path: Path) -> IO[str]:
        # A separate open file description, so that flock also excludes other threads of this process.
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")

    def try_acquire(self) -> bool:
        with self._one_at_a_time() as my_turn:
            if not my_turn:
                return False
            if not self._is_in_place():
                self._file.close()
                self._file = self._open(self._path)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            since = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._file.seek(0)
            self._file.truncate()
            held_from = _UNFENCED if self._unfenced else f"{time.monotonic()}"
            self._file.write(f"{Owner.this_process()} since {since}\n{self._name}\n{held_from}\n")
            self._file.flush()
            return True

    def holder(self) -> str:
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            lines = []
        return f"{lines[0] if lines else 'unknown'} (lock file {self._path})"

    def take_away(self, stale_seconds: float) -> str | None:
        with self._one_at_a_time() as my_turn:
            if not my_turn:
                return None
            since = self._held_from()
            if since is None or time.monotonic() - since <= stale_seconds or not self._is_held():
                return None
            hung = self.holder()
            self._path.unlink()
            return hung

    def _held_from(self) -> float | None:
        """Return the monotonic time of the acquisition, None when the lock may not be taken away.

        Locks do not survive a reboot, and neither does that clock.
        """
        try:
            return float(self._path.read_text().splitlines()[2])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    @contextmanager
    def _one_at_a_time(self) -> Iterator[bool]:
        """Yield whether this process may inspect and take the lock now.

        If two did so at once, one could take away a file that the other has just locked and not yet stamped with its time.
        """
        with self._open(self._path.with_suffix(".taking")) as gate:
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                # Closing alone would leave it locked by a child forked meanwhile.
                fcntl.flock(gate, fcntl.LOCK_UN)

    def _is_held(self) -> bool:
        with self._open(self._path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        # Unlock first: closing alone would leave the lock with a forked child that inherited the descriptor.
        try:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            _LOG.warning("%s: unlocking %s failed (%s); closing the file releases it", self._name, self._path, error)
        finally:
            self._file.close()


class _AdvisoryLock:
    def __init__(self, engine: sa.Engine, name: str, unfenced: bool) -> None:
        self._name = name
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        self._connection = engine.connect()
        try:
            # Never returned to the pool: closing the session releases the lock whatever went wrong.
            self._connection.detach()
            # The server's timeouts would end a session that is idle in a transaction.
            commit_each_statement(self._connection)
            # The server keeps only 63 bytes, so the pid comes before the host name, which may be long.
            kind = f"{_UNFENCED} process" if unfenced else "process"
            holder = f"hudi-ingest {kind} {os.getpid()} on {socket.gethostname()}"[:63]
            self._connection.execute(sa.select(sa.func.set_config("application_name", holder, False)))
        except BaseException:
            self._connection.close()
            raise

    def try_acquire(self) -> bool:
        return self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one() is True

    def holder(self) -> str:
        backend = self._connection.execute(
            sa.text(f"SELECT a.application_name, a.client_addr, a.pid {_HOLDERS}"), self._halves()
        ).first()
        if backend is None:
            return "unknown (it was released just now)"
        return f"{backend[0] or 'unnamed'} from {backend[1] or 'the server itself'} (backend {backend[2]})"

    def take_away(self, stale_seconds: float) -> str | None:
        # The holder's connection does nothing else, so its last state change was when it took the lock.
        try:
            ended = self._connection.execute(
                sa.text(
                    "SELECT a.application_name, pg_terminate_backend(a.pid)"
                    f"{_HOLDERS} AND a.state_change < now() - make_interval(secs => :stale)"
                    " AND a.application_name NOT LIKE :kept"
                ),
                {**self._halves(), "stale": stale_seconds, "kept": f"hudi-ingest {_UNFENCED} %"},
            ).first()
        except sa.exc.ProgrammingError as error:
            _LOG.warning(
                "%s: its holder uses another database role, so its session cannot be terminated (%s)",
                self._name,
                error.orig,
            )
            return None
        return str(ended[0]) if ended is not None and ended[1] else None

    def _halves(self) -> dict[str, int]:
        # pg_locks shows a 64-bit key as its two halves, with objsubid 1.
        return {"high": (self._key >> 32) & 0xFFFFFFFF, "low": self._key & 0xFFFFFFFF}

    def release(self) -> None:
        try:
            self._connection.execute(sa.select(sa.func.pg_advisory_unlock_all()))
        except sa.exc.SQLAlchemyError as error:
            _LOG.warning(
                "%s: the connection broke while it held the lock; another process may have taken it (%s)",
                self._name,
                error,
            )
            self._connection.invalidate()
        finally:
            self._connection.close()
