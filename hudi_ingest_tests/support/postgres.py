"""A PostgreSQL server of a test's own, which may be killed and started again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from hudi_ingest.local.postgresql import programs, run, running

__all__ = ["LOGGED", "counted", "programs", "restart", "running"]

LOGGED = {"log_statement": "all", "log_connections": "on", "log_line_prefix": "'<%d> '"}
"""Settings of a server whose connections and statements are `counted`."""


def counted(url: sa.URL, work: Callable[[], object]) -> tuple[int, int]:
    """How many connections and statements of this database `work` needs. `url`: of a LOGGED server."""
    log = _data(url) / "log"
    start = log.stat().st_size
    work()
    lines = log.read_bytes()[start:].decode().splitlines()
    ours = [line for line in lines if line.startswith(f"<{url.database}>")]
    return sum("connection authorized" in line for line in ours), sum(" statement: " in line for line in ours)


def restart(url: str) -> None:
    """Kill all of the server's processes, and return when it has recovered."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    data = _data(sa.make_url(url))
    user = data.owner() if os.geteuid() == 0 else None
    run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "immediate", "-l", data / "log", "restart")


def _data(url: sa.URL) -> Path:
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        return Path(connection.execute(sa.text("SHOW data_directory")).scalar_one())
