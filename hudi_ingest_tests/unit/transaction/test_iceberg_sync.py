"""The publication behind a commit: nothing of a catalog fails a commit or holds it up, and what is behind is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from hudi_ingest.exceptions import CatalogNotSynced, NothingToDo
from hudi_ingest.hudi.iceberg import publisher
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.storage.paths import ICEBERG_STATE
from hudi_ingest.operations.health.judgement import iceberg_up_to_date
from hudi_ingest.transaction.iceberg_sync import IcebergSync, publish_iceberg
from hudi_ingest_tests.support.iceberg_model import IcebergModel
from hudi_ingest_tests.support.pipeline_files import pipeline_named

pytestmark = pytest.mark.fast
LATER = datetime(2026, 1, 2, tzinfo=timezone.utc)


def sync_of(model: IcebergModel) -> IcebergSync:
    return IcebergSync(model.pipeline, model.timeline, model.home)


def finding(model: IcebergModel, now: datetime = LATER) -> Any:
    state = read_state(model.storage, ICEBERG_STATE)
    return iceberg_up_to_date(model.pipeline, state, model.timeline.completed(), now)


def test_a_commit_is_published_once_and_known_without_the_catalog(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    sync = sync_of(model)
    assert sync.if_due(()) == ""
    assert finding(model).passed
    model.append()
    assert not finding(model).passed, "a day old"
    assert sync.if_due(model.timeline.completed()) == "1 commit to Iceberg"
    assert sync.if_due(model.timeline.completed()) == ""
    assert finding(model).passed
    assert model.found() == model.expected()
    model.append()
    found = finding(model)
    assert (found.figures["commits behind"], found.passed) == (1, False)
    assert "is 1 commit behind" in found.text


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A catalog that does not answer until the event is set."""
    answers, plain = threading.Event(), load_catalog

    def load(*arguments: Any, **settings: Any) -> Any:
        assert answers.wait(60)
        return plain(*arguments, **settings)

    monkeypatch.setattr(publisher, "load_catalog", load)
    yield answers
    answers.set()


def test_a_catalog_that_hangs_is_waited_for_no_longer_than_the_limit(tmp_path: Path, silence: threading.Event) -> None:
    model = IcebergModel(tmp_path, timeout_seconds=1)
    sync = sync_of(model)
    model.append()
    with pytest.raises(CatalogNotSynced, match=r"has not answered within 1 s \(table.iceberg.timeout_seconds\)"):
        sync.if_due(model.timeline.completed())
    assert sync.if_due(model.timeline.completed()) == "", "not that soon"
    late = datetime.now(timezone.utc) + timedelta(minutes=1)
    with pytest.raises(CatalogNotSynced, match="an earlier publication still waits"):
        sync.if_due(model.timeline.completed(), now=late)
    assert "failed: Iceberg table default.orders: an earlier" in finding(model).text
    silence.set()
    for thread in threading.enumerate():
        if thread.name.startswith("publish "):
            thread.join(60)
    # What was published late is found there.
    assert sync.publish() is not None
    assert model.found() == model.expected()
    assert finding(model).passed


def test_a_catalog_that_is_away_is_named_and_tried_once_more(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path, catalog={"uri": "http://127.0.0.1:9/api"})
    model.append()
    with pytest.raises(
        CatalogNotSynced, match=r"ConnectionError.*check that its catalog is up, and table.iceberg.catalog"
    ):
        sync_of(model).if_due(model.timeline.completed())
    state = read_state(model.storage, ICEBERG_STATE)
    assert state.failure is not None and state.failure.tries == 1
    assert not finding(model).passed


def test_snapshots_may_be_made_every_so_many_seconds(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path, every_seconds=60)
    sync = sync_of(model)
    model.append()
    first = model.timeline.completed()[0].completed_at
    assert sync.if_due(model.timeline.completed(), now=first)
    for _ in range(3):
        model.append()
    assert sync.if_due(model.timeline.completed(), now=first + timedelta(seconds=59)) == ""
    assert sync.if_due(model.timeline.completed(), now=first + timedelta(seconds=60)) == "3 commits to Iceberg"
    assert len(model.publisher.table().snapshots()) == 2
    assert model.found() == model.expected()


def test_by_hand_without_a_table_or_the_section_there_is_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingToDo, match=r"its file has no table\.iceberg"):
        publish_iceberg(pipeline_named("orders"))
    pipeline = pipeline_named("orders", table__base_path=str(tmp_path / "orders"), table__iceberg={})
    with pytest.raises(NothingToDo, match="has no commit yet"):
        publish_iceberg(pipeline)


def test_validate_asks_the_catalog_and_makes_nothing(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    sync = sync_of(model)
    assert sync.newest_text() == "its catalog answers; the next commit makes default.orders"
    commit = model.append()
    assert sync.newest_text() == "its catalog answers; the next commit makes default.orders"
    sync.publish()
    assert sync.newest_text() == f"default.orders has the commit {commit.instant}"
    away = IcebergModel(tmp_path, catalog={"uri": "http://127.0.0.1:9/api"})
    with pytest.raises(CatalogNotSynced, match="check that its catalog is up"):
        sync_of(away).newest_text()
