"""What the CDC demo says and how it ends; that it runs is for e2e/test_cdc_demo.py."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hudi_ingest.cli import cdc_demo as module
from hudi_ingest.cli import stack_commands
from hudi_ingest.cli.app import app
from hudi_ingest.cli.cdc_demo import CdcDemoResult
from hudi_ingest.home.folder import HOME_VARIABLE
from hudi_ingest.hudi.files.read_amplification import COMPACT
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.local import postgresql
from hudi_ingest.local.cdc_stack import COMPACTED_COMMITS, write_pipeline
from hudi_ingest.local.samples import KEY, NEW_COLUMN, PARTITION, SCHEMA
from hudi_ingest.local.verification import RowComparison
from hudi_ingest.pipeline.file import load_pipeline

assert stack_commands
SAME = RowComparison(rows=2_500, missing=0, extra=0, duplicate=0, different=0, examples=())
GOOD = CdcDemoResult(
    changes={"insert": 3_000, "delete": 500},
    records=4_200,
    commits=12,
    compactions=2,
    repeated=2,
    killed=("Kafka Connect",),
    comparisons={"hudi-rs": SAME, "Spark": SAME},
    seconds=200.4,
)
BAD = replace(
    GOOD,
    comparisons={"hudi-rs": SAME, "Spark": replace(SAME, different=1, examples=("id 7: vip is True instead of None",))},
)


def ends(result: CdcDemoResult, monkeypatch: pytest.MonkeyPatch, home: Path, *options: str) -> tuple[int, str]:
    """The exit code and the output of the command, if the demo has that result."""
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.setattr(module, "run_cdc_demo", lambda home, seconds, report: result)
    done = CliRunner().invoke(app, ["cdc-demo", *options])
    return done.exit_code, done.output


def test_it_exits_0_if_all_readers_find_the_rows_of_postgresql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = ends(GOOD, monkeypatch, tmp_path)
    assert code == 0
    assert "the Hudi table equals `select * from public.customers`" in output
    assert "killed: Kafka Connect" in output


def test_it_exits_1_and_shows_what_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = ends(BAD, monkeypatch, tmp_path)
    assert code == 1
    assert "does NOT equal" in output
    assert "Spark: 2,500 rows, 0 missing, 0 extra, 0 duplicate, 1 different" in output
    assert "id 7: vip is True instead of None" in output


def test_json_has_the_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = ends(BAD, monkeypatch, tmp_path, "--json")
    facts = json.loads(output)
    assert (code, facts["equal"], facts["records"]) == (1, False, 4_200)
    assert facts["comparisons"]["Spark"]["different"] == 1


def test_without_postgresql_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(postgresql, "programs", lambda: None)
    done = CliRunner().invoke(app, ["cdc-demo"])
    assert done.exit_code != 0
    assert "apt-get install postgresql" in str(done.exception or done.output)
    assert list(tmp_path.iterdir()) == []


def test_it_waits_for_the_compaction_that_is_due(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def commit(second: int, file: str, operation: str) -> CommittedInstant:
        at = datetime.now(timezone.utc) + timedelta(seconds=second - 60)
        return CommittedInstant(f"{at:%Y%m%d%H%M%S}000", {}, at, {file: 10}, operation=operation)

    logs = [commit(number, f".group_1.log.{number}_0-0-0", "UPSERT") for number in range(COMPACTED_COMMITS)]
    states = iter([logs, logs, [*logs, commit(30, "group_0-0-0_1.parquet", COMPACT)]])
    monkeypatch.setattr(module, "observe", lambda _: SimpleNamespace(committed=SimpleNamespace(commits=next(states))))
    variables = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092", "HUDI_INGEST_TABLES": str(tmp_path)}
    pipeline = load_pipeline(write_pipeline(tmp_path / "pipelines", SCHEMA), variables)
    cdc: Any = SimpleNamespace(pipeline=lambda: pipeline, processes=())
    nothing: Any = None
    assert module._Demo(cdc, nothing, nothing, print).compactions() == 1


def test_its_pipeline_is_valid_before_and_after_the_new_column(tmp_path: Path) -> None:
    variables = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092", "HUDI_INGEST_TABLES": str(tmp_path)}
    for schema in (SCHEMA, f"{SCHEMA}, {NEW_COLUMN}"):
        pipeline = load_pipeline(write_pipeline(tmp_path / "pipelines", schema), variables)
        assert (pipeline.table.key, pipeline.table.partition_by) == ((KEY,), (PARTITION,))
