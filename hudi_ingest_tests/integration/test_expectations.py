"""Expectations on a real broker, Spark and Hudi: counted once by the commits, retried, replayed, and answered by checks in Dagster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dagster import AssetCheckKey, AssetKey, DagsterInstance

from hudi_ingest.exceptions import ExpectationViolated
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import violations_in
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.integration.test_dagster_run import launch
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def expecting(ground: Ground, *rules: tuple[str, str, str]) -> Pipeline:
    expectations = [{"name": name, "condition": condition, "severity": severity} for name, condition, severity in rules]
    return make_pipeline(ground, on_bad_record="dead_letter", expectations=expectations)


def told(ground: Ground, pipeline: Pipeline) -> list[dict[str, Any]]:
    """What each commit says of its violations, oldest first."""
    commits = [commit.accounting(pipeline.transaction_key) for commit in PipelineTable(pipeline).commits()]
    return [dict(each.violations) for each in sorted(commits, key=lambda accounting: accounting.sequence)]


def numbers(ground: Ground) -> list[int]:
    return sorted(ground.rows()["n"].to_pylist())


@pytest.mark.tier(1)
def test_s18_violations_are_counted_rejected_retried_and_fatal(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.set_environment(monkeypatch)
    rules = [("small", "n < 18", "warn"), ("not_seven", "n <> 7", "reject"), ("listed", "n < 90", "fail")]
    pipeline = expecting(ground, *rules)
    ground.send_rows(0, 20)
    with DagsterInstance.ephemeral() as instance:
        assert launch(pipeline, instance).success
        keys = [AssetCheckKey(AssetKey([pipeline.name]), f"expect_{name}") for name, *_ in rules]
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        evaluations = [found[key].evaluation for key in keys]
        assert [each and each.passed for each in evaluations] == [False, False, True]
        assert [each and each.metadata["violations"].value for each in evaluations] == [2, 1, 0]
    assert told(ground, pipeline) == [{"small": 2, "not_seven": 1}]
    assert numbers(ground) == [number for number in range(20) if number != 7]

    # A rule that was wrong: its dead letter becomes a row, and each commit counts its own records only.
    pipeline = expecting(ground, rules[0], rules[2])
    (receipt,) = requested(ground, pipeline, TransactionKind.RETRY)
    assert (receipt.rows, dict(receipt.violations)) == (1, {})
    assert numbers(ground) == [*range(20)]
    (replay,) = requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 0, 10, 20)])
    assert dict(replay.violations) == {"small": 2}
    assert numbers(ground) == [*range(20)]

    ground.send_rows(0, 3, 89)
    with pytest.raises(
        ExpectationViolated, match=rf"{topic}:0:21 field n: expected listed: n < 90, .* found 90"
    ) as failed:
        ground.run(pipeline)
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == (topic, 0, 21)
    assert numbers(ground) == [*range(20)], "nothing of it is visible"
    ground.run(expecting(ground, rules[0]))
    assert told(ground, pipeline)[-1] == {"small": 3}
    status = json.loads(answer(ground.home, "status", pipeline.name, "--json").stdout)[0]
    assert status["violations"] == {"small": 7, "not_seven": 1}, "those of rules that are gone, too"
    assert "expectation small: 7 records of all commits" in answer(ground.home, "status", pipeline.name).stdout
    checkpoint = PipelineTable(pipeline).committed().checkpoint
    assert checkpoint is not None
    assert {kind: violations_in(totals) for kind, totals in checkpoint.totals.items()} == {
        "ingest": {"small": 5, "not_seven": 1},
        "replay": {"small": 2},
        "retry": {},
    }
    assert numbers(ground) == [*range(20), 89, 90, 91]
