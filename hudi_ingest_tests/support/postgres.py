"""A PostgreSQL server of one's own, from the programs that the machine has."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hudi_ingest.local.processes import free_port


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; None when PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return found[-1] if found else None


@contextmanager
def running(root: Path, password: str = "") -> Iterator[str | None]:
    """The URL, without the password, of an empty database on the loopback interface, gone afterwards; None when PostgreSQL is
    not installed. Without `password` the server trusts everybody."""
    folder = programs()
    if folder is None:
        yield None
        return
    data, port = root / "postgres", free_port()
    data.mkdir()
    user: str | None = None
    if os.geteuid() == 0:
        # The server refuses to run as root.
        user = "postgres" if "postgres" in {each.pw_name for each in pwd.getpwall()} else "nobody"
        shutil.chown(data, user)
        for each in [root, *root.parents]:
            if each.owner() == "root" and each.stat().st_mode & 0o001 == 0:
                each.chmod(each.stat().st_mode | 0o011)
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    asks = ["-A", "scram-sha-256", "--pwfile", root / "password"] if password else ["-A", "trust"]
    if password:
        (root / "password").write_text(password)
        if user:
            shutil.chown(root / "password", user)
    _run(user, folder / "initdb", "-D", data, "-U", "ledger", *asks, "-E", "UTF8")
    _run(user, folder / "pg_ctl", "-D", data, "-w", "-o", settings, "-l", data / "log", "start")
    try:
        yield f"postgresql+psycopg2://ledger@127.0.0.1:{port}/postgres"
    finally:
        _run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")


def _run(user: str | None, *command: object) -> None:
    done = subprocess.run(
        [str(each) for each in command], user=user, capture_output=True, text=True, timeout=120, cwd="/", check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr or done.stdout}"
