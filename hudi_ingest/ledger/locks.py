"""One lock a Hudi table, held across processes, and let go by the kernel or the server when its holder dies.

SQLite ledgers: `flock` on `<database>.locks/<sha256 of the table>`, so the lock holds on one machine, as the ledger does.
PostgreSQL ledgers: a session's advisory lock on a connection of its own. A pooler in transaction mode (pgbouncer) breaks
session locks: give the ledger a direct connection or a pooler in session mode.

Not reentrant: a thread that asks again for a lock it holds waits for itself until the timeout.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.ledger.owner import Owner

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.1


class HeldLock(Protocol):
    """A lock that this thread holds."""

    def release(self) -> None:
        """Gives the lock up. Never raises: what was done under the lock is done; a lock lost meanwhile is logged."""


class _Lock(HeldLock, Protocol):
    def try_acquire(self) -> bool: ...

    def holder(self) -> str:
        """Who holds it, for an error's text."""


def acquire(engine: sa.Engine, name: str, timeout_seconds: float) -> HeldLock:
    """Waits at most `timeout_seconds` (0: one try) for the lock called `name`.

    Raises TransactionInFlight when another holds it all that time. Polls instead of blocking in the driver, so that
    signals (Dagster's termination, Ctrl-C) reach the waiting thread.
    """
    lock: _Lock
    if engine.dialect.name == "sqlite":
        database = engine.url.database
        assert database is not None
        lock = _FileLock(Path(f"{database}.locks"), name)
    else:
        lock = _AdvisoryLock(engine, name)
    acquired = False
    try:
        deadline = time.monotonic() + timeout_seconds
        wait = _FIRST_WAIT_SECONDS
        while not (acquired := lock.try_acquire()):
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
    """The file is never deleted: a waiter would lock the deleted file while a newcomer locks a new one."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()
        # An open file description of its own, so that flock is exclusive between threads of one process too.
        self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")

    def try_acquire(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"{Owner.this_process()} since {since}\n{self._name}\n")
        self._file.flush()
        return True

    def holder(self) -> str:
        lines = self._path.read_text().splitlines()
        return f"{lines[0] if lines else 'unknown'} (lock file {self._path})"

    def release(self) -> None:
        # Closing alone would leave the lock with a forked child that inherited the descriptor, so unlock first.
        try:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            _LOG.warning("%s: unlocking %s failed (%s); closing the file frees it", self._name, self._path, error)
        finally:
            self._file.close()


class _AdvisoryLock:
    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._name = name
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        # Autocommit: a session that waits idle inside a transaction would be ended by the server's time limits.
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            # The server keeps 63 bytes: the number first, for host names may be long.
            name_of_holder = f"hudi-ingest process {os.getpid()} on {socket.gethostname()}"[:63]
            named = sa.select(sa.func.set_config("application_name", name_of_holder, False))
            self._connection.execute(named)
        except BaseException:
            self._connection.close()
            raise

    def try_acquire(self) -> bool:
        return self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one() is True

    def holder(self) -> str:
        # A lock of one 64-bit key shows as its two halves, with objsubid 1.
        found = self._connection.execute(
            sa.text(
                "SELECT a.application_name, a.client_addr, a.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
                " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
                " AND l.classid::bigint = :high AND l.objid::bigint = :low"
                " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ),
            {"high": (self._key >> 32) & 0xFFFFFFFF, "low": self._key & 0xFFFFFFFF},
        ).first()
        if found is None:
            return "unknown (it was released just now)"
        return f"{found[0] or 'unnamed'} from {found[1] or 'the server itself'} (backend {found[2]})"

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
