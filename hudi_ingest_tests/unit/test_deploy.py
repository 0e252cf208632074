"""deploy/ as configuration: it fits the code and itself. Nothing here starts a container."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterInstance
from dagster._config import process_config
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.instance.ref import InstanceRef
from dagster._core.workspace.load import location_origins_from_yaml_paths
from packaging.specifiers import SpecifierSet

from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.home.stack_variables import BOOTSTRAP_VARIABLE, TABLES_VARIABLE
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.run_launcher import ForkingRunLauncher
from hudi_ingest.orchestration.web_access import HOSTS_VARIABLE, hosts_from
from hudi_ingest.orchestration.webserver import options_of
from hudi_ingest.pipeline.folder import load_pipelines
from hudi_ingest.spark.jars import cache_root

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parent.parent.parent
DEPLOY = REPOSITORY / "deploy"
JARS_VARIABLE = "HUDI_INGEST_JARS"
OURS = ("migrate", "engine", "webserver", "daemon")
POSTGRES = {
    "POSTGRES_HOST": "postgres",
    "POSTGRES_PORT": "6432",
    "POSTGRES_USER": "u",
    "POSTGRES_PASSWORD": "p@:/%",
    "POSTGRES_DB": "d",
}
DRIVER = {"PGPASSWORD", "PGSSLMODE"}
"""Variables that PostgreSQL's own client library heeds."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def test_what_compose_refers_to_exists(compose: dict[str, Any]) -> None:
    named = set(compose["volumes"])
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert target.startswith("/")
            if source.startswith("."):
                assert (DEPLOY / source).is_dir(), volume
            else:
                assert source in named, volume
        if name in OURS:
            assert (DEPLOY / service["build"]["context"]).resolve() == REPOSITORY
            assert (REPOSITORY / service["build"]["dockerfile"]).is_file()


