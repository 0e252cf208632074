"""A PostgreSQL server of a test's own, which may be killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from hudi_ingest.home.liveness import first_listening
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest_tests.lab.postgresql import programs, run, running
from hudi_ingest_tests.support.waiting import wait_for

__all__ = ["LOGGED", "counted", "pooled", "programs", "restart", "running"]

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


@contextmanager
def pooled(url: str, connections: int = 1) -> Iterator[str | None]:
    """Yield the URL of a PgBouncer in transaction mode, with so many connections to that server; None if it is not installed."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        yield None
        return
    server, port = sa.make_url(url), free_port()
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-pgbouncer-") as folder:
        users, settings = Path(folder, "users.txt"), Path(folder, "pgbouncer.ini")
        users.write_text(f'"{server.username}" ""\n')
        settings.write_text(
            f"[databases]\n* = host={server.host} port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = {LOOPBACK}\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = {connections}\n"
        )
        os.chmod(folder, 0o755)
        # It refuses to run as root.
        user = _data(server).owner() if os.geteuid() == 0 else None
        with subprocess.Popen([program, "-q", settings], user=user, stderr=subprocess.DEVNULL) as process:
            try:
                wait_for(lambda: first_listening([f"{LOOPBACK}:{port}"])[0], "PgBouncer listens")
                yield server.set(port=port).render_as_string(hide_password=False)
            finally:
                process.kill()
