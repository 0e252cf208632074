"""deploy/ as plain processes: its commands with its configuration files on a PostgreSQL that asks for a password, to the first commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from hudi_ingest.embedded import webserver
from hudi_ingest.embedded.processes import ProcessRecord, free_port, start, stop, wait_until
from hudi_ingest.embedded.verification import verify
from hudi_ingest.home import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.ground import Ground, write_pipeline

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(postgres.programs() is None, reason="PostgreSQL is not installed"),
]

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
PASSWORD = "p@ss:w/o%rd #1"
READY_SECONDS = 180


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sa.URL]:
    with postgres.running(tmp_path, PASSWORD) as url:
        assert url is not None
        yield sa.make_url(url)


def commands(ui_port: int, folder: Path) -> dict[str, list[str]]:
    """What docker-compose.yaml runs, with places of this machine in place of the containers'."""
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())["services"]
    places = {"0.0.0.0": "127.0.0.1", "3000": str(ui_port), "engine-and-ops": str(folder / "engine-and-ops.sh")}
    found = {}
    for name in ("migrate", "engine", "webserver", "daemon"):
        words = [places.get(word, word).replace("/opt/dagster", str(folder)) for word in services[name]["command"]]
        found[name] = [re.sub(r"^\$\{ENGINE_MEMORY.*", "1g", word) for word in words]
    return found


def environment_of(ground: Ground, database: sa.URL, folder: Path, ui_port: int) -> dict[str, str]:
    """The containers' variables, with values for this machine."""
    text = re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", "{password}", (DEPLOY / "docker-compose.yaml").read_text())
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)
    given: dict[str, str] = yaml.safe_load(text)["services"]["engine"]["environment"]
    own = {
        "POSTGRES_HOST": "127.0.0.1",
        "POSTGRES_PORT": str(database.port),
        "POSTGRES_USER": str(database.username),
        "POSTGRES_DB": str(database.database),
        LEDGER_VARIABLE: given[LEDGER_VARIABLE]
        .replace(given["POSTGRES_USER"], str(database.username), 1)
        .replace("postgres:5432/hudi_ingest", f"127.0.0.1:{database.port}/{database.database}"),
        HOME_VARIABLE: str(ground.home.root / "home"),
        PIPELINES_VARIABLE: str(ground.home.pipelines),
        "HUDI_INGEST_TABLES": str(ground.home.root),
        "HUDI_INGEST_UI_HOSTS": f"127.0.0.1:{ui_port}",
        "KAFKA_BOOTSTRAP_SERVERS": ground.bootstrap_servers,
        "DAGSTER_HOME": str(folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    password = {name: PASSWORD for name, value in given.items() if value == "{password}"}
    assert password.keys() == {"POSTGRES_PASSWORD", "PGPASSWORD"}
    return {**os.environ, **given, **own, **password}


def test_r10_each_command_of_deploy_starts_and_a_transaction_is_committed(
    ground: Ground, topic: str, database: sa.URL, tmp_path: Path
) -> None:
    folder = tmp_path / "dagster"
    folder.mkdir()
    for name in ("dagster.yaml", "workspace.yaml", "engine-and-ops.sh"):
        copy = folder / name
        copy.write_text((DEPLOY / name).read_text().replace("/var/lib/dagster", str(folder)))
        copy.chmod(0o755)
    write_pipeline(ground)
    ground.send_rows(0, 40)
    ui_port = free_port()
    url, run = f"http://127.0.0.1:{ui_port}", commands(ui_port, folder)
    environment = environment_of(ground, database, folder, ui_port)
    migrated = subprocess.run(run["migrate"], env=environment, capture_output=True, text=True, timeout=READY_SECONDS)
    assert migrated.returncode == 0, migrated.stderr
    with ExitStack() as started:

        def bring_up(name: str) -> ProcessRecord:
            record = start(name, run[name], log=tmp_path / f"{name}.log", env=environment)
            started.callback(stop, [record])
            return record

        engine = bring_up("engine")
        wait_until(
            (folder / "code.sock").exists,
            what="the code server serves",
            timeout_seconds=READY_SECONDS,
            records_to_watch=[engine],
        )
        validated = subprocess.run(
            ["dagster", "definitions", "validate", "-w", str(folder / "workspace.yaml")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        assert validated.returncode == 0, validated.stdout + validated.stderr
        others = [bring_up("webserver"), bring_up("daemon")]
        for ready, what in (
            (lambda: webserver.sensors(url) == [f"{ground.name}_coordinator"], "the webserver has loaded the pipeline"),
            (lambda: webserver.daemons_are_healthy(url), "the daemon is well"),
        ):
            wait_until(ready, what=what, timeout_seconds=READY_SECONDS, records_to_watch=others)
        webserver.start_sensor(url, f"{ground.name}_coordinator")

        def is_committed() -> bool:
            return Path(ground.base_path).exists() and verify(ground.base_path, ground.produced).exact

        wait_until(
            is_committed,
            what="the first commit",
            timeout_seconds=READY_SECONDS,
            records_to_watch=[engine, *others],
        )
        status = subprocess.run(
            ["hudi-ingest", "status", "--json"], env=environment, capture_output=True, text=True, timeout=READY_SECONDS
        )
        assert status.returncode == 0, status.stderr
        assert '"committed"' in status.stdout
        assert PASSWORD not in status.stdout + status.stderr
