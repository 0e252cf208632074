"""When the compaction schedule requests no run, whatever is due."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, SkipReason

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.upkeep import compaction_run
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import Write, load


@pytest.fixture
def pipeline(write: Write, tmp_path: Path) -> Pipeline:
    return load(write, table__base_path=str(tmp_path / "table"), table__mode="upsert", table__key=["id"])


def skipped(pipeline: Pipeline, instance: DagsterInstance, after: float = 0) -> str:
    outcome = compaction_run(pipeline, instance, datetime.now(timezone.utc) + timedelta(seconds=after))
    assert isinstance(outcome, SkipReason)
    return str(outcome.skip_message)


def test_without_a_table_nothing_is_due(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        assert skipped(pipeline, instance) == "not due: 0 commits not compacted, 0 bytes"


def test_while_a_run_of_services_is_active_no_other_is_launched(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        run = DagsterRun(
            "hudi_ingest_services", tags={tags.PIPELINE_SERVICES: "orders"}, status=DagsterRunStatus.STARTED
        )
        instance.add_run(run)
        assert skipped(pipeline, instance) == f"run {run.run_id[:8]} of table services has not ended"


def test_after_failures_it_waits_longer_and_longer(pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        for failures, seconds in ((1, 0), (2, 60), (3, 120)):
            run = DagsterRun(
                "hudi_ingest_services", tags={tags.PIPELINE_SERVICES: "orders"}, status=DagsterRunStatus.STARTED
            )
            instance.add_run(run)
            instance.report_run_failed(run)
            if seconds:
                assert f"the last {failures} runs of table services failed" in skipped(pipeline, instance, seconds - 5)
            assert skipped(pipeline, instance, seconds + 5).startswith("not due")
