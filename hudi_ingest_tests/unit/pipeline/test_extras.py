"""Without an extra, the pipelines that need it say which to install, and all others work."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.stack import StackSettings, bring_up
from hudi_ingest.pipeline.extras import MODULES
from hudi_ingest.pipeline.file import load_pipeline

pytestmark = pytest.mark.fast

TABLE = "table: {base_path: /tables/shop, schema: 'id string, n long'}"
REGISTRY = "schema_registry: {url: 'http://registry:8081'}"


def pipeline_text(source: str = "", more: str = "") -> str:
    return f"name: shop\nsource: {{bootstrap_servers: 'k:9092', topics: [shop]{source}}}\n{TABLE}\n{more}"


NEEDS = {
    "source.format": ("avro", pipeline_text(", format: avro, avro: {wire_format: datum, schema_files: [shop.avsc]}")),
    "source.key.format": ("protobuf", pipeline_text(", key: {format: protobuf, schema: 'k string'}")),
    "source.schema_registry": ("registry", pipeline_text(f", format: json_schema, {REGISTRY}")),
    "table.base_path": ("s3", pipeline_text().replace("/tables/shop", "'s3a://tables/shop'")),
    "transforms[0].sql": ("sql", pipeline_text(more="transforms: [{sql: 'SELECT *, n + 1 AS m FROM records'}]")),
}
"""By place: the extra, and a pipeline that needs it there."""


@pytest.mark.parametrize("place", NEEDS)
def test_each_missing_module_is_a_problem_at_the_place_that_needs_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra, text = NEEDS[place]
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    for module in MODULES[extra]:
        with monkeypatch.context() as hidden, pytest.raises(ConfigError) as raised:
            hidden.setitem(sys.modules, module, None)
            load_pipeline(path)
        [problem] = [each for each in raised.value.problems if each.startswith(f"{place}: ")]
        assert f"needs {module}, not installed here; install hudi-ingest[{extra}]" in problem


def test_without_any_extra_validate_names_them_and_dagster_loads_the_others(tmp_path: Path) -> None:
    """The modules are hidden as if they were not installed: in a process of its own, as others have imported them here."""
    (tmp_path / "plain.yaml").write_text(pipeline_text().replace("shop", "plain"))
    for extra, text in NEEDS.values():
        (tmp_path / f"{extra}.yaml").write_text(text)
    hidden = [module for modules in MODULES.values() for module in modules]
    code = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
from dagster import Definitions
from typer.testing import CliRunner
from hudi_ingest.cli import app
validated = CliRunner().invoke(app.app, ["validate", *sys.argv[1:]])
print(validated.output)
from hudi_ingest.orchestration.definitions import defs
assert Definitions.validate_loadable(defs) is None
print("tables:", *(key.to_user_string() for key in defs.resolve_all_asset_keys() if key.path == ['plain']))
"""
    environment = {"HUDI_INGEST_HOME": str(tmp_path / "home"), "HUDI_INGEST_PIPELINES": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code, *map(str, sorted(tmp_path.glob("*.yaml")))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    for extra, _ in NEEDS.values():
        assert f"install hudi-ingest[{extra}]" in found.stdout
    assert "plain.yaml: ok" in found.stdout
    assert "tables: plain\n" in found.stdout


def test_up_says_before_it_starts_anything_that_the_ui_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_webserver", None)
    home = Home.from_environment({"HUDI_INGEST_HOME": str(tmp_path / "home")})
    with pytest.raises(EnvironmentProblem, match=r"Dagster UI needs dagster_webserver(.|\n)*hudi-ingest\[ui\] here"):
        bring_up(home, StackSettings(), print)
    assert not home.root.exists()


def test_a_ledger_on_postgresql_names_the_extra_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hudi_ingest.ledger.answer_limit", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(EnvironmentProblem, match=r"driver is missing(.|\n)*hudi-ingest\[postgres\]"):
        Ledger.open("postgresql://nobody@127.0.0.1:1/ledger")


def test_the_storage_of_dagster_on_postgresql_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "hudi_ingest.orchestration.postgres_storage"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    with pytest.raises(EnvironmentProblem, match=rf"{name} needs dagster_postgres(.|\n)*hudi-ingest\[postgres\]"):
        import_module(name)
