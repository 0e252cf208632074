"""deploy/ as configuration: it fits the code and itself. Nothing here starts a container."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

import grpc
import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from dagster import DagsterInstance, DefaultRunLauncher
from dagster._config import process_config
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.instance.ref import InstanceRef
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster._core.workspace.load import location_origins_from_yaml_paths
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from packaging.specifiers import SpecifierSet
from typer.main import get_command

from hudi_ingest.cli.app import app
from hudi_ingest.home.folder import (
    ALERTS_VARIABLE,
    BOOTSTRAP_VARIABLE,
    ENGINE_VARIABLE,
    HOME_VARIABLE,
    HOUSEKEEPING_VARIABLE,
    LEDGER_VARIABLE,
    PIPELINES_VARIABLE,
    TABLES_VARIABLE,
    Home,
)
from hudi_ingest.orchestration import code_server, tags
from hudi_ingest.orchestration.embedded.web_access import HOSTS_VARIABLE, hosts_from
from hudi_ingest.orchestration.embedded.webserver import options_of
from hudi_ingest.orchestration.postgres_storage import MOST, PooledPostgresStorage
from hudi_ingest.orchestration.run_launcher import ForkingRunLauncher
from hudi_ingest.pipeline.code_location import load_alert_settings, load_housekeeping_settings
from hudi_ingest.pipeline.engine import load_engine_settings
from hudi_ingest.rest.pages import METRICS
from hudi_ingest.spark.jars import cache_root
from hudi_ingest.spark.session import session_options
from hudi_ingest_tests.support.pipeline_files import load_pipelines

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parent.parent.parent
DEPLOY = REPOSITORY / "deploy"
JARS_VARIABLE = "HUDI_INGEST_JARS"
OURS = ("migrate", "engine", "webserver", "daemon")
SECRET = "/run/secrets/postgres_password"
POSTGRES = {
    "POSTGRES_HOST": "postgres",
    "POSTGRES_PORT": "6432",
    "POSTGRES_USER": "u",
    "POSTGRES_DB": "d",
}
DRIVER = {"PGPASSWORD", "PGSSLMODE"}
"""Variables that PostgreSQL's own client library heeds."""
FROM_FILES = {"PGPASSWORD"}
"""Variables that the image's entrypoint sets from files."""
COMPOSE_SCHEMA = Path(__file__).parent.parent / "support" / "compose_spec.json"
"""Of docker-compose 1.29.2, which knows every key but the project's name."""
USER_DEPLOYMENT = {
    *("name", "image", "dagsterApiGrpcArgs", "codeServerArgs", "includeConfigInLaunchedRuns", "port", "env"),
    *("envConfigMaps", "envSecrets", "annotations", "nodeSelector", "affinity", "tolerations", "podSecurityContext"),
    *("securityContext", "resources", "livenessProbe", "readinessProbe", "startupProbe", "labels", "volumeMounts"),
    *("volumes", "schedulerName", "deploymentNamespace"),
}
"""What Dagster's chart knows of a user deployment; Helm ignores other keys."""


SETTINGS = {
    ALERTS_VARIABLE: "alerts.yaml",
    HOUSEKEEPING_VARIABLE: "housekeeping.yaml",
    ENGINE_VARIABLE: "engine.yaml",
}
"""Variables of the files that are no pipelines."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    """What goes on top of it: an S3 store and a Spark cluster."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.cluster.yaml").read_text())
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
        ALERTS_VARIABLE,
        HOUSEKEEPING_VARIABLE,
        ENGINE_VARIABLE,
    }
    in_image = dict(re.findall(r"\b([A-Z_]+)=(\S+)", dockerfile.split("\nENV ")[1].split("\n")[0]))
    assert set(in_image) - {"DAGSTER_HOME", "PYTHONUNBUFFERED"} == {HOME_VARIABLE, JARS_VARIABLE}
    for name in OURS:
        given = {variable.removesuffix("_FILE") for variable in compose["services"][name]["environment"]}
        assert given | set(in_image) == known | set(POSTGRES) | DRIVER | {"DAGSTER_HOME", "PYTHONUNBUFFERED"}
    example = (DEPLOY / ".env.example").read_text()
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", (DEPLOY / "docker-compose.yaml").read_text()))
    assert used == set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE))


