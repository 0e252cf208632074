"""When the schedules of clustering and compaction request no run, whatever is due."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRequest, SkipReason

from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger, Service, ServiceRun
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.upkeep_jobs import SERVICES, clustering_run, compaction_run
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


def test_a_table_with_frequent_commits_is_clustered_from_200_small_files_on_unless_it_rests(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    monkeypatch.setenv(LEDGER_VARIABLE, url)
    often = load(write, table__base_path=str(tmp_path / "table"), transaction__interval_seconds=2)
    small: list[FileGroup] = []
    monkeypatch.setattr(Timeline, "file_groups", lambda _: small)
    now = datetime.now(timezone.utc)
    with DagsterInstance.ephemeral() as instance, Ledger.open(url) as ledger:

        def asked() -> RunRequest | SkipReason:
            return clustering_run(often, instance, now)

        small += [FileGroup("", str(number), size_bytes=1000) for number in range(199)]
        assert asked() == SkipReason("not due: 199 small files to merge, and it is from 200 on")
        small.append(FileGroup("", "199", size_bytes=1000))
        requested = asked()
        assert isinstance(requested, RunRequest)
        assert requested.run_config == SERVICES.config_of(
            {"cluster": True, "merge_below_bytes": 1001, "compact": False, "clean": False}
        )
        assert requested.tags == {tags.REASON: "200 small files", tags.MERGING: "true"}, "fresh tables take turns"
        began_at = now - timedelta(seconds=30)
        ledger.service_runs.began(often.table.base_path, often.name, Service.CLUSTERING, began_at)
        ledger.service_runs.ended(
            ServiceRun(often.table.base_path, "clustering", often.name, began_at, began_at + timedelta(seconds=10))
        )
        skip = asked()
        assert isinstance(skip, SkipReason)
        until = f"{began_at + timedelta(seconds=40):%H:%M:%S}"
        assert skip.skip_message == f"merging files may take 25% of the time at most, so it rests until {until} UTC"
        assert isinstance(clustering_run(often, instance, now + timedelta(seconds=10)), RunRequest)


def test_clustering_when_due_is_for_append_tables_with_an_interval_below_a_minute(write: Write) -> None:
    (schedule,) = (each for each in SERVICES.schedules if each.name == "clustering")
    keyed: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]}
    assert schedule.on
    assert schedule.concerns(load(write, transaction__interval_seconds=59))
    assert not schedule.concerns(load(write))
    assert not schedule.concerns(load(write, transaction__interval_seconds=2, **keyed))
