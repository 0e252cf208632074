"""PostgreSQL connections that give up a server which does not answer.

A server that is stopped, or whose disk hangs, applies no timeout of its own, and its kernel goes on acknowledging packets, so no
timeout of TCP ends the wait either.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import connection, cursor

SECONDS = 45.0
"""More than the server's own limits, whose errors say more."""


class LimitedConnection(connection):  # type: ignore[misc]
    """Waits at most `SECONDS` for each answer. Then it raises OperationalError, and is closed."""

    def commit(self) -> None:
        with _limited(self):
            super().commit()

    def rollback(self) -> None:
        with _limited(self):
            super().rollback()


class LimitedCursor(cursor):  # type: ignore[misc]
    """A cursor of a LimitedConnection."""

    def execute(self, *arguments: Any) -> None:
        with _limited(self.connection):
            super().execute(*arguments)


@contextmanager
def _limited(waiting: connection) -> Iterator[None]:
    if waiting.closed:
        yield
        return
    gave_up = threading.Event()

    def give_up() -> None:
        gave_up.set()
        # Ends the wait inside libpq as if the server had closed the connection. Its own descriptor stays its own.
        with socket.socket(fileno=os.dup(waiting.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg2.Error as error:
        if not gave_up.is_set():
            raise
        waiting.close()
        raise psycopg2.OperationalError(f"the server has not answered within {SECONDS:g} s") from error
    finally:
        timer.cancel()
        # No thread of it is left where the process may be forked.
        timer.join()
