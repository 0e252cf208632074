"""engine.yaml and the variables on top of it: what it may say, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hudi_ingest.cli import app as cli
from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.engine import EngineSettings, load_engine_settings

pytestmark = pytest.mark.fast

CLUSTER = "master: spark://one:7077\ndriver_host: two\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", tmp_path / "pipelines", "sqlite://")


def problems(home: Home, text: str, environment: dict[str, str] | None = None) -> list[str]:
    home.engine_settings_file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_engine_settings(home, environment=environment or {})
    return [*raised.value.problems]


def test_without_a_file_everything_runs_in_the_driver(home: Home) -> None:
    settings = load_engine_settings(home, environment={})
    assert settings == EngineSettings()
    assert (settings.master, settings.driver_memory, settings.advertised_host) == ("local[*]", "2g", "127.0.0.1")
    assert settings.executors_python == sys.executable
    home.engine_settings_file.write_text("# nothing yet\n")
    assert load_engine_settings(home, environment={}) == settings


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    named = Home.from_environment({"HUDI_INGEST_ENGINE": str(tmp_path / "none.yaml")})
    with pytest.raises(ConfigError, match=r"none\.yaml: 1 problem\n  - file not found"):
        load_engine_settings(named, environment={})


def test_options_go_over_variables_and_these_over_the_file(home: Home) -> None:
    home.engine_settings_file.write_text(
        CLUSTER
        + "cores: 4\ndriver_memory: ${MEMORY}\nspark_conf: {spark.dynamicAllocation.enabled: true, spark.task.cpus: 2}\n"
    )
    environment = {"MEMORY": "1g", "HUDI_INGEST_ENGINE_CORES": "5", "HUDI_INGEST_ENGINE_PYTHON": ""}
    settings = load_engine_settings(home, {"driver_host": "three", "driver_memory": None}, environment)
    assert (settings.driver_host, settings.cores, settings.driver_memory) == ("three", 5, "1g")
    assert {key: value.get_secret_value() for key, value in settings.spark_conf.items()} == {
        "spark.dynamicAllocation.enabled": "true",
        "spark.task.cpus": "2",
    }


def test_an_archive_brings_its_own_python_and_is_found_beside_the_file(home: Home) -> None:
    home.engine_settings_file.write_text(CLUSTER + "archive: env.tar.gz\n")
    settings = load_engine_settings(home, environment={})
    assert settings.archive == str(home.engine_settings_file.parent / "env.tar.gz")
    assert settings.executors_python == "./environment/bin/python"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("maste: yarn\n", "maste: unknown key in line 1; allowed: master, "),
        ("master: mesos://one:5050\n", "master: found 'mesos://one:5050'; allowed: local[*], spark://host:7077, "),
        ("master: spark://one\n", "master: found 'spark://one'; allowed: "),
        ("driver_memory: 2 GB\n", "driver_memory: found '2 GB'; allowed: a number with m, g or t, like 2g"),
        ("cores: 70000\n", "cores: "),
        ("cores: 4\n", "cores: remove it, or set `master` to a cluster: with local[*] there are no other executors"),
        ("master: yarn\ndriver_host: two\ncores: 4\n", "cores: remove it: only standalone masters know it; "),
        ("archive: env.tar.gz\n", "archive: remove it, or set `master`"),
        (CLUSTER + "archive: env\n", "archive: found 'env'; allowed: a path or URL of a .tar.gz, .tgz or .zip"),
        (
            "master: k8s://https://one:443\n",
            "driver_host: missing; executors of k8s://https://one:443 connect to the driver",
        ),
        ("spark_conf: {spark.serializer: x}\n", "spark_conf.spark.serializer: remove it: Hudi's client works with"),
        (
            "spark_conf: {spark.python.daemon.module: x}\n",
            "spark_conf.spark.python.daemon.module: remove it: hudi-ingest's",
        ),
        (
            "spark_conf: {spark.speculation: true}\n",
            "spark_conf.spark.speculation: remove it: Hudi refuses to write with it",
        ),
        ("spark_conf: {spark.cores.max: 1}\n", "spark_conf.spark.cores.max: remove it: set `cores`"),
        (
            "spark_conf: {fs.s3a.endpoint: x}\n",
            "spark_conf.fs.s3a.endpoint: not a Spark setting; allowed: names that begin",
        ),
        ("spark_conf: {spark.executor: {memory: 4g}}\n", "spark_conf.spark.executor: must be text; found "),
        ("spark_conf: [spark.x]\n", "spark_conf: "),
        ("just words", "the file must hold keys (master, driver_memory, driver_host …); found text"),
    ],
)
def test_what_is_wrong_is_named(home: Home, text: str, problem: str) -> None:
    (told,) = problems(home, text)
    assert told.startswith(problem)


def test_variables_are_checked_like_the_file_and_named(home: Home) -> None:
    told = problems(home, "", {"HUDI_INGEST_ENGINE_MASTR": "yarn", "HUDI_INGEST_ENGINE_CORES": "x"})
    assert told[0].startswith(
        "environment variable HUDI_INGEST_ENGINE_MASTR: unknown; allowed: HUDI_INGEST_ENGINE_MASTER, "
    )
    assert told[0].endswith("did you mean master?")
    assert told[1].startswith("cores: must be a whole number; found 'x'")


@pytest.mark.parametrize(
    "wrong", ["spark.hadoop.fs.s3a.secret.key: [hunter2]", "spark.hadoop.key: hunter2\n  x: hunter2"]
)
def test_no_value_of_spark_conf_is_shown(home: Home, wrong: str) -> None:
    assert "hunter2" not in str(problems(home, f"spark_conf:\n  {wrong}\n"))
    settings = EngineSettings.model_validate({"spark_conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}})
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "local-cluster[2, 1, 1024]"])
def test_a_master_on_this_host_needs_no_driver_host(master: str) -> None:
    assert EngineSettings(master=master).advertised_host == "127.0.0.1"


def test_validate_reports_problems_of_engine_yaml_beside_those_of_pipeline_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUDI_INGEST_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.delenv("HUDI_INGEST_ENGINE", raising=False)
    (tmp_path / "engine.yaml").write_text("driver_memory: much")
    found = CliRunner().invoke(cli.app, ["validate", "--json", str(tmp_path / "nowhere.yaml")])
    assert found.exit_code == 1
    (of_engine, of_pipeline) = json.loads(found.stdout).values()
    assert of_engine[0].startswith("driver_memory: found 'much'")
    assert of_pipeline[0].startswith("file not found")
