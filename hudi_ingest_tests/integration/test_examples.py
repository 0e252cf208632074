"""examples/: each is valid and loads, and those that need no more than a broker and Spark run."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetKey, materialize
from hudi import HudiTable
from typer.testing import CliRunner

from hudi_ingest.cli import app as cli
from hudi_ingest.home.folder import (
    BOOTSTRAP_VARIABLE,
    HOME_VARIABLE,
    LEDGER_VARIABLE,
    PIPELINES_VARIABLE,
    TABLES_VARIABLE,
)
from hudi_ingest.local.broker import create_topic
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.dg_project import load_project
from hudi_ingest_tests.support.ground import Ground

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = ("key_values", "ingest", "definitions")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example that the test names, current and on the path, with variables for its files."""
    copy = tmp_path / "example"
    shutil.copytree(EXAMPLES / request.param, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(str(copy))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setenv(PIPELINES_VARIABLE, str(copy / "pipelines"))
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "127.0.0.1:9")
    monkeypatch.setenv(TABLES_VARIABLE, str(tmp_path / "tables"))
    for name in ("LAKE_BUCKET", "STORE_KEY", "STORE_SECRET"):
        monkeypatch.setenv(name, "lake")
    monkeypatch.setenv("STORE_ENDPOINT", "http://127.0.0.1:9")
    yield copy
    for name in MODULES:
        sys.modules.pop(name, None)


def example(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", [name], indirect=True)


@pytest.mark.parametrize("folder", ["own_converter", "s3", "debezium", "embedded", "downstream"], indirect=True)
def test_each_pipeline_file_is_valid(folder: Path) -> None:
    found = CliRunner().invoke(cli.app, ["validate", *map(str, (folder / "pipelines").iterdir())])
    assert found.exit_code == 0, found.output
    assert ": ok" in found.output


def test_the_readme_lists_each_example() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.iterdir() if path.is_dir() and f"| [{path.name}](" not in listed] == []


@example("dg_project")
def test_the_component_loads_in_its_project(folder: Path) -> None:
    graph = load_project(folder).resolve_asset_graph()
    assert AssetKey(["orders"]) in graph.get_all_asset_keys()


@example("own_converter")
def test_a_converter_of_ones_own_names_the_fields_that_it_rejects(folder: Path) -> None:
    own = importlib.import_module("key_values")
    schema = pa.schema([pa.field("id", pa.string(), False), pa.field("n", pa.decimal128(12, 2)), ("note", pa.string())])
    values = [b"id=p1 n=12.50 note=", b"hello", b"id=p2 n=much", b"\xff=1", b"id=p3 n=1 note=x=y"]
    decoded = own.KeyValues(schema, {}).decode(pa.array(values, pa.binary()))
    assert decoded.rows["id"].to_pylist() == ["p1", "p3"]
    assert decoded.rows["note"].to_pylist() == [None, "x=y"]
    assert decoded.kept.to_pylist() == [0, 4]
    assert [(each.index, each.field) for each in decoded.rejected] == [(1, ""), (2, "n"), (3, "")]


@example("downstream")
def test_the_assets_downstream_depend_on_the_table_and_on_its_complete_hours(folder: Path) -> None:
    found = importlib.import_module("definitions")
    graph = found.defs.resolve_asset_graph()
    assert graph.get(AssetKey(["popular_pages"])).parent_keys == {AssetKey(["clicks"])}
    assert graph.get(AssetKey(["clicks_of_the_hour"])).parent_keys == {AssetKey(["clicks_hours"])}
    assert AssetKey(["clicks"]) in graph.get(AssetKey(["clicks_hours"])).parent_keys


@example("embedded")
def test_the_program_says_which_file_it_cannot_load(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "ingest.py", "pipelines/none.yaml"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 1
    assert "none.yaml" in done.stderr


def on_the_broker(folder: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's pipeline file, with the ground's topic, which is created."""
    [file] = (folder / "pipelines").iterdir()
    [topic] = load_pipeline(file).source.topics
    file.write_text(file.read_text().replace(f"topics: [{topic}]", f"topics: [{ground.name}]"))
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, ground.bootstrap_servers)
    create_topic(ground.bootstrap_servers, ground.name, 1)
    return file


def rows(file: Path) -> list[dict[str, Any]]:
    """The table's rows without Hudi's and Kafka's columns."""
    table = pa.Table.from_batches(HudiTable(load_pipeline(file).table.base_path).read())
    own = [name for name in table.column_names if not name.startswith("_")]
    found: list[dict[str, Any]] = table.select(own).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@example("own_converter")
@pytest.mark.kafka
@pytest.mark.spark
def test_a_converter_of_ones_own_makes_rows_and_rejects_what_is_none(
    folder: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = on_the_broker(folder, ground, monkeypatch)
    monkeypatch.setitem(current_session(ground.home).sparkContext.environment, "PYTHONPATH", str(folder))
    ground.send(0, [b"id=p1 amount=12.50 note=", b"hello", b"id=p2 amount=much", b"id=p3 amount=1 note=x=y"])
    receipt = ground.run(load_pipeline(file))
    assert (receipt.rows, receipt.rejected) == (2, 2)
    assert [(row["id"], str(row["amount"]), row["note"]) for row in rows(file)] == [
        ("p1", "12.50", None),
        ("p3", "1.00", "x=y"),
    ]


@example("debezium")
@pytest.mark.kafka
@pytest.mark.spark
def test_changes_of_a_database_become_a_row_per_key(
    folder: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = on_the_broker(folder, ground, monkeypatch)
    ada, bob = {"id": 1, "name": "Ada", "country": "GB"}, {"id": 2, "name": "Bob", "country": "US"}
    moved = {**ada, "country": "FR"}
    changes = [("c", None, ada), ("c", None, bob), ("u", ada, moved), ("d", bob, None)]
    ground.send(0, [json.dumps({"before": old, "after": new, "op": op}).encode() for op, old, new in changes])
    ground.run(load_pipeline(file))
    assert rows(file) == [moved]


@pytest.mark.parametrize("folder", ["downstream"], indirect=True)
@pytest.mark.kafka
@pytest.mark.spark
def test_a_program_commits_all_and_an_asset_downstream_reads_it(
    folder: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "embedded"))
    file = on_the_broker(folder, ground, monkeypatch)
    day = "2026-01-31"
    clicks = [{"id": "1", "page": "/", "seconds": 1.5}, {"id": "2", "page": "/a", "seconds": 9}]
    ground.send(0, [json.dumps({**click, "day": day}).encode() for click in clicks])
    assert importlib.import_module("ingest").ingest(file) == 2
    assert "2 rows, 0 bad records" in capsys.readouterr().out
    found = importlib.import_module("definitions")
    now = datetime.now(timezone.utc)
    assert found.count_between(found.clicks(), now - timedelta(hours=1), now + timedelta(hours=1)) == 2
    assert found.count_between(found.clicks(), now - timedelta(hours=2), now - timedelta(hours=1)) == 0
    [done] = materialize([found.popular_pages]).get_asset_materialization_events()
    assert done.materialization.metadata["first"].value == "/a"