def test_everything_is_published_on_loopback_only(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(published) == {"kafka", "webserver"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert not any("network_mode" in service for service in compose["services"].values())


def test_services_are_watched_and_started_again(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "migrate":
            assert service["restart"] == "on-failure:3"
        else:
            assert service["restart"] == "unless-stopped"
            assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")


def test_variables_are_ones_that_the_code_knows(compose: dict[str, Any], dockerfile: str) -> None:
    assert cache_root({JARS_VARIABLE: "/jars"}) == Path("/jars")
    assert hosts_from(
        re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", compose["services"]["webserver"]["environment"][HOSTS_VARIABLE])
    ) == ["127.0.0.1:3000", "localhost:3000"]
    known = {
        HOSTS_VARIABLE,
        HOME_VARIABLE,
        PIPELINES_VARIABLE,
        LEDGER_VARIABLE,
        BOOTSTRAP_VARIABLE,
        TABLES_VARIABLE,
        JARS_VARIABLE,
    }
    in_image = dict(re.findall(r"\b([A-Z_]+)=(\S+)", dockerfile.split("\nENV ")[1].split("\n")[0]))
    assert set(in_image) - {"DAGSTER_HOME", "PYTHONUNBUFFERED"} == {HOME_VARIABLE, JARS_VARIABLE}
    for name in OURS:
        assert set(compose["services"][name]["environment"]) | set(in_image) == (
            known | set(POSTGRES) | DRIVER | {"DAGSTER_HOME", "PYTHONUNBUFFERED"}
        )
    example = (DEPLOY / ".env.example").read_text()
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", (DEPLOY / "docker-compose.yaml").read_text()))
    assert used == set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE))
    assert ".env" in (DEPLOY / ".gitignore").read_text().split()


def test_the_password_comes_from_outside(compose: dict[str, Any]) -> None:
    for name in ("postgres", *OURS):
        environment = compose["services"][name]["environment"]
        assert environment["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    for name in OURS:
        environment = compose["services"][name]["environment"]
        # A URL would need its special characters escaped, which compose cannot do.
        assert environment["PGPASSWORD"] == environment["POSTGRES_PASSWORD"]
        assert "PASSWORD" not in environment[LEDGER_VARIABLE]
    assert "POSTGRES_PASSWORD=\n" in (DEPLOY / ".env.example").read_text()


def test_the_ledger_is_in_the_same_postgresql(compose: dict[str, Any]) -> None:
    ours, server = (compose["services"][name]["environment"] for name in ("engine", "postgres"))
    url = ours[LEDGER_VARIABLE]
    place = f"{ours['POSTGRES_HOST']}:{ours['POSTGRES_PORT']}/{server['POSTGRES_DB']}"
    assert url == f"postgresql+psycopg2://{server['POSTGRES_USER']}@{place}"
    assert ours["POSTGRES_HOST"] in compose["services"]
    assert {key: ours[key] for key in ("POSTGRES_USER", "POSTGRES_DB")} == {
        key: server[key] for key in ("POSTGRES_USER", "POSTGRES_DB")
    }
    assert Home.from_environment({LEDGER_VARIABLE: url}).ledger_url == url


def test_pipelines_read_from_kafka_and_write_to_the_volume(compose: dict[str, Any]) -> None:
    engine = compose["services"]["engine"]
    targets = [volume.split(":")[1] for volume in engine["volumes"]]
    assert engine["environment"][PIPELINES_VARIABLE] in targets
    assert engine["environment"][TABLES_VARIABLE] in targets
    for pipeline in load_pipelines(REPOSITORY / "pipelines", engine["environment"]):
        assert pipeline.source.bootstrap_servers == "kafka:9092"
        assert pipeline.table.base_path.startswith(f"{engine['environment'][TABLES_VARIABLE]}/")
    kafka = compose["services"]["kafka"]["environment"]
    assert "INSIDE://kafka:9092," in kafka["KAFKA_ADVERTISED_LISTENERS"]
    assert "INSIDE://:9092," in kafka["KAFKA_LISTENERS"]


def test_sources_and_programs_of_the_image_exist(compose: dict[str, Any], dockerfile: str) -> None:
    copied = [line.split()[1:] for line in dockerfile.splitlines() if line.startswith("COPY ")]
    sources = [source for *sources, _ in copied for source in sources]
    assert {"requirements.txt", "setup.py", "hudi_ingest", "deploy/dagster.yaml", "deploy/workspace.yaml"} <= set(
        sources
    )
    for source in sources:
        assert (REPOSITORY / source).exists(), source
    command = compose["services"]["engine"]["command"][0]
    assert ["deploy/engine-and-ops.sh", f"/usr/local/bin/{command}"] in copied
    assert (DEPLOY / "engine-and-ops.sh").stat().st_mode & 0o111
    pinned = (REPOSITORY / "requirements.txt").read_text()
    assert "--require-hashes --requirement requirements.txt" in dockerfile
    assert all(f"\n{package}==" in pinned for package in ("dagster", "dagster-postgres", "dagster-webserver"))


def test_the_webserver_refuses_other_pages(compose: dict[str, Any]) -> None:
    _python, _m, module, *options = compose["services"]["webserver"]["command"]
    assert module == "hudi_ingest.orchestration.webserver"
    assert importlib.util.find_spec(module) is not None
    given = options_of(options)
    assert (given.host, given.port) == ("0.0.0.0", 3000)
    assert f"127.0.0.1:{given.port}/server_info" in str(compose["services"]["webserver"]["healthcheck"])


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ((3, 9, 20), False),
        ((3, 10, 8), False),
        ((3, 10, 9), True),
        ((3, 11, 0), False),
        ((3, 11, 1), True),
        ((3, 12, 0), True),
        ((3, 13, 0), True),
        ((3, 14, 0), False),
    ],
)
def test_pythons_whose_forkserver_takes_code_from_everybody_are_refused(
    version: tuple[int, int, int], fits: bool
) -> None:
    assert runpy.run_path(str(DEPLOY / "bootstrap.py"))["fits"](version) == fits
    (required,) = re.findall(r'python_requires="(.*)"', (REPOSITORY / "setup.py").read_text())
    assert SpecifierSet(required).contains(".".join(map(str, version))) == fits


