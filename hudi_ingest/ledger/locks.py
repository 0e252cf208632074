"""One lock a Hudi table, held across processes, and let go by the kernel or the server when its holder dies.

SQLite ledgers: `flock` on `<database>.locks/<sha256 of the table>`, so the lock holds on one machine, as the ledger does.
PostgreSQL ledgers: a session's advisory lock on a connection of its own. A pooler in transaction mode (pgbouncer) breaks
session locks: give the ledger a direct connection or a pooler in session mode.

A holder that does not die but hangs (a stopped process, a lost machine behind an open connection) is got rid of after
`stale_seconds`: the lock is taken away from it. What it does when it wakes up must therefore be safe without the lock; for a
table's transactions the epoch and the guard inside Hudi's lock see to that. One that nothing fences says so, and keeps the
lock for as long as it lives.

For how long it is held is told by the machine's monotonic clock, or by the server's, so that setting this machine's clock
takes no lock from a living holder.

Not reentrant: a thread that asks again for a lock it holds waits for itself until the timeout.
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
from hudi_ingest.ledger.owner import Owner

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.1
_UNFENCED = "unfenced"
"""Said by a holder from whom the lock may not be taken away."""
_HOLDERS = """
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.classid::bigint = :high AND l.objid::bigint = :low
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class HeldLock(Protocol):
    """A lock that this thread holds."""

    def release(self) -> None:
        """Gives the lock up. Never raises: what was done under the lock is done; a lock lost meanwhile is logged."""


class _Lock(HeldLock, Protocol):
    def try_acquire(self) -> bool: ...

    def holder(self) -> str:
        """Who holds it, for an error's text."""

    def take_away(self, stale_seconds: float) -> str | None:
        """Takes the lock away from whoever has held it for longer than that, and says who it was; None: nobody has."""


def acquire(
    engine: sa.Engine, name: str, timeout_seconds: float, stale_seconds: float | None = None, unfenced: bool = False
) -> HeldLock:
    """Waits at most `timeout_seconds` (0: one try) for the lock called `name`. Nobody takes it away from an `unfenced` holder.

    One that another has held for longer than `stale_seconds` is taken away from it; None: never. Raises
    TransactionInFlight when another holds it all that time. Polls instead of blocking in the driver, so that signals
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
                _LOG.warning("%s: its lock is taken away from %s, who held it for %g s", name, hung, stale_seconds)
                # The next try comes soon; it may still fail, when another is quicker or a server is slow to let go.
                wait = _FIRST_WAIT_SECONDS
            left = deadline - time.monotonic()
            if left <= 0:
                raise TransactionInFlight(
                    f"{name}: its lock was not free within {timeout_seconds:g} s, held by {lock.holder()}. "
                    "Begin, commit, recover and abort of one table take turns. Try again; when the holder hangs, "
                    "end it: its lock is then released at once."
                )
            time.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    finally:
        if not acquired:
            lock.release()
    return lock


class _FileLock:
    """The file is deleted only when the lock is taken away; whoever has the deleted one open then opens the new one."""

    def __init__(self, folder: Path, name: str, unfenced: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._unfenced = unfenced
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()
        self._file = self._open(self._path)

    @staticmethod
    def _open(path: Path) -> IO[str]:
        # An open file description of its own, so that flock is exclusive between threads of one process too.
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")

    def try_acquire(self) -> bool:
        with self._one_at_a_time() as mine:
            if not mine:
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
        with self._one_at_a_time() as mine:
            if not mine:
                return None
            since = self._held_from()
            if since is None or time.monotonic() - since <= stale_seconds or not self._is_held():
                return None
            hung = self.holder()
            self._path.unlink()
            return hung

    def _held_from(self) -> float | None:
        """By the monotonic clock; None when the lock may not be taken away. It does not outlive the machine's start, and neither
        does that clock."""
        try:
            return float(self._path.read_text().splitlines()[2])
        except (FileNotFoundError, IndexError, ValueError):
            return None

    @contextmanager
    def _one_at_a_time(self) -> Iterator[bool]:
        """Whether this one may look and take now. Two at once, and one could take away the file that the other has locked
        just now and not yet written its time into."""
        with self._open(self._path.with_suffix(".taking")) as taking:
            try:
                fcntl.flock(taking, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                # Closing alone would leave it with a child that was forked meanwhile.
                fcntl.flock(taking, fcntl.LOCK_UN)

    def _is_held(self) -> bool:
        with self._open(self._path) as found:
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        # Closing alone would leave the lock with a forked child that inherited the descriptor, so unlock first.
        try:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            _LOG.warning("%s: unlocking %s failed (%s); closing the file frees it", self._name, self._path, error)
        finally:
            self._file.close()


class _AdvisoryLock:
    def __init__(self, engine: sa.Engine, name: str, unfenced: bool) -> None:
        self._name = name
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        # Autocommit: a session that waits idle inside a transaction would be ended by the server's time limits.
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            # The server keeps 63 bytes: the number first, for host names may be long.
            kind = f"{_UNFENCED} process" if unfenced else "process"
            name_of_holder = f"hudi-ingest {kind} {os.getpid()} on {socket.gethostname()}"[:63]
            named = sa.select(sa.func.set_config("application_name", name_of_holder, False))
            self._connection.execute(named)
        except BaseException:
            self._connection.close()
            raise

    def try_acquire(self) -> bool:
        return self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one() is True

    def holder(self) -> str:
        found = self._connection.execute(
            sa.text(f"SELECT a.application_name, a.client_addr, a.pid {_HOLDERS}"), self._halves()
        ).first()
        if found is None:
            return "unknown (it was released just now)"
        return f"{found[0] or 'unnamed'} from {found[1] or 'the server itself'} (backend {found[2]})"

    def take_away(self, stale_seconds: float) -> str | None:
        # The holder's connection does nothing else, so it changed its state last when it took the lock.
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
            _LOG.warning("%s: its holder is of another database role and cannot be ended (%s)", self._name, error.orig)
            return None
        return str(ended[0]) if ended is not None and ended[1] else None

    def _halves(self) -> dict[str, int]:
        # A lock of one 64-bit key shows as its two halves, with objsubid 1.
        return {"high": (self._key >> 32) & 0xFFFFFFFF, "low": self._key & 0xFFFFFFFF}

    def release(self) -> None:
        try:
            self._connection.execute(sa.select(sa.func.pg_advisory_unlock_all()))
        except sa.exc.SQLAlchemyError as error:
            _LOG.warning(
                "%s: the lock's connection broke while it was held, others may have taken it (%s)", self._name, error
            )
            self._connection.invalidate()
        finally:
            self._connection.close()
