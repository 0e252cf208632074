"""A PostgreSQL server of one's own, from the programs that the machine has."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from hudi_ingest.local.processes import free_port


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; None when PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else None


@contextmanager
def running(password: str = "") -> Iterator[str | None]:
    """The URL, without the password, of an empty database on the loopback interface, gone afterwards; None when PostgreSQL is
    not installed. Without `password` the server trusts everybody."""
    folder = programs()
    if folder is None:
        yield None
        return
    port = free_port()
    # Not in a folder of pytest's: each new session closes those of the others to other users, such as the server's.
    data = Path(tempfile.mkdtemp(prefix="hudi-ingest-postgres-"))
    user: str | None = None
    if os.geteuid() == 0:
        # The server refuses to run as root.
        user = "postgres" if "postgres" in {each.pw_name for each in pwd.getpwall()} else "nobody"
        shutil.chown(data, user)
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    secret = data.with_suffix(".password")
    asks = ["-A", "scram-sha-256", "--pwfile", secret] if password else ["-A", "trust"]
    if password:
        secret.write_text(password)
        if user:
            shutil.chown(secret, user)
    try:
        _run(user, folder / "initdb", "-D", data, "-U", "ledger", *asks, "-E", "UTF8")
        _run(user, folder / "pg_ctl", "-D", data, "-w", "-o", settings, "-l", data / "log", "start")
        try:
            yield f"postgresql+psycopg2://ledger@127.0.0.1:{port}/postgres"
        finally:
            _run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
    finally:
        secret.unlink(missing_ok=True)
        shutil.rmtree(data)


def restart(url: str) -> None:
    """Kill all of the server's processes, and return when it has recovered."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    with sa.create_engine(url).connect() as connection:
        data = Path(connection.execute(sa.text("SHOW data_directory")).scalar_one())
    user = data.owner() if os.geteuid() == 0 else None
    _run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "immediate", "-l", data / "log", "restart")


def _run(user: str | None, *command: object) -> None:
    done = subprocess.run(
        [str(each) for each in command], user=user, capture_output=True, text=True, timeout=120, cwd="/", check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr or done.stdout}"