def test_the_password_is_in_a_file_only(compose: dict[str, Any], dockerfile: str) -> None:
    (name, secret), *others = compose["secrets"].items()
    assert not others
    assert Path(secret["file"]) == Path("secrets", name)
    assert {".env", "secrets/"} <= set((DEPLOY / ".gitignore").read_text().split())
    for service in ("postgres", *OURS):
        assert compose["services"][service]["secrets"] == [name]
        environment = compose["services"][service]["environment"]
        passwords = {variable: value for variable, value in environment.items() if "PASSWORD" in variable}
        assert set(passwords) == {
            f"{each}_FILE" for each in ({"POSTGRES_PASSWORD"} if service == "postgres" else FROM_FILES)
        }, "the REST API's process, too, knows only what the ledger needs"
        assert set(passwords.values()) == {f"/run/secrets/{name}"} == {SECRET}
        assert "PASSWORD" not in environment.get(LEDGER_VARIABLE, "")
    assert 'ENTRYPOINT ["with-secrets"]' in dockerfile
    # A health check does not go through the entrypoint; this one connects to the database.
    assert compose["services"]["daemon"]["healthcheck"]["test"][:2] == ["CMD", "with-secrets"]


def test_the_entrypoint_sets_passwords_from_files_and_nothing_else(tmp_path: Path) -> None:
    password = "p@ss:w/o%rd #1 'quoted' $HOME `id`"
    file = tmp_path / "password"
    file.write_text(f"{password}\n")
    environment = {
        "PATH": os.environ["PATH"],
        **{f"{variable}_FILE": str(file) for variable in (*FROM_FILES, "DAGSTER_PG_PASSWORD", "OTHER")},
        "PGPASSWORD": "set already",
    }
    command = [
        str(DEPLOY / "with-secrets.sh"),
        sys.executable,
        "-c",
        "import os, json; print(json.dumps(dict(os.environ)))",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    variables = json.loads(done.stdout)
    assert variables["DAGSTER_PG_PASSWORD"] == password
    assert variables["PGPASSWORD"] == "set already"
    assert "OTHER" not in variables
    gone = {**environment, "PGPASSWORD": "", "PGPASSWORD_FILE": str(tmp_path / "gone")}
    refused = subprocess.run(command, env=gone, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1
    assert f"PGPASSWORD_FILE names {tmp_path / 'gone'}, which cannot be read" in refused.stderr


def test_compose_accepts_the_files(compose: dict[str, Any], cluster: dict[str, Any]) -> None:
    schema = jsonschema.Draft201909Validator(json.loads(COMPOSE_SCHEMA.read_text()))
    for document in (compose, cluster):
        known = {key: value for key, value in document.items() if key != "name"}
        assert [error.message for error in schema.iter_errors(known)] == []


def test_the_rest_api_has_a_token_and_is_published_on_loopback_only(compose: dict[str, Any]) -> None:
    on_top = yaml.safe_load((DEPLOY / "docker-compose.rest.yaml").read_text())
    schema = jsonschema.Draft201909Validator(json.loads(COMPOSE_SCHEMA.read_text()))
    # Version 1.29 had no `extends` beside `version`.
    service = dict(on_top["services"]["rest"])
    base = service.pop("extends")
    assert base["service"] in compose["services"]
    assert (DEPLOY / base["file"]).is_file()
    merged = {**on_top, "services": {"rest": service}, "volumes": compose["volumes"]}
    assert [error.message for error in schema.iter_errors(merged)] == []
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    program, command, *options = service["command"]
    assert (program, command) == ("hudi-ingest", "serve")
    given = dict(zip(options[::2], options[1::2], strict=True))
    parsed = get_command(app).commands[command].make_context(command, options).params  # type: ignore[attr-defined]
    assert (parsed["host"], str(parsed["port"])) == (given["--host"], given["--port"])
    assert f"127.0.0.1:{parsed['port']}/healthz" in str(service["healthcheck"])
    assert parsed["token_file"] in {Path("/run/secrets", name) for name in on_top["secrets"]}
    assert {"mem_limit"} <= set(service), "and the daemon's cpus"
    targets = [volume.split(":")[1:] for volume in service["volumes"]]
    assert [compose["services"]["engine"]["environment"][PIPELINES_VARIABLE]] in targets, "and not read-only"


def test_no_container_is_root_or_without_limits(
    compose: dict[str, Any], cluster: dict[str, Any], dockerfile: str
) -> None:
    assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE) == ["1000"]
    on_top = {name: service for name, service in cluster["services"].items() if name not in compose["services"]}
    assert on_top.pop("s3-volume")["cap_drop"] == ["ALL"]
    assert set(on_top) == {"s3", "metastore", "spark-master", "spark-worker-1", "spark-worker-2"}
    assert all("healthcheck" in service and service["restart"] == "unless-stopped" for service in on_top.values())
    assert not any("ports" in service for service in on_top.values()), "reached by the other containers only"
    for name, service in [*compose["services"].items(), *on_top.items()]:
        assert "build" in service or service["user"] not in ("root", "0"), name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "cpus"} <= set(service), name


