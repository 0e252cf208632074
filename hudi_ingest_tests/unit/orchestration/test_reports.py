"""When a tick looks through the materializations that Dagster has."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, EventRecordsResult

from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.reports.tick_reports import Reported, newest_materialization, report_commits
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.observations import seen


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    return make_pipeline(Ground("orders", "127.0.0.1:1", home))


def materialize(pipeline: Pipeline, instance: DagsterInstance, transaction: str) -> None:
    instance.report_runless_asset_event(
        AssetMaterialization(table_key(pipeline), metadata={"transaction": transaction})
    )


def finds_unreported(known: Reported, pipeline: Pipeline, instance: DagsterInstance, *transactions: str) -> bool:
    situation = Situation(CommittedState(exists=True, transactions=transactions), {}, {}, {})
    return report_commits(seen(pipeline, situation), instance, newest_materialization(pipeline, instance), known)


def test_materializations_are_looked_through_again_once_dagster_or_the_table_has_changed(pipeline: Pipeline) -> None:
    known = Reported()
    with DagsterInstance.ephemeral() as instance:
        assert finds_unreported(known, pipeline, instance, "one")
        materialize(pipeline, instance, "one")
        for _ in range(2):
            assert not finds_unreported(known, pipeline, instance, "one")
        assert finds_unreported(known, pipeline, instance, "one", "two")
        materialize(pipeline, instance, "two")
        for _ in range(2):
            assert not finds_unreported(known, pipeline, instance, "one", "two")
        instance.wipe_assets([table_key(pipeline)])
        assert finds_unreported(known, pipeline, instance, "one", "two")


def test_other_events_of_the_asset_change_nothing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Reported()
    with DagsterInstance.ephemeral() as instance:
        materialize(pipeline, instance, "one")
        assert not finds_unreported(known, pipeline, instance, "one")
        limits: list[int] = []
        fetch = instance.fetch_materializations

        def counted(key: AssetKey, limit: int) -> EventRecordsResult:
            limits.append(limit)
            return fetch(key, limit)

        monkeypatch.setattr(instance, "fetch_materializations", counted)
        assert not finds_unreported(known, pipeline, instance, "one")
        assert limits == [1]
        materialize(pipeline, instance, "two")
        limits.clear()
        assert not finds_unreported(known, pipeline, instance, "one", "two")
        assert limits == [1, 2], "only one is new"
        materialize(pipeline, instance, "three")
        materialize(pipeline, instance, "four")
        assert not finds_unreported(known, pipeline, instance, "one", "two", "three", "four")


def test_the_materialization_of_a_commit_after_a_deletion_says_nothing_of_those_before(pipeline: Pipeline) -> None:
    known = Reported()
    with DagsterInstance.ephemeral() as instance:
        materialize(pipeline, instance, "one")
        assert not finds_unreported(known, pipeline, instance, "one")
        instance.wipe_assets([table_key(pipeline)])
        materialize(pipeline, instance, "two")
        assert finds_unreported(known, pipeline, instance, "one", "two")
