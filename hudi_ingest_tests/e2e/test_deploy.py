"""deploy/ as plain processes: its commands with its configuration files on a PostgreSQL that asks for a password, to the first commit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from dagster import DagsterInstance

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.ledger import Ledger
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest.local.processes import ProcessRecord, free_port, start, stop, wait_until
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.ground import Ground, write_pipeline

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason="PostgreSQL is not installed")

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
PASSWORD = "p@ss:w/o%rd #1"
TOKEN = "a-token-of-thirty-two-characters"
READY_SECONDS = 180


@pytest.fixture
def database() -> Iterator[sa.URL]:
    with postgres.running(PASSWORD) as url:
        assert url is not None
        yield sa.make_url(url)


def commands(ui_port: int, folder: Path) -> dict[str, list[str]]:
    """What the compose files run, behind the image's entrypoint, with places of this machine in place of the containers'."""
    services: dict[str, Any] = {}
    for file in ("docker-compose.yaml", "docker-compose.rest.yaml"):
        services |= yaml.safe_load((DEPLOY / file).read_text())["services"]
    places = {
        "0.0.0.0": "127.0.0.1",
        "3000": str(ui_port),
        "engine-and-ops": str(folder / "engine-and-ops.sh"),
        "8470": str(ui_port),
        "/run/secrets/rest_token": str(folder / "token"),
        "/run/secrets/rest_read_token": str(folder / "read-token"),
    }
    found = {}
    for name in ("migrate", "engine", "webserver", "daemon", "rest"):
        words = [places.get(word, word).replace("/opt/dagster", str(folder)) for word in services[name]["command"]]
        words = [re.sub(r"^\$\{ENGINE_MEMORY.*", "1g", word) for word in words]
        found[name] = [str(folder / "with-secrets.sh"), *words]
    return found


def kubernetes_container(file: str) -> dict[str, Any]:
    """The one of a file in kubernetes/."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text())
    (workload,) = [each for each in documents if each["kind"] in ("StatefulSet", "Deployment")]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """DAGSTER_HOME, with the configuration files of deploy/ for this machine."""
    found = tmp_path / "dagster"
    found.mkdir()
    for name in ("dagster.yaml", "workspace.yaml", "engine-and-ops.sh", "with-secrets.sh"):
        copy = found / name
        copy.write_text((DEPLOY / name).read_text().replace("/var/lib/dagster", str(found)))
        copy.chmod(0o755)
    return found


