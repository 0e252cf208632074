"""`hudi-ingest head` and `query`: rows of a table, as a user asks for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_rows_of_a_table_are_shown_and_asked_for(ground: Ground, pipeline: Pipeline, tmp_path: Path) -> None:
    for command in (("head", pipeline.name), ("query", pipeline.name, "select 1")):
        early = answer(ground.home, *command)
        assert early.returncode == 1
        assert f"`hudi-ingest run {pipeline.name}`" in early.stderr
    ground.send_rows(0, 30)
    ground.run(pipeline)

    shown = answer(ground.home, "head", pipeline.name, "-n", "4", "--json")
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)
    assert len(rows) == 4
    assert {(0, row["_kafka_offset"]): row["id"] for row in rows}.items() <= ground.produced.items()
    assert "there are more" in shown.stderr
    assert "there are more" not in answer(ground.home, "head", pipeline.name, "-n", "30").stderr

    def ask(statement: str, *options: str) -> list[object]:
        found = answer(ground.home, "query", pipeline.name, statement, "--json", *options)
        assert found.returncode == 0, found.stderr
        return [list(row.values()) for row in json.loads(found.stdout)]

    name = pipeline.name
    assert ask(f"select dt, count(*), max(n) from {name} group by dt order by dt") == [
        ["2026-01-01", 10, 27],
        ["2026-01-02", 10, 28],
        ["2026-01-03", 10, 29],
    ]
    total = sum(range(30))
    assert ask(f"select sum(n), sum(n)::decimal(20, 1), {2**64}::hugeint, time '12:00' from {name}") == [
        [total, f"{total}.0", 2**64, "12:00:00"]
    ]
    # Twice in one statement.
    assert ask(f"select count(*) from {name} a join {name} b using (id)") == [[30]]
    assert len(ask(f"from {name}", "-n", "7")) == 7

    def refused(statement: str, *options: str) -> str:
        found = answer(ground.home, "query", name, statement, *options)
        assert found.returncode == 1, found.stdout
        assert "Traceback" not in found.stderr
        return found.stderr

    assert f"The table is called {name}" in refused("select * from nothing")
    assert "failed" in refused(f"delete from {name}")
    target = tmp_path / "copy.csv"
    assert "failed" in refused(f"copy {name} to '{target}'")
    assert not target.exists()
    endless = f"select max(a.n + b.range) from {name} a, range(100000000000) b"
    assert "longer than 0.5 s" in refused(endless, "--seconds", "0.5")
    assert "needs more than 1 GB" in refused("select list(range) from range(1000000000)")


def test_changes_of_a_keyed_table_are_merged(ground: Ground, topic: str) -> None:
    table = {"schema": "id string not null, n long, dt string", "partition_by": [], "mode": "upsert", "key": ["id"]}
    pipeline = make_pipeline(ground, table=table, source={"topics": [topic]})
    ground.send_rows(0, 5)
    ground.run(pipeline)
    ground.send(0, [b'{"id": "0-1", "n": 100, "dt": "x"}'])
    ground.run(pipeline)
    found = answer(ground.home, "query", pipeline.name, f"select max(n), count(*) from {pipeline.name}", "--json")
    assert [*json.loads(found.stdout)[0].values()] == [100, 5], found.stderr
