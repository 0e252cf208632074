"""The Python and YAML of the README, docs/ and deploy/, as they stand there: loaded by whatever a reader would load them with."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from dagster import ConfigurableResource, Definitions, FilesystemIOManager, in_process_executor
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_file
from dagster._core.workspace.load_target import WorkspaceFileTarget

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.operations.validation import require_valid
from hudi_ingest.pipeline.code_location import load_alert_settings, load_housekeeping_settings
from hudi_ingest.pipeline.engine import EngineSettings, load_engine_settings
from hudi_ingest.pipeline.folder import load_file_alone
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest.pipeline.settings.describe import keys
from hudi_ingest_tests.support.dg_project import load_project, make_project

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parents[2]
PAGES = (
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "deploy").rglob("README.md")),
    *sorted((REPOSITORY / "examples").rglob("README.md")),
)
ELSEWHERE = {"formats.md": "yaml"}
"""test_formats_page.py loads its pipeline files beside the schemas that the page shows, and reads its records with them."""
VALUES = {
    "KAFKA_BOOTSTRAP_SERVERS": "broker:9092",
    "HUDI_INGEST_TABLES": "/tables",
    "SCHEMA_REGISTRY_URL": "https://registry:8081",
    "S3_ENDPOINT": "http://minio:9000",
    **dict.fromkeys(("SALT", "STORE_KEY", "STORE_SECRET", "KAFKA_CLIENT_SECRET", "DAGSTER_POSTGRES_URL"), "value"),
}
MODULES = {"with_tax": "shop/rows.py", "token": "company/kafka.py"}
"""The names that pages give to the modules of their functions, by the function."""
_BLOCK = re.compile(r"^( *)```(python|yaml)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def snippets(language: str) -> Iterator[Snippet]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            if found[2] == language and ELSEWHERE.get(page.name) != language:
                own = textwrap.dedent(found[3].replace(f"\n{found[1]}", "\n").removeprefix(found[1]))
                yield Snippet(page, text.count("\n", 0, found.start()) + 1, language, own)


PYTHON, YAML = [*snippets("python")], [*snippets("yaml")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder such as a reader has: with a pipeline, the variables, and the modules of the pages' functions."""
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HUDI_INGEST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HUDI_INGEST_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("HUDI_INGEST_LEDGER_URL", f"sqlite:///{tmp_path / 'ledger.db'}")
    folder = tmp_path / "pipelines"
    folder.mkdir()
    orders = next(each for each in YAML if each.page.name == "configuration.md")
    (folder / "orders.yaml").write_text(orders.text)
    (tmp_path / "ca.pem").write_text("certificate")
    for snippet in PYTHON:
        for function, module in MODULES.items():
            if f"def {function}(" in snippet.text:
                (tmp_path / module).parent.mkdir(exist_ok=True)
                (tmp_path / module).write_text(snippet.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module


class _Resource(ConfigurableResource[Any]):
    pass


def _results_on_s3(**settings: Any) -> FilesystemIOManager:
    assert {*settings} == {"s3_resource", "s3_bucket", "s3_prefix"}
    return FilesystemIOManager()


NOT_INSTALLED: Mapping[str, Mapping[str, Any]] = {
    "dagster_k8s": {"k8s_job_executor": in_process_executor},
    "dagster_aws": {},
    "dagster_aws.s3": {"S3PickleIOManager": _results_on_s3, "S3Resource": _Resource},
}
"""Packages that only a cluster has: the rest of such a module is loaded."""
NEEDS_A_SERVER = {"spark.read", "run_transaction(", "producer.flush()"}
"""Snippets with one of these are compiled, and what they import is imported; test_readme.py runs the README's on a broker and Spark."""


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_python_of_a_page_can_be_loaded_as_dagster_loads_it(
    snippet: Snippet, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, names in NOT_INSTALLED.items():
        monkeypatch.setitem(sys.modules, name, _module(name, **names))
    text = snippet.text
    if any(mark in text for mark in NEEDS_A_SERVER):
        body: list[ast.stmt] = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
        text = ast.unparse(ast.Module(body, []))
    path = place / "snippet.py"
    path.write_text(text)
    if "Definitions" not in text:
        spec = importlib.util.spec_from_file_location("snippet", path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return
    (target,) = loadable_targets_from_python_file(str(path), str(place))
    defs = target.target_definition
    assert isinstance(defs, Definitions)
    Definitions.validate_loadable(defs)
    if "ingest_definitions" in text:
        assert any(sensor.name.startswith(COORDINATOR) for sensor in defs.sensors or ())


def _pipeline(given: dict[str, Any], place: Path) -> None:
    """Load a pipeline file with these settings; of a page's excerpt, with the rest that a file needs."""
    whole = {"name": "orders", **given}
    whole["source"] = {"bootstrap_servers": "broker:9092", **whole.get("source", {})}
    if not {"topics", "topics_pattern"} & whole["source"].keys():
        whole["source"]["topics"] = ["orders"]
    whole["table"] = {"base_path": "/data/orders", **whole.get("table", {})}
    if "schema_registry" not in whole["source"] and not {"schema", "schema_file"} & whole["table"].keys():
        whole["table"]["schema"] = "id string, ts timestamp, created string"
    text = yaml.safe_dump(whole, sort_keys=False)
    text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{place / 'secret'}}}", text)
    (place / "secret").write_text("value")
    path = place / "own" / "pipeline.yaml"
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "ca.pem").write_text("certificate")
    (path.parent / "certificates").mkdir()
    (path.parent / "certificates" / "ca.pem").write_text("certificate")
    try:
        loaded = load_file_alone(path)
    except ConfigError as error:
        # The wheels of confluent-kafka have no Kerberos; what the page says besides is right.
        assert "GSSAPI" in text, error
        (problem,) = error.problems
        assert "built without Kerberos" in problem
        return
    for pipeline in loaded.pipelines:
        require_valid(pipeline, str(path))