def environment_of(home: Path, database: sa.URL, folder: Path) -> dict[str, str]:
    """The containers' variables, with values for this machine."""
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", (DEPLOY / "docker-compose.yaml").read_text())
    given: dict[str, str] = yaml.safe_load(text)["services"]["engine"]["environment"]
    own = {
        "POSTGRES_HOST": "127.0.0.1",
        "POSTGRES_PORT": str(database.port),
        "POSTGRES_USER": str(database.username),
        "POSTGRES_DB": str(database.database),
        LEDGER_VARIABLE: given[LEDGER_VARIABLE]
        .replace(given["POSTGRES_USER"], str(database.username), 1)
        .replace("postgres:5432/hudi_ingest", f"127.0.0.1:{database.port}/{database.database}"),
        HOME_VARIABLE: str(home),
        "DAGSTER_HOME": str(folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    secret = folder / "password"
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o400)
    files = {name: str(secret) for name, value in given.items() if value == "/run/secrets/postgres_password"}
    assert files.keys() == {"PGPASSWORD_FILE"}
    return {**os.environ, **given, **own, **files}


def encoded_url(database: sa.URL) -> str:
    """The ledger's URL as people write it, with the password in it."""
    return database.set(drivername="postgresql", password=PASSWORD).render_as_string(hide_password=False)


def migrate(environment: dict[str, str], folder: Path) -> None:
    """Makes Dagster's tables, as the first service does."""
    command = commands(0, folder)["migrate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=READY_SECONDS)
    assert done.returncode == 0, done.stderr


def test_r10_dagsters_storage_and_the_ledger_take_any_password(
    database: sa.URL, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of(tmp_path, database, folder)
    migrate(environment, folder)
    for name in ("PGSSLMODE", *(name for name in environment if name.startswith("POSTGRES_"))):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    for url in (environment[LEDGER_VARIABLE], encoded_url(database)):
        with Ledger.open(url) as ledger:
            assert ledger.transactions.history("orders") == ()
    with DagsterInstance.from_config(str(folder)) as instance:
        assert instance.get_runs() == []


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.tier(3)
def test_r10_each_command_of_deploy_starts_and_a_transaction_is_committed(
    ground: Ground, topic: str, database: sa.URL, tmp_path: Path, folder: Path
) -> None:
    write_pipeline(ground)
    ground.send_rows(0, 40)
    ui_port = free_port()
    url, run = f"http://127.0.0.1:{ui_port}", commands(ui_port, folder)
    environment = {
        **environment_of(ground.home.root / "home", database, folder),
        PIPELINES_VARIABLE: str(ground.home.pipelines),
        "HUDI_INGEST_TABLES": str(ground.home.root),
        "HUDI_INGEST_UI_HOSTS": f"127.0.0.1:{ui_port}",
        "KAFKA_BOOTSTRAP_SERVERS": ground.bootstrap_servers,
    }
    migrate(environment, folder)
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
            [run["migrate"][0], "dagster", "definitions", "validate", "-w", str(folder / "workspace.yaml")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        assert validated.returncode == 0, validated.stdout + validated.stderr
        others = [bring_up("webserver"), bring_up("daemon")]
        for ready, what in (
            (
                lambda: COORDINATOR in (webserver.sensors(url) or ()),
                "the webserver has loaded the pipeline",
            ),
            (lambda: webserver.daemons_are_healthy(url), "the daemon is well"),
        ):
            wait_until(ready, what=what, timeout_seconds=READY_SECONDS, records_to_watch=others)
        ledger = Ledger.open(encoded_url(database))
        started.callback(ledger.dispose)
        ledger.requests.switch(ground.name, True)
        wait_until(
            lambda: [row.state for row in ledger.transactions.history(ground.name)] == [TransactionState.COMMITTED],
            what="the first commit",
            timeout_seconds=READY_SECONDS,
            records_to_watch=[engine, *others],
        )
        assert verify(ground.base_path, ground.produced).exact
        status = subprocess.run(
            [run["migrate"][0], "hudi-ingest", "status", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
        )
        assert status.returncode == 0, status.stderr
        assert '"committed"' in status.stdout
        assert PASSWORD not in status.stdout + status.stderr
        assert healthy(run["daemon"][0], "dagster-daemon", "liveness-check", env=environment)

        # The REST API as both start it, with the switch of the sensor from Dagster's storage.
        token = folder / "token"
        token.write_text(f"{TOKEN}\n")
        (folder / "read-token").write_text(f"{TOKEN}-that-reads\n")
        rest_port = free_port()
        for command in (
            commands(rest_port, folder)["rest"],
            [run["migrate"][0], *on_this_machine(kubernetes_container("rest.yaml")["args"], rest_port, token)],
        ):
            rest = start("rest", command, log=tmp_path / "rest.log", env=environment)
            started.callback(stop, [rest])
            at = f"http://127.0.0.1:{rest_port}"
            wait_until(
                lambda at=at: answers(f"{at}/healthz"),  # type: ignore[misc]
                what="the REST API answers",
                timeout_seconds=READY_SECONDS,
                records_to_watch=[rest],
            )
            assert not answers(f"{at}/api/v1/pipelines"), "without the token"
            request = urllib.request.Request(f"{at}/api/v1/pipelines", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert [(each["name"], each["state"]) for each in json.load(answer)] == [(ground.name, "on")]
            stop([rest])
        stop([*others, engine])

        # The same engine and code server as Kubernetes starts them: on a port, with the chart's names for things.
        port = free_port()
        container, home = kubernetes_container("engine.yaml"), ground.home.root / "pod"
        places = {"engine-and-ops": str(folder / "engine-and-ops.sh"), "2g": "1g", "3030": str(port)}
        given = {each["name"]: each["value"] for each in container["env"]}
        pod = {name: value for name, value in environment.items() if name in {*os.environ, *given}} | {
            HOME_VARIABLE: str(home),
            "PATH": environment["PATH"],
            **{name: environment["PGPASSWORD_FILE"] for name in given if name.endswith("_FILE")},
        }
        assert set(given) <= set(pod)
        record = start(
            "pod",
            [run["migrate"][0], *(places.get(word, word) for word in container["args"])],
            log=tmp_path / "pod.log",
            env=pod,
        )
        started.callback(stop, [record])
        for probe, what in (
            (container["startupProbe"]["exec"]["command"], "the engine is up"),
            (["dagster", "api", "grpc-health-check", "--port", str(port)], "the code server answers health checks"),
        ):
            wait_until(
                lambda probe=probe: healthy(*probe, env=pod),  # type: ignore[misc]
                what=what,
                timeout_seconds=READY_SECONDS,
                records_to_watch=[record],
            )


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.tier(3)
def test_r10_the_spark_cluster_and_the_metastore_of_deploy_come_up(tmp_path: Path) -> None:
    services = yaml.safe_load((DEPLOY / "docker-compose.cluster.yaml").read_text())["services"]
    port, page, catalog = free_port(), free_port(), free_port()
    java = find_java()
    places = {
        "spark-standalone": str(DEPLOY / "spark-standalone.sh"),
        **dict.fromkeys(services, "127.0.0.1"),
        "metastore": str(DEPLOY / "metastore.sh"),
        "0.0.0.0": "127.0.0.1",
        "9083": str(catalog),
        "/var/lib/metastore": str(tmp_path / "catalog"),
        "7077": str(port),
        "spark://spark-master:7077": f"spark://127.0.0.1:{port}",
        "2g": "512m",
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), str(java.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "JAVA_HOME": str(java.parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    secret = tmp_path / "key"
    secret.write_text("a key\n")
    records = []
    with ExitStack() as started:
        for name in ("spark-master", "spark-worker-1", "spark-worker-2", "metastore"):
            own = {
                **places,
                "8080": str(page if name == "spark-master" else 0),
                "/var/lib/hudi-ingest/work": str(tmp_path / name),
            }
            given = {
                variable: str(secret) if variable.endswith("_FILE") else value
                for variable, value in services[name].get("environment", {}).items()
            }
            command = [str(DEPLOY / "with-secrets.sh"), *(own.get(word, word) for word in services[name]["command"])]
            record = start(name, command, log=tmp_path / f"{name}.log", env={**environment, **given})
            started.callback(stop, [record])
            records.append(record)
        checks = [
            [word.replace("127.0.0.1:8080", f"127.0.0.1:{page}").replace("9083", str(catalog)) for word in test[1:]]
            for test in (services[name]["healthcheck"]["test"] for name in ("spark-master", "metastore"))
        ]
        wait_until(
            lambda: (
                all(healthy(*check, env=environment) for check in checks) and workers_of(page) == ["ALIVE", "ALIVE"]
            ),
            what="master and metastore are well, and both workers have joined",
            timeout_seconds=READY_SECONDS,
            records_to_watch=records,
        )


def on_this_machine(args: list[str], port: int, token: Path) -> list[str]:
    secrets = "/run/secrets/hudi-ingest-rest"
    places = {"0.0.0.0": "127.0.0.1", "8470": str(port), f"{secrets}/token": str(token)}
    places[f"{secrets}/read-token"] = str(token.with_name("read-token"))
    return [places.get(word, word) for word in args]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False


def workers_of(page: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
        return [worker["state"] for worker in json.load(answer)["workers"]]


def healthy(*command: str, env: dict[str, str]) -> bool:
    return subprocess.run(command, env=env, capture_output=True, timeout=READY_SECONDS).returncode == 0
