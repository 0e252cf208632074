"""A PostgreSQL server of a test's own, which may be killed and started again."""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from hudi_ingest.local.postgresql import programs, run, running

__all__ = ["programs", "restart", "running"]


def restart(url: str) -> None:
    """Kill all of the server's processes, and return when it has recovered."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    with sa.create_engine(url).connect() as connection:
        data = Path(connection.execute(sa.text("SHOW data_directory")).scalar_one())
    user = data.owner() if os.geteuid() == 0 else None
    run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "immediate", "-l", data / "log", "restart")
