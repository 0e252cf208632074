"""Locks that are rows of the ledger: one per Hudi table, held across processes and machines, whatever pools the connections.

A holder renews its row while it lives. The lock is free for others as soon as its row is gone; as soon as its holder is dead, if both
run on one host; and after LEASE_SECONDS without a renewal in any other case. A holder that hangs while it renews loses the lock after
`stale_seconds`. Whatever a holder does after that must be safe without the lock: for a table's transactions, the epoch and the guard
inside Hudi's lock ensure it. A holder that nothing fences says so: it is never stale, and has UNFENCED_LEASE_SECONDS.

All times are the database's: those of PostgreSQL's server, or of the monotonic clock of the one machine that uses a SQLite file. So
setting this machine's clock takes no lock from a living holder.

Not reentrant: a thread that requests a lock it already holds waits for itself until the timeout.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hudi_ingest.exceptions import IngestError, TransactionInFlight
from hudi_ingest.ledger.database import Database, inserting
from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.ledger.tables import LOCKS

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 0.005
_LONGEST_WAIT_SECONDS = 0.1
RENEWAL_SECONDS = 10.0
LEASE_SECONDS = 45.0
"""Less than a begin waits for the lock, so that it outlasts a holder that was killed on another machine."""
_held: set[str] = set()
"""The tokens of the locks that this process holds, or is about to."""
UNFENCED_LEASE_SECONDS = 600.0
"""Nothing would stop a merge of files that has lost its lock, so a pause of minutes costs it nothing."""


@dataclass(frozen=True, slots=True)
class LockRow:
    """A lock that somebody holds. The times are seconds by the database's clock, whose zero is the database's own."""

    token: str
    """The mark of one acquisition, and no other."""
    owner: Owner
    holder: str
    unfenced: bool
    taken_at: float
    renewed_at: float

    def lost_because(self, now: float, stale_seconds: float | None, ended: bool) -> str:
        """Return why the lock may be taken from its holder; "" if it may not. `ended`: whether the holder provably has."""
        if ended:
            return "which has ended or let go of it"
        lease = UNFENCED_LEASE_SECONDS if self.unfenced else LEASE_SECONDS
        # Before its renewal: the clock was set back, or is that of a machine that has been restarted since.
        if not -lease <= now - self.renewed_at <= lease:
            return f"which has not renewed it for more than {lease:g} s"
        if stale_seconds is not None and not self.unfenced and now - self.taken_at > stale_seconds:
            return f"which has held it for more than {stale_seconds:g} s"
        return ""


def acquire(
    database: Database, name: str, timeout_seconds: float, stale_seconds: float | None = None, unfenced: bool = False
) -> HeldLock:
    """Wait at most `timeout_seconds` (0: one try) for the lock called `name`. An `unfenced` holder is never stale.

    Takes the lock from a holder that has had it for longer than `stale_seconds` (None: never). Raises
    TransactionInFlight when it is held for all that time. Polls instead of blocking in the driver, so that signals
    (Dagster's termination, Ctrl-C) reach the waiting thread.
    """
    lock = HeldLock(database, name, unfenced)
    deadline = time.monotonic() + timeout_seconds
    wait = _FIRST_WAIT_SECONDS
    found: LockRow | None = None
    why = ""
    while not ((found is None or why) and lock.take(found)):
        found, now = _look(database, name)
        if found is None:
            continue
        why = found.lost_because(now, stale_seconds, _has_ended(found))
        if why:
            _LOG.warning("%s: taking its lock from %s, %s", name, found.holder, why)
            continue
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TransactionInFlight(
                f"{name}: its lock was not free within {timeout_seconds:g} s, held by {found.holder}. "
                "Begin, commit, recover and abort of one table take turns. Try again; if the holder hangs, kill it: that "
                f"releases its lock, at once for processes on the same host and within {LEASE_SECONDS:g} s for others."
            )
        time.sleep(min(wait, remaining))
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    lock.keep()
    return lock


class HeldLock:
    """A lock that this thread holds, and a thread of its own renews."""

    def __init__(self, database: Database, name: str, unfenced: bool) -> None:
        self._database = database
        self._name = name
        self._unfenced = unfenced
        self._token = uuid.uuid4().hex
        self._mine = sa.and_(LOCKS.c.name == name, LOCKS.c.token == self._token)
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"renews the lock of {name}", daemon=True)

    def take(self, found: LockRow | None) -> bool:
        """Write this lock's row unless another is there; in the place of `found`, if that is unchanged. Return whether it did."""
        _held.add(self._token)
        taken = False
        try:
            with self._database.writing() as connection:
                now = _now(connection)
                values = {
                    "token": self._token,
                    "owner": str(Owner.this_process()),
                    "holder": f"process {os.getpid()} on {socket.gethostname()}",
                    "unfenced": self._unfenced,
                    "taken_at": now,
                    "renewed_at": now,
                }
                if found is None:
                    insert = inserting(connection, LOCKS).values(name=self._name, **values).on_conflict_do_nothing()
                    rows = connection.execute(insert).rowcount
                else:
                    unchanged = (LOCKS.c.name == self._name) & (LOCKS.c.token == found.token)
                    taking = LOCKS.update().where(unchanged, LOCKS.c.renewed_at == found.renewed_at).values(values)
                    rows = connection.execute(taking).rowcount
            taken = rows == 1
        finally:
            if not taken:
                # The row may be there although the answer was lost.
                _held.discard(self._token)
        return taken

    def keep(self) -> None:
        """Renew the lock until it is released."""
        self._renewing.start()

    def release(self) -> None:
        """Release the lock. Never raises, because the work under the lock is done; logs a lock lost meanwhile."""
        self._released.set()
        # No thread of it is left where the process may be forked.
        self._renewing.join()
        _held.discard(self._token)
        try:
            with self._database.writing() as connection:
                kept = connection.execute(LOCKS.delete().where(self._mine)).rowcount
        except IngestError as error:
            _LOG.warning(
                "%s: its lock could not be released, and is free as soon as it has not been renewed for %g s (%s)",
                self._name,
                UNFENCED_LEASE_SECONDS if self._unfenced else LEASE_SECONDS,
                error,
            )
            return
        if not kept:
            _LOG.warning("%s: its lock was lost while this process held it; another may have taken it", self._name)

    def _renew(self) -> None:
        while not self._released.wait(RENEWAL_SECONDS):
            try:
                with self._database.writing() as connection:
                    renewal = LOCKS.update().where(self._mine).values(renewed_at=_now(connection))
                    kept = connection.execute(renewal).rowcount
            except IngestError as error:
                _LOG.warning("%s: its lock could not be renewed, which is tried again soon (%s)", self._name, error)
                continue
            if not kept:
                # Its release says so.
                return


def _has_ended(found: LockRow) -> bool:
    """Whether the holder is provably dead, or is this process and has let go of the lock while the ledger was away."""
    # The other way round, a lock that is taken in between would be another's.
    tokens = {*_held}
    return is_dead(found.owner, lambda _run: None) or (
        found.owner == Owner.this_process() and found.token not in tokens
    )


def _look(database: Database, name: str) -> tuple[LockRow | None, float]:
    """Return who holds the lock, None if nobody does, and the database's time."""
    statement = sa.select(LOCKS, sa.label("now", _now_in(database.is_sqlite))).where(LOCKS.c.name == name)
    with database.reading() as connection:
        row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        return None, 0.0
    held = LockRow(
        row["token"],
        Owner.parse(row["owner"]),
        row["holder"],
        row["unfenced"],
        row["taken_at"],
        row["renewed_at"],
    )
    return held, float(row["now"])


def _now(connection: sa.Connection) -> sa.ColumnElement[Any]:
    return _now_in(connection.dialect.name == "sqlite")


def _now_in(sqlite: bool) -> sa.ColumnElement[Any]:
    """Return the database's time in seconds, which no clock of a client moves."""
    if sqlite:
        return sa.literal(time.monotonic(), sa.Double)
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
