"""A PostgreSQL server of its own, on the loopback interface only, from the programs that the machine has."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import write_private
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest.local.progress import Report
from hudi_ingest_tests.lab.progress import elapsed

COMMAND_SECONDS = 120


def programs() -> Path | None:
    """Return the folder of initdb and pg_ctl; None if PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


@contextmanager
def running(password: str = "", more: Mapping[str, str] | None = None) -> Iterator[str | None]:
    """Yield the URL, without the password, of an empty database, which is gone afterwards; None if PostgreSQL is not installed.

    Without `password` the server trusts every user of this machine. `more`: postgresql.conf settings that override ours. Raises
    EnvironmentProblem if it does not start.
    """
    folder = programs()
    if folder is None:
        yield None
        return
    port = free_port()
    # Below the temporary folder, because the server's user may not be able to enter this user's folders.
    data = Path(tempfile.mkdtemp(prefix="hudi-ingest-postgres-"))
    secret = data.with_suffix(".password")
    user = _server_user()
    values = {"listen_addresses": LOOPBACK, "unix_socket_directories": "''", "fsync": "off", **(more or {})}
    settings = " ".join([f"-p {port}", *(f"-c {name}={value}" for name, value in values.items())])
    try:
        if user is not None:
            shutil.chown(data, user)
        login = ["-A", "trust"]
        if password:
            login = ["-A", "scram-sha-256", "--pwfile", str(secret)]
            write_private(secret, password)
            if user is not None:
                shutil.chown(secret, user)
        run(user, folder / "initdb", "-D", data, "-U", "ledger", *login, "-E", "UTF8")
        try:
            run(user, folder / "pg_ctl", "-D", data, "-w", "-o", settings, "-l", data / "log", "start")
            yield f"postgresql+psycopg2://ledger@{LOOPBACK}:{port}/postgres"
        finally:
            # Also after a start that was interrupted or took too long.
            if (data / "postmaster.pid").exists():
                run(user, folder / "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
    finally:
        secret.unlink(missing_ok=True)
        shutil.rmtree(data)


@contextmanager
def private(report: Report, more: Mapping[str, str] | None = None) -> Iterator[sa.URL]:
    """Yield the URL, with the password, of an empty database that asks for it, as `running`. PostgreSQL is installed."""
    password = secrets.token_hex(20)
    with ExitStack() as started:
        with elapsed(report, "starting PostgreSQL"):
            url = started.enter_context(running(password, more))
        assert url is not None, "it is installed"
        started.callback(report, "stopping PostgreSQL")
        yield sa.make_url(url).set(password=password)


def run(user: str | None, *command: object) -> None:
    """Run one of PostgreSQL's programs, as that user if not None. Raises EnvironmentProblem with what it said."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, user=user, capture_output=True, text=True, timeout=COMMAND_SECONDS, cwd="/", check=False
        )
        problem = (done.stderr or done.stdout).strip() if done.returncode else None
    except subprocess.TimeoutExpired:
        problem = f"it did not end within {COMMAND_SECONDS} s"
    if problem is not None:
        raise EnvironmentProblem(
            f"PostgreSQL could not be started or stopped: `{' '.join(words)}` failed: {' '.join(problem.split()) or 'no output'}. "
            "Repair the installation, or take it off PATH."
        )


def _server_user() -> str | None:
    """Return the user to run the server as; None for this one. The server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
