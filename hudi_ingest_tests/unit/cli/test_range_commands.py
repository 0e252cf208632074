"""`hudi-ingest backfill` and `replay`: a range is asked for in exactly one way, and what is shown of a plan says what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.cli.views import replay_text
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import ReplacedFile
from hudi_ingest.operations.requests.replaced_files import MissingRows, ReplaySurvey
from hudi_ingest_tests.support.pipeline_files import document

WRONG = {
    "": "give one of",
    "--partition orders:0": "go together",
    "--partition orders:0 --start 5": "go together",
    "--partition orders --start 5 --end 9": "expected TOPIC:PARTITION, like orders:3; found 'orders'",
    "--partition orders:0 --start 9 --end 9": "--start 9 is not before --end 9",
    "--from-time 2026-01-31T00:00:00Z": "go together",
    "--from-time yesterday": "--from-time expects ISO 8601 with a time zone, e.g. 2026-01-31T00:00:00Z; found 'yesterday'",
    "--partition orders": "expected TOPIC:PARTITION, like orders:3; found 'orders'",
    "--from-time 2026-01-31 --to-time 2026-02-01": "expects ISO 8601 with a time zone",
    "--from-time 2026-01-31T00:00:00Z --to-time 2026-01-31T01:00:00+01:00": "is not before",
    "--partition orders:0 --start 5 --end 9 --from-time 2026-01-31T00:00:00Z": "give one of",
}


@pytest.mark.parametrize("command", ["backfill", "replay"])
@pytest.mark.parametrize("options", WRONG)
def test_wrong_use_is_told_and_nothing_is_asked_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: str
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document()))

    def nobody(pipeline: object) -> None:
        raise LookupError("a broker is asked")

    monkeypatch.setattr("hudi_ingest.operations.requests.asked_ranges.look_at", nobody)
    result = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, [command, str(path), *options.split()])
    assert result.exit_code == 2, result.output
    assert WRONG[options] in " ".join(result.output.replace("│", "").split())


@pytest.mark.parametrize("other", ["--partition orders:0 --start 5 --end 9", "--transaction t-1", "--respect-deletes"])
def test_dead_letters_are_replayed_all_together_and_not_beside_ranges(tmp_path: Path, other: str) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document(table__base_path=str(tmp_path / "table"))))
    command = ["replay", str(path), "--dead-letters", "--dry-run"]
    told = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, [*command, *other.split()])
    assert told.exit_code == 2, told.output
    assert "--dead-letters takes all pending dead letters" in told.output
    alone = CliRunner().invoke(app, command)
    assert (alone.exit_code, alone.output) == (0, "no pending dead letters\n")


def test_a_plan_says_what_it_costs_and_what_it_brings_back() -> None:
    files = (
        ReplacedFile("d/a_t_1.parquet", 10, 0, 2_000_000, "orders", 0),
        ReplacedFile("d/b_t_1.parquet", 5, 7, 1_000_000, "orders", 0),
    )
    survey = ReplaySurvey("orders", {TopicPartition("orders", 0): ((5, 25),)}, files, MissingRows(3, 2), 4)
    assert replay_text(survey).splitlines() == [
        "transactions: 4",
        "files replaced whole: 1, 2.0 MB, 10 rows",
        "files rewritten, because they hold other ranges' rows too: 1, 1.0 MB, 5 rows replaced, 7 rows copied",
        "rows deleted since they were ingested: 3, which come back unless --respect-deletes is given",
        "offsets without a row that may or may not have had one: 2 (their commits are archived, or only partly in the range)",
    ]
    assert survey.to_dict()["ranges"] == [{"topic": "orders", "partition": 0, "start": 5, "end": 25}]


def test_help_and_version_wait_for_no_large_library() -> None:
    heavy = ("pyarrow", "pandas", "sqlalchemy", "sqlglot", "dagster", "hudi")
    code = f"import sys, hudi_ingest.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


MOVED = """\
# from the old cluster
orders:0=12
orders,1,34
"""
LOSSES: dict[str, object] = {
    "--partition orders:3": ([TopicPartition("orders", 3)], (), {}),
    "--topic orders --partition orders:3=7": ([], ["orders"], {TopicPartition("orders", 3): 7}),
    "--partition orders:3=end --partition orders:4=divergence --partition orders:5": (
        [TopicPartition("orders", 5)],
        (),
        {TopicPartition("orders", 3): "end", TopicPartition("orders", 4): "divergence"},
    ),
    "--offsets moved.txt --partition orders:2=first": (
        [],
        (),
        {TopicPartition("orders", 0): 12, TopicPartition("orders", 1): 34, TopicPartition("orders", 2): "first"},
    ),
    "": "name at least one --partition TOPIC:PARTITION or --topic TOPIC, or --offsets FILE",
    "--partition orders:3=later": "expected an offset, or one of first, end, divergence, after `=`",
    "--partition orders:3=1 --partition orders:3": "a partition is named twice",
    "--offsets moved.txt --partition orders:0=1": "a partition is named twice",
    "--offsets nowhere.txt": "--offsets: nowhere.txt cannot be read",
}


@pytest.mark.parametrize("options", LOSSES)
def test_x4_accept_loss_is_asked_for_partitions_and_where_they_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(yaml.safe_dump(document()))
    Path("moved.txt").write_text(MOVED)
    asked: list[object] = []

    def plan(pipeline: object, *given: object) -> None:
        asked.append(given)
        raise LookupError("a broker is asked")

    monkeypatch.setattr("hudi_ingest.transaction.plan.planning.plan_accepting", plan)
    command = ["accept-loss", "orders.yaml", "--dry-run", *options.split()]
    result = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, command)
    expected = LOSSES[options]
    if isinstance(expected, str):
        assert result.exit_code == 2, result.output
        assert expected in " ".join(result.output.replace("│", "").split())
    else:
        assert asked == [expected]