def test_the_engine_accepts_its_settings(
    cluster: dict[str, Any], manifests: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    on_kubernetes = re.findall(
        r"^ +# - \{name: (HUDI_INGEST_ENGINE_\w+), value: \"?([^\"}]*)\"?\}",
        (DEPLOY / "kubernetes" / "engine.yaml").read_text(),
        re.MULTILINE,
    )
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url="sqlite:///x")
    (commented,) = re.findall(
        r"^ +# (spark_conf: .*)", (DEPLOY / "kubernetes" / "settings.yaml").read_text(), re.MULTILINE
    )
    in_compose = (DEPLOY / cluster["configs"]["engine"]["file"]).read_text()
    for variables, file in (
        (cluster["services"]["engine"]["environment"], in_compose),
        (dict(on_kubernetes), commented),
    ):
        home.engine_settings_file.write_text(file)
        settings = load_engine_settings(home, environment=variables)
        assert settings.master == "spark://spark-master:7077"
        assert settings.driver_host is not None
        options = session_options([], settings)
        assert options["spark.driver.bindAddress"] == "0.0.0.0"
        assert int(options["spark.driver.port"]) == ports["driver"]
        assert int(options["spark.driver.blockManager.port"]) == ports["blocks"]
    assert (
        settings.driver_host
        == f"{manifests['StatefulSet']['metadata']['name']}-0.{manifests['Service']['metadata']['name']}"
    )


def test_the_cluster_and_the_engine_find_each_other_and_share_the_stores_keys(
    compose: dict[str, Any], cluster: dict[str, Any]
) -> None:
    services = cluster["services"]
    engine, master = services["engine"], services["spark-master"]
    options = dict(zip(master["command"][2::2], master["command"][3::2], strict=True))
    address = f"spark://{options['--host']}:{options['--port']}"
    assert engine["environment"]["HUDI_INGEST_ENGINE_MASTER"] == address
    assert engine["environment"]["HUDI_INGEST_ENGINE_DRIVER_HOST"] == engine["hostname"]
    for name in ("spark-worker-1", "spark-worker-2"):
        command = services[name]["command"]
        assert command[-1] == address
        assert command[command.index("--host") + 1] == services[name]["hostname"] == name
    for name in ("s3", "engine", "metastore", "spark-worker-1", "spark-worker-2"):
        assert services[name]["secrets"] == list(cluster["secrets"])
        assert set(services[name].get("depends_on", ())) <= {*services, *compose["services"]}
    assert f"--port :{engine['environment']['S3_ENDPOINT'].rpartition(':')[2]} " in services["s3"]["command"][0]
    assert "/data/objects/lake" in services["s3"]["command"][0], "the tables' bucket"
    assert engine["environment"][TABLES_VARIABLE].startswith("s3a://lake/")


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """Those of the engine on Kubernetes, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "engine.yaml").read_text())}


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def rest() -> dict[str, dict[str, Any]]:
    """The manifests of the REST API on Kubernetes, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "rest.yaml").read_text())}


def test_kubernetes_accepts_the_manifests_and_what_the_chart_makes_of_the_values(
    manifests: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]], values: dict[str, Any]
) -> None:
    for manifest in (*manifests.values(), *rest.values(), pod_of(values)):
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def pod_of(values: dict[str, Any]) -> dict[str, Any]:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    container = {key: deployment[key] for key in ("name", "env", "volumeMounts", "securityContext", "resources")}
    container |= {"image": deployment["image"]["repository"]}
    spec = {
        "securityContext": deployment["podSecurityContext"],
        "volumes": deployment["volumes"],
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "code-server"}, "spec": spec}


