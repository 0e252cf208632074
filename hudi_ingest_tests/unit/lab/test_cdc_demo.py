"""What the CDC demo says and how it ends; that it runs is for e2e/test_cdc_demo.py."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hudi_ingest.home.folder import HOME_VARIABLE
from hudi_ingest.hudi.files.read_amplification import COMPACT
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.offsets import SeenTopic
from hudi_ingest.pipeline.expansion import expand
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.lab import __main__ as commands
from hudi_ingest_tests.lab import cdc_demo as module
from hudi_ingest_tests.lab import postgresql
from hudi_ingest_tests.lab.cdc_demo import KILLED, CdcDemoResult, CdcDemoSettings, kills
from hudi_ingest_tests.lab.cdc_stack import COMPACTED_COMMITS, write_pipeline
from hudi_ingest_tests.lab.row_comparison import RowComparison
from hudi_ingest_tests.lab.source_tables import SourceTable, customers, random_tables

SAME = RowComparison(rows=2_500, missing=0, extra=0, duplicate=0, different=0, examples=())
GOOD = CdcDemoResult(
    seed=19,
    changes={"insert": 3_000, "delete": 500},
    records=4_200,
    commits=12,
    compactions=2,
    repeated=2,
    killed=("Kafka Connect",),
    tables={"public.customers": {"hudi-rs": SAME, "Spark": SAME}},
    seconds=200.4,
)
DIFFERENT = replace(SAME, different=1, examples=("id 7: vip is True instead of None",))
BAD = replace(GOOD, tables={"public.customers": {"hudi-rs": SAME, "Spark": DIFFERENT}})


def ends(result: CdcDemoResult, monkeypatch: pytest.MonkeyPatch, home: Path, *options: str) -> tuple[int, str]:
    """The exit code and the output of the command, if the demo has that result."""
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.setattr(commands, "run_cdc_demo", lambda home, settings, report: result)
    done = CliRunner().invoke(commands.lab, ["cdc-demo", *options])
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
    done = CliRunner().invoke(commands.lab, ["cdc-demo"])
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
    [table] = tables = [customers(random.Random(1))]
    cdc: Any = SimpleNamespace(processes=())
    writer: Any = SimpleNamespace(tables=tables)
    nothing: Any = None
    pipelines = {table.name: pipeline_of(table, tmp_path, tables)}
    assert module._Demo(cdc, writer, nothing, print, pipelines).compactions() == 1


def pipeline_of(table: SourceTable, folder: Path, tables: list[SourceTable]) -> Pipeline:
    """The table's pipeline, of the demo's file for all of them."""
    variables = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092", "HUDI_INGEST_TABLES": str(folder)}
    topics = [SeenTopic(f"shop.{each.name}", datetime.now(timezone.utc), True) for each in tables]
    loaded = expand(write_pipeline(folder / "pipelines", tables), variables, lambda template: topics).loaded
    assert [file.problems for file in loaded] == [()] * len(tables)
    return next(file.pipeline for file in loaded if file.pipeline and table.name in file.pipeline.source.topics[0])


def test_one_file_mirrors_all_tables(tmp_path: Path) -> None:
    dice = random.Random(7)
    tables = [customers(dice), *random_tables(3, dice)]
    pipeline = pipeline_of(tables[2], tmp_path, tables)
    assert pipeline.name == "shop_public_table_02"
    assert pipeline.table.finds_key
    assert pipeline.table.partition_by == ()
    assert pipeline.source.optional_fields == ("added_0", "added_1", "points")
    of_customers = pipeline_of(tables[0], tmp_path, tables)
    assert (of_customers.table.partition_by, of_customers.source.before_image) == (("country",), "row")


def test_its_options_are_what_the_demo_gets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[CdcDemoSettings] = []

    def run(home: object, settings: CdcDemoSettings, report: object) -> CdcDemoResult:
        given.append(settings)
        return GOOD

    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(commands, "run_cdc_demo", run)
    # As `make mirror-demo ARGS=…` has it: what is given last counts.
    line = ["cdc-demo", "--tables", "10", "--tables", "3", "--seconds", "30", "--seed", "7"]
    assert [CliRunner().invoke(commands.lab, each).exit_code for each in (line, ["cdc-demo"])] == [0, 0]
    assert given == [CdcDemoSettings(30, 3, 7), CdcDemoSettings(120, 1, 19)]
    assert CliRunner().invoke(commands.lab, ["cdc-demo", "--tables", "0"]).exit_code == 2


def test_of_several_tables_each_has_a_line_with_its_first_difference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables = {**GOOD.tables, "public.orders": {"hudi-rs": SAME, "Spark": DIFFERENT}}
    code, output = ends(replace(GOOD, tables=tables), monkeypatch, tmp_path)
    assert code == 1
    lines = [line.split() for line in output.splitlines()]
    assert ["public.customers", "2,500", "equal", "equal"] in lines
    different = "public.orders 2,500 equal NOT equal Spark: id 7: vip is True instead of None"
    assert different.split() in lines
    assert "1 of 2 Hudi tables do NOT equal" in output
    assert "Spark: 5,000 rows, 0 missing, 0 extra, 0 duplicate, 1 different" in output


def test_every_part_is_killed_once_in_a_short_demo_and_in_every_two_minutes_of_a_long_one() -> None:
    assert Counter(kills(30, random.Random(7))) == Counter(KILLED)
    long = kills(250, random.Random(7))
    assert Counter(long[:5]) == Counter(long[5:]) == Counter(KILLED)
    assert long == kills(250, random.Random(7)) != kills(250, random.Random(8))