def _component(given: dict[str, Any], place: Path) -> None:
    project = make_project(place, orders=given["attributes"])
    beside = project / "src" / "shop" / "defs" / "orders"
    (beside / "orders.yaml").write_text((place / "pipelines" / "orders.yaml").read_text())
    defs = load_project(project)
    assert [*defs.resolve_all_job_defs()]


def _settings(variable: str, load: Callable[..., Any]) -> Callable[[dict[str, Any], Path], None]:
    def loads(given: dict[str, Any], place: Path) -> None:
        text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{place / 'secret'}}}", yaml.safe_dump(given))
        (place / "secret").write_text("https://chat.example.com")
        (place / "settings.yaml").write_text(text)
        environment = {variable: str(place / "settings.yaml"), **VALUES}
        load(Home.from_environment(environment), environment=environment)

    return loads


def _dagster_yaml(given: dict[str, Any], place: Path) -> None:
    (place / "dagster.yaml").write_text(yaml.safe_dump(given))
    config, _ = dagster_instance_config(str(place))
    (part,) = given.values()
    named = part.get("custom", part)
    assert hasattr(import_module(named["module"]), named["class"])
    assert config.keys() >= given.keys()


def _workspace(given: dict[str, Any], place: Path) -> None:
    (place / "workspace.yaml").write_text(yaml.safe_dump(given))
    assert len(WorkspaceFileTarget([str(place / "workspace.yaml")]).create_origins()) == 1


def _of_source(given: dict[str, Any], place: Path) -> None:
    _pipeline({"source": given}, place)


def _of_security(given: dict[str, Any], place: Path) -> None:
    security = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **given}
    _pipeline({"source": {"security": security}}, place)


def _of_store(given: dict[str, Any], place: Path) -> None:
    _pipeline({"table": {"base_path": "s3a://lake/orders", **given}}, place)


def _scraping(given: Any, place: Path) -> None:
    (job,) = given
    assert {"job_name", "authorization"} <= job.keys(), "promtool has the rest: test_deploy_files.py"


LOADED: Mapping[str, Callable[[Any, Path], None]] = {
    "job_name": _scraping,
    "attributes": _component,
    "load_from": _workspace,
    "run_launcher": _dagster_yaml,
    "webhooks": _settings("HUDI_INGEST_ALERTS", load_alert_settings),
    "ledger_days": _settings("HUDI_INGEST_HOUSEKEEPING", load_housekeeping_settings),
    "master": _settings("HUDI_INGEST_ENGINE", load_engine_settings),
    "security": _of_source,
    "oauth": _of_security,
}


@pytest.mark.parametrize("snippet", YAML, ids=str)
def test_yaml_of_a_page_is_valid_where_it_belongs(snippet: Snippet, place: Path) -> None:
    given = yaml.safe_load(snippet.text)
    named = {*given} if isinstance(given, dict) else {*given[0]}
    load = next((LOADED[key] for key in LOADED if key in named), None)
    if load is None and named == {"storage"}:
        load = _dagster_yaml if "custom" in given["storage"] else _of_store
    if load is None:
        assert named <= keys(Pipeline).keys(), f"nothing here loads {snippet}"
        load = _pipeline
    load(given, place)


def test_the_pages_have_snippets_and_all_settings_files_are_among_them() -> None:
    assert len(PYTHON) >= 10
    assert len(YAML) >= 35
    assert "master" in keys(EngineSettings)