def test_no_pod_can_fill_its_node_s_disk(manifests: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]]) -> None:
    for manifest in (manifests["StatefulSet"], rest["Deployment"]):
        volumes = manifest["spec"]["template"]["spec"]["volumes"]
        folders = [volume["emptyDir"] for volume in volumes if "emptyDir" in volume]
        assert folders
        assert all(re.fullmatch(r"\d+Gi", folder["sizeLimit"]) for folder in folders)


def test_kubernetes_pods_are_hardened_and_take_secrets_from_files(
    manifests: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]], values: dict[str, Any]
) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert set(deployment) <= USER_DEPLOYMENT
    pods = [manifest["spec"]["template"]["spec"] for manifest in (manifests["StatefulSet"], rest["Deployment"])]
    for spec in (*pods, pod_of(values)["spec"]):
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 1000
        assert (
            container["securityContext"].items()
            >= {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }.items()
        )
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert {PIPELINES_VARIABLE, LEDGER_VARIABLE, BOOTSTRAP_VARIABLE, TABLES_VARIABLE} <= set(variables)
        files = {variable: value for variable, value in variables.items() if "PASSWORD" in variable}
        assert files
        assert all(variable.endswith("_FILE") for variable in files)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert variables[PIPELINES_VARIABLE] == mounts["pipelines"]
        assert {variable: variables[variable] for variable in SETTINGS} == {
            variable: f"{mounts['settings']}/{file}" for variable, file in SETTINGS.items()
        }
        assert {Path(file).parent.as_posix() for file in files.values()} == {mounts["secrets"]}
        assert set(mounts) == {volume["name"] for volume in spec["volumes"]}
        secret = next(volume["secret"] for volume in spec["volumes"] if volume["name"] == "secrets")
        assert secret["secretName"] == values["global"]["postgresqlSecretName"]


def test_our_pods_write_to_volumes_only_and_have_no_variables_of_services(
    manifests: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]], dockerfile: str
) -> None:
    for manifest in (manifests["StatefulSet"], rest["Deployment"]):
        spec = manifest["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["enableServiceLinks"] is False
        empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in empty}
        home = next(each["value"] for each in container["env"] if each["name"] == HOME_VARIABLE)
        # The home itself would belong to root there, and be open to everybody.
        assert "/tmp" in writable and Path(home).parent.as_posix() in writable
        (jars,) = re.findall(rf"{JARS_VARIABLE}=(\S+)", dockerfile)
        assert not any(Path(jars).is_relative_to(place) for place in writable), "the volume would hide them"


def test_the_settings_on_kubernetes_are_accepted_and_name_the_files_that_are_mounted(tmp_path: Path) -> None:
    settings = yaml.safe_load((DEPLOY / "kubernetes" / "settings.yaml").read_text())
    kubernetes_validate.validate(settings, "1.31", strict=True)
    assert set(settings["data"]) == set(SETTINGS.values())
    (tmp_path / "chat_webhook").write_text("https://chat.example/hook")
    for example in (False, True):
        for name, text in settings["data"].items():
            # What is commented out is right, too.
            shown = re.sub(r"^# (?=\w+: )", "", text, flags=re.MULTILINE) if example else text
            (tmp_path / name).write_text(shown)
        home = Home.from_environment(
            {HOME_VARIABLE: str(tmp_path / "home"), **{name: str(tmp_path / file) for name, file in SETTINGS.items()}}
        )
        assert len(load_alert_settings(home, {}).webhooks) == example
        assert load_housekeeping_settings(home, environment={}).enabled
        assert bool(load_engine_settings(home, environment={}).spark_conf) == example
    for file in ("engine.yaml", "rest.yaml", "values.yaml"):
        text = (DEPLOY / "kubernetes" / file).read_text()
        assert re.search(rf"configMap:\s+(?:\{{)?name: {settings['metadata']['name']}\b", text), file