def test_the_code_server_is_reached_by_a_socket_on_a_shared_volume(compose: dict[str, Any]) -> None:
    (origin,) = location_origins_from_yaml_paths([str(DEPLOY / "workspace.yaml")])
    (server,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    assert origin.location_name == "hudi_ingest"
    socket = server["grpc_server"]["socket"]
    start = (DEPLOY / "engine-and-ops.sh").read_text()
    assert f"code-server start --socket {socket} -m hudi_ingest.orchestration.definitions" in start
    assert f"--location-name {origin.location_name}" in start
    assert f"--socket {socket}" in compose["services"]["engine"]["healthcheck"]["test"][1]
    for name in ("engine", "webserver", "daemon"):
        assert f"dagster:{Path(socket).parent}" in compose["services"][name]["volumes"]


def test_dagster_accepts_the_instance_of_deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in POSTGRES.items():
        monkeypatch.setenv(name, value)
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    found = InstanceRef.from_dir(str(tmp_path))
    stores = (found.run_storage_data, found.event_storage_data, found.schedule_storage_data)
    assert [each and each.module_name for each in stores] == ["dagster_postgres"] * 3
    # The schema again, now with the variables' values; no storage is made, so nothing connects.
    processed = process_config(dagster_instance_config_schema(), yaml.safe_load((DEPLOY / "dagster.yaml").read_text()))
    assert processed.success, processed.errors
    assert processed.value is not None
    database = processed.value["storage"]["postgres"]["postgres_db"]
    assert {key: database[key] for key in ("hostname", "username", "password", "db_name", "port", "scheme")} == {
        "hostname": "postgres",
        "username": "u",
        "password": POSTGRES["POSTGRES_PASSWORD"],
        "db_name": "d",
        "port": 6432,
        "scheme": "postgresql+psycopg2",
    }
    for data in (found.local_artifact_storage_data, found.compute_logs_data):
        assert hasattr(importlib.import_module(data.module_name), data.class_name)


def test_dagster_loads_the_embedded_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(_embedded())
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert isinstance(instance.run_launcher, ForkingRunLauncher)
        assert not instance.run_retries_enabled
        assert not instance.telemetry_enabled
        queue = instance.get_concurrency_config().run_queue_config
        assert queue is not None
        (limit,) = queue.tag_concurrency_limits
        assert limit["key"] == tags.PIPELINE_RANGES
        assert limit["limit"] < queue.max_concurrent_runs, "long backfills leave places to live transactions"


def test_both_instances_differ_in_storage_and_in_who_starts_a_run() -> None:
    deployed = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    folders = {"storage", "local_artifact_storage"}
    embedded = yaml.safe_load(_embedded())
    # In the deployment the daemon and the ops are in two containers, so Dagster's own launcher asks the code server.
    assert embedded.pop("run_launcher")["class"] == "ForkingRunLauncher"
    assert deployed["compute_logs"].pop("config") == {"base_dir": "/var/lib/dagster/logs"}
    assert deployed.pop("compute_logs") == embedded.pop("compute_logs")
    assert embedded.pop("storage")["custom"]["class"] == "QuickSqliteStorage"
    assert {key: value for key, value in deployed.items() if key not in folders} == embedded


def _embedded() -> str:
    return resources.files("hudi_ingest.local").joinpath("dagster.yaml").read_text()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-java.txt"])
def test_every_package_is_pinned_by_hash_and_by_no_address(name: str) -> None:
    pinned = (REPOSITORY / name).read_text()
    for line in pinned.replace("\\\n", " ").splitlines():
        assert re.match(r"[\w.\[\]-]+==\S+ ", line), line
        assert "--hash=sha256:" in line, line
    assert "://" not in pinned


def test_the_pinned_sqlalchemy_has_a_driver_for_any_postgresql_url() -> None:
    pinned = (REPOSITORY / "requirements.txt").read_text()
    assert re.search(r"^psycopg2-binary==", pinned, re.MULTILINE)
    # From 2.1 on `postgresql://` is psycopg 3's, which dagster-postgres does not bring.
    assert re.findall(r"^sqlalchemy==(\d+\.\d+)", pinned, re.MULTILINE) == ["2.0"]
