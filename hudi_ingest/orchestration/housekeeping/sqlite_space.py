"""Returns the space of deleted rows in SQLite databases to the disk, without keeping other writers waiting for long.

A database whose `auto_vacuum` is incremental gives back some pages at a time. Others need one VACUUM to become like that, for which
other writers wait while the rest is copied, so it is done only where little is left to copy. In larger ones new rows fill the
space.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

PAGES_AT_ONCE = 2000
"""Some milliseconds, and 8 MB with pages of the usual size."""
LEAST_FREE_BYTES = 8 << 20
"""Less than this is not worth it: the next rows fill it."""
MOST_COPIED_BYTES = 128 << 20
"""A VACUUM of that takes one or two seconds."""
_BUSY_SECONDS = 5.0
_INCREMENTAL = 2


def stored_bytes(databases: Iterable[Path]) -> int:
    """Return the size of the databases with their write-ahead logs."""
    files = [file for database in databases for file in (database, with_suffix(database, "wal"))]
    return sum(file.stat().st_size for file in files if file.exists())


def with_suffix(database: Path, suffix: str) -> Path:
    """Return the file that SQLite keeps beside the database, `wal` or `shm`."""
    return database.with_name(f"{database.name}-{suffix}")


def empty_log(database: Path) -> int:
    """Copy a write-ahead log that a process has left behind into the database, and return how much smaller both are. Leaves it if
    another process has the database open. Raises sqlite3.DatabaseError."""
    before = stored_bytes([database])
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before - stored_bytes([database])


def shrink(database: Path) -> None:
    """Give free pages back. Does nothing if there is no such file, and leaves what is left for the next time if other processes are
    in the way. Raises sqlite3.DatabaseError."""
    if not database.exists():
        return
    try:
        with closing(sqlite3.connect(database, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            _shrink(connection)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise


def _shrink(connection: sqlite3.Connection) -> None:
    page_bytes, pages, free = (_number(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    if free * page_bytes < LEAST_FREE_BYTES:
        return
    if _number(connection, "auto_vacuum") == _INCREMENTAL:
        for _ in range(0, free, PAGES_AT_ONCE):
            # Each is a transaction of its own. As a script, because `execute` takes only the first step, which is one page.
            connection.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
    elif (pages - free) * page_bytes <= MOST_COPIED_BYTES and free * 2 >= pages:
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")
    else:
        return
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