def test_the_engines_manifests_fit_together_and_the_chart_finds_its_code_server(
    manifests: dict[str, dict[str, Any]],
) -> None:
    engine = manifests["StatefulSet"]["spec"]
    (container,) = engine["template"]["spec"]["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["args"][0] == "engine-and-ops"
    assert container["args"][2:] == [str(ports["code-server"])]
    assert container["livenessProbe"]["grpc"]["port"] == ports["code-server"]
    service = manifests["Service"]
    assert engine["serviceName"] == service["metadata"]["name"]
    labels = engine["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    allowed = manifests["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for rule in allowed for port in rule["ports"]} == set(ports)
    assert all(rule["from"] for rule in allowed), "nobody else"
    overlay = yaml.safe_load((DEPLOY / "kubernetes" / "values-engine.yaml").read_text())
    (server,) = overlay["dagsterWebserver"]["workspace"]["servers"]
    assert (server["host"], server["port"]) == (service["metadata"]["name"], ports["code-server"])
    launcher = overlay["runLauncher"]["config"]["customRunLauncher"]
    assert getattr(importlib.import_module(launcher["module"]), launcher["class"]) is DefaultRunLauncher


def test_the_rest_api_on_kubernetes_is_probed_scraped_and_reaches_the_code_server(
    manifests: dict[str, dict[str, Any]], rest: dict[str, dict[str, Any]]
) -> None:
    template = rest["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    program, command, *options = container["args"]
    parsed = get_command(app).commands[command].make_context(command, options).params  # type: ignore[attr-defined]
    assert (program, command, parsed["port"]) == ("hudi-ingest", "serve", port["containerPort"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert parsed["token_file"].parent == Path(mounts["token"])
    assert "token" not in str(container["env"]).lower()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(parsed["port"]),
        "prometheus.io/path": METRICS,
    }
    labels = template["metadata"]["labels"]
    assert rest["Service"]["spec"]["selector"] == labels == rest["Deployment"]["spec"]["selector"]["matchLabels"]
    assert [served["targetPort"] for served in rest["Service"]["spec"]["ports"]] == [port["name"]]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["DAGSTER_HOME"] == mounts["instance"]
    # It loads sensors that were never on from the code server.
    allowed = manifests["NetworkPolicy"]["spec"]["ingress"]
    assert any(
        peer["podSelector"].get("matchLabels") == labels and {"port": "code-server"} in rule["ports"]
        for rule in allowed
        for peer in rule["from"]
    )


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
    assert ["deploy/with-secrets.sh", "/usr/local/bin/with-secrets"] in copied
    assert ["deploy/spark-standalone.sh", "/usr/local/bin/spark-standalone"] in copied
    for script in ("engine-and-ops.sh", "with-secrets.sh", "spark-standalone.sh", "metastore.sh"):
        assert (DEPLOY / script).stat().st_mode & 0o111
    pinned = (REPOSITORY / "requirements.txt").read_text()
    assert "--require-hashes --requirement requirements.txt" in dockerfile
    assert all(f"\n{package}==" in pinned for package in ("dagster", "dagster-postgres", "dagster-webserver"))


def test_the_image_holds_the_jars_for_tables_on_s3_and_the_build_gets_only_what_it_copies(dockerfile: str) -> None:
    assert "s3_jars(print)" in dockerfile
    kept = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [line.split()[1:-1] for line in dockerfile.splitlines() if line.startswith("COPY ")]
    for source in (source for sources in copied for source in sources):
        assert any(fnmatchcase(source, pattern) for pattern in kept), source
    assert not any(fnmatchcase(secret, pattern) for secret in ("deploy/secrets/rest_token", ".git") for pattern in kept)


def test_settings_files_reach_the_containers_that_read_them(compose: dict[str, Any]) -> None:
    rest = yaml.safe_load((DEPLOY / "docker-compose.rest.yaml").read_text())["services"]["rest"]
    example = (DEPLOY / ".env.example").read_text()
    for service in (compose["services"]["engine"], rest):
        assert "./settings:/settings:ro" in service["volumes"]
    for variable in (ALERTS_VARIABLE, HOUSEKEEPING_VARIABLE, ENGINE_VARIABLE):
        assert all(
            compose["services"][name]["environment"][variable] == f"${{{variable}:-}}" for name in ("engine", "daemon")
        )
        assert f"{variable}=/settings/" in example
    assert Home.from_environment({ALERTS_VARIABLE: ""}).alerts_settings is None, "empty means none"


def test_beside_the_cluster_the_rest_api_has_the_engine_s_tables_and_the_store_s_keys(cluster: dict[str, Any]) -> None:
    rest = yaml.safe_load((DEPLOY / "docker-compose.cluster-rest.yaml").read_text())["services"]["rest"]
    engine = cluster["services"]["engine"]
    for variable in (TABLES_VARIABLE, "S3_ENDPOINT"):
        for service in (rest, *(cluster["services"][name] for name in OURS)):
            assert service["environment"][variable] == engine["environment"][variable]
    assert rest["secrets"] == list(cluster["secrets"]) == engine["secrets"]


def test_volumes_of_the_cluster_belong_to_the_user_that_writes_to_them(dockerfile: str) -> None:
    on_top = yaml.safe_load((DEPLOY / "docker-compose.cluster.yaml").read_text())["services"]
    (volume,) = on_top["s3-volume"]["volumes"]
    name, folder = volume.split(":")
    assert re.search(rf"install --directory --owner=hudi [^&]*{folder}\b", dockerfile)
    assert on_top["s3"]["user"] == "1000"
    assert [given.split(":")[0] for given in on_top["s3"]["volumes"]] == [name]
    assert on_top["s3"]["depends_on"] == {"s3-volume": {"condition": "service_completed_successfully"}}
    assert on_top["s3-volume"]["command"] == ["test", "-w", folder]


def test_every_volume_of_our_image_belongs_to_its_user_and_commands_write_nowhere_else(
    compose: dict[str, Any], cluster: dict[str, Any], dockerfile: str
) -> None:
    """A named volume takes over the owner of the image's folder; where the image has none, it is root's."""
    rest = yaml.safe_load((DEPLOY / "docker-compose.rest.yaml").read_text())
    (installed,) = re.findall(r"install --directory --owner=hudi ([^&\n]*)", dockerfile)
    ours = installed.split()
    named = {"tables", "dagster", "s3", "metastore"}
    services = [(name, service) for file in (compose, cluster, rest) for name, service in file["services"].items()]
    for name, service in services:
        if name in ("kafka", "postgres", "s3"):
            continue  # Images of others, or a volume that s3-volume has made.
        targets = dict(volume.split(":")[:2] for volume in service.get("volumes", ()))
        assert {target for source, target in targets.items() if source in named} <= set(ours), name
        # Further folders in a command, such as a worker's.
        written = [word for word in service.get("command", ()) if word.startswith("/") and "/run/secrets" not in word]
        readable = (*ours, "/opt/dagster/")
        assert all(any(word.startswith(place) for place in readable) for word in written), (name, written)
    in_image = dict(re.findall(r"\b([A-Z_]+)=(\S+)", dockerfile.split("\nENV ")[1].split("\n")[0]))
    assert {in_image[name] for name in (HOME_VARIABLE, JARS_VARIABLE, "DAGSTER_HOME")} <= set(ours)


def test_only_pods_of_the_namespace_reach_the_rest_api(rest: dict[str, dict[str, Any]]) -> None:
    policy = rest["NetworkPolicy"]["spec"]
    labels = rest["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"] == [{"from": [{"podSelector": {}}], "ports": [{"port": "rest"}]}]


def test_the_webserver_refuses_other_pages(compose: dict[str, Any]) -> None:
    _python, _m, module, *options = compose["services"]["webserver"]["command"]
    assert module == "hudi_ingest.orchestration.embedded.webserver"
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
    assert f"listen=(--socket {socket})" in start
    assert 'hudi-ingest code-server "${listen[@]}"' in start
    assert origin.location_name == code_server.LOCATION
    assert f"health code-server {socket}" in compose["services"]["engine"]["healthcheck"]["test"][1]
    for name in ("engine", "webserver", "daemon"):
        assert f"dagster:{Path(socket).parent}" in compose["services"][name]["volumes"]


def test_dagster_accepts_the_instance_of_deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in POSTGRES.items():
        monkeypatch.setenv(name, value)
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    found = InstanceRef.from_dir(str(tmp_path))
    # The schemas again, now with the variables' values; no storage is made, so nothing connects.
    settings = process_config(dagster_instance_config_schema(), yaml.safe_load((DEPLOY / "dagster.yaml").read_text()))
    assert settings.success, settings.errors
    assert settings.value is not None
    storage = settings.value["storage"]["custom"]
    assert getattr(importlib.import_module(storage["module"]), storage["class"]) is PooledPostgresStorage
    processed = process_config(PooledPostgresStorage.config_type(), storage["config"])
    assert processed.success, processed.errors
    assert processed.value is not None
    assert processed.value["max_connections"] == MOST
    database = processed.value["postgres_db"]
    assert {key: database[key] for key in ("hostname", "username", "password", "db_name", "port", "scheme")} == {
        "hostname": "postgres",
        "username": "u",
        "password": "",
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
        limits = {limit["key"]: limit["limit"] for limit in queue.tag_concurrency_limits}
        assert limits.keys() == {tags.PIPELINE_RANGES, tags.MERGING}
        assert sum(limits.values()) < queue.max_concurrent_runs, (
            "backfills and merges leave a place to live transactions"
        )


def test_both_instances_differ_in_storage_and_in_who_starts_a_run() -> None:
    deployed = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    folders = {"storage", "local_artifact_storage"}
    embedded = yaml.safe_load(_embedded())
    # In the deployment the daemon and the ops are in two containers, so Dagster's own launcher asks the code server.
    assert embedded.pop("run_launcher")["class"] == "ForkingRunLauncher"
    assert deployed["compute_logs"].pop("config") == {"base_dir": "/var/lib/dagster/logs"}
    assert deployed.pop("compute_logs") == embedded.pop("compute_logs")
    assert embedded.pop("storage")["custom"]["class"] == "QuickSqliteStorage"
    # One after another, each would wait for the answers about those before it. The embedded launcher waits for none.
    assert deployed["run_queue"].pop("dequeue_use_threads") and deployed["run_queue"].pop("dequeue_num_workers")
    assert {key: value for key, value in deployed.items() if key not in folders} == embedded


HEALTH = DEPLOY / "health.py"


def health(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HEALTH), *arguments]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


def test_the_health_check_of_a_code_server_is_its_answer(tmp_path: Path) -> None:
    socket = tmp_path / "code.sock"
    assert health("code-server", str(socket)).returncode == 1
    servicer = HealthServicer()
    server = grpc.server(ThreadPoolExecutor(1))
    add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        answers = {}
        for status in (HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING):
            servicer.set("DagsterApi", status)
            answers[status] = health("code-server", str(socket))
    finally:
        server.stop(None)
    assert answers[HealthCheckResponse.SERVING].returncode == 0, answers
    assert answers[HealthCheckResponse.NOT_SERVING].returncode == 1
    assert "does not serve" in answers[HealthCheckResponse.NOT_SERVING].stderr


def test_no_health_check_of_deploy_imports_dagster_or_starts_a_jvm(
    compose: dict[str, Any], values: dict[str, Any], dockerfile: str
) -> None:
    checks = [str(service.get("healthcheck", "")) for service in compose["services"].values()]
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    probes = [deployment[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert not re.search(r"dagster(-daemon)? (api|liveness)|dagster-daemon|\.sh", "".join([*checks, str(probes)]))
    assert all(
        probe["exec"]["command"] == ["health", "code-server", f"127.0.0.1:{deployment['port']}"] for probe in probes
    )
    assert f"COPY deploy/{HEALTH.name} /usr/local/bin/health" in dockerfile
    assert os.access(HEALTH, os.X_OK), "Docker keeps the mode of a file that it copies"


def test_queued_runs_wait_for_a_code_server_that_restarts_in_every_instance() -> None:
    settings = {"max_user_code_failure_retries", "user_code_failure_retry_delay"}
    chart = yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())["dagsterDaemon"]["runCoordinator"]
    custom = chart["config"]["customRunCoordinator"]
    assert (chart["enabled"], chart["type"]) == (True, "CustomRunCoordinator")
    assert getattr(importlib.import_module(custom["module"]), custom["class"]) is QueuedRunCoordinator
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    (row,) = re.findall(r"`run_queue: (\{max_user_code_failure_retries[^`]*\})`", page)
    queues = [
        yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["run_queue"],
        yaml.safe_load(_embedded())["run_queue"],
        custom["config"],
        yaml.safe_load(row),
    ]
    for queue in queues:
        accepted = process_config(QueuedRunCoordinator.config_type(), {key: queue[key] for key in settings})
        assert accepted.success, accepted.errors
        # A code server took 160 s to go away and come back, its environment included.
        assert queue["max_user_code_failure_retries"] * queue["user_code_failure_retry_delay"] >= 300
    assert len({tuple(queue[key] for key in sorted(settings)) for queue in queues}) == 1


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
