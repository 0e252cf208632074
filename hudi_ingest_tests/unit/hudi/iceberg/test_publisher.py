"""Iceberg snapshots of a table whose timeline is a model: real files, a real catalog in SQLite, read by pyiceberg."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException

from hudi_ingest.exceptions import CatalogNotSynced
from hudi_ingest.faults import PUBLICATION_POINTS, VARIABLE
from hudi_ingest.hudi.iceberg.publisher import COMPLETED, INSTANT
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.iceberg_model import DDL, IcebergModel

pytestmark = pytest.mark.fast


def test_each_commit_is_a_snapshot_with_its_rows(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    assert model.publisher.publish({}) is None
    for count in (7, 3, 0):
        commit = model.append(count)
        done = model.publisher.publish(model.reported)
        assert done is not None and (done.made, done.newest.instant) == (1, commit.instant)
        assert model.found() == model.expected()
    again = model.publisher.publish(model.reported)
    assert again is not None and again.made == 0
    iceberg = model.publisher.table()
    assert [snapshot.summary["total-records"] for snapshot in iceberg.snapshots() if snapshot.summary] == [
        "7",
        "10",
        "10",
    ]
    assert iceberg.metadata.properties["gc.enabled"] == "false"


@pytest.mark.parametrize("point", PUBLICATION_POINTS)
def test_a_publication_that_ends_anywhere_is_made_up_for(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    monkeypatch.setenv(VARIABLE, str(faults))
    model = IcebergModel(tmp_path)
    (faults / f"{point}.armed").write_text("raise")
    for restored in (False, True, False):
        first = model.append()
        model.append()
        with suppress(CatalogNotSynced):
            model.publisher.publish(model.reported)
        if restored:
            model.restore(first.instant)
        for _ in range(2):
            with suppress(CatalogNotSynced):
                model.publisher.publish(model.reported)
        assert model.found() == model.expected()
    assert (faults / f"{point}.reached").exists()


def test_files_are_skipped_by_partition_and_by_bounds_and_none_too_many(tmp_path: Path) -> None:
    """Null and "" share a folder, and so a file, which is in no partition of Iceberg's."""
    model = IcebergModel(tmp_path)
    for _ in range(3):
        model.append(12)
        model.publisher.publish(model.reported)
    iceberg, expected = model.publisher.table(), model.expected()
    filters: dict[str, Callable[[dict[str, Any]], bool]] = {
        "dt == '2026-01-31'": lambda row: row["dt"] == "2026-01-31",
        "dt == 'a%b/c'": lambda row: row["dt"] == "a%b/c",
        "dt == ''": lambda row: row["dt"] == "",
        "dt is null": lambda row: row["dt"] is None,
        f"dt == '{'x' * 40}'": lambda row: row["dt"] == "x" * 40,
        "_kafka_offset > 30": lambda row: row["_kafka_offset"] > 30,
        "big < 0": lambda row: row["big"] < 0,
        "day == '2026-01-01'": lambda row: True,
        "customer.id == '7'": lambda row: (row["customer"] or {}).get("id") == "7",
        "id == 'o-19" + "ü" * 19 + "'": lambda row: row["_kafka_offset"] == 19,
        "price is null": lambda row: row["price"] is None,
    }
    for text, matches in filters.items():
        found = iceberg.scan(row_filter=text).to_arrow()["_kafka_offset"].to_pylist()
        assert sorted(found) == [row["_kafka_offset"] for row in expected if matches(row)], text
    assert len(list(iceberg.scan(row_filter="dt == '2026-01-31'").plan_files())) == 3
    assert len(list(iceberg.scan(row_filter="_kafka_offset > 30").plan_files())) < len(model.live) / 2


def test_footers_say_what_reports_would(tmp_path: Path) -> None:
    one, other = IcebergModel(tmp_path / "one"), IcebergModel(tmp_path / "other")
    for model, reports in ((one, True), (other, False)):
        model.append(9)
        model.publisher.publish(model.reported if reports else {})
    records = [
        sorted(
            (
                task.file.record_count,
                task.file.spec_id,
                str([dict(each) if isinstance(each, Mapping) else each for each in task.file._data[3:12]]),
            )
            for task in model.publisher.table().scan().plan_files()
        )
        for model in (one, other)
    ]
    assert records[0] == records[1]


def test_columns_are_added_and_widened_and_what_iceberg_lacks_is_refused(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    model.append()
    model.publisher.publish({})
    model.timeline.columns = pa.schema(
        [*parse_ddl(DDL.replace("n int, price", "n long, price") + ", note string"), *model.kafka]
    )
    first = model.new_rows(6)
    model.commit([{**row, "n": (row["n"] or 0) + 2**40, "note": "x"} for row in first])
    model.publisher.publish(model.reported)
    assert model.found() == model.expected()
    # Both statistics and rows of the file from before.
    assert model.publisher.table().scan(row_filter="n < 100").to_arrow().num_rows == 5
    model.timeline.columns = pa.schema([*parse_ddl(DDL.replace("n int, price", "n double, price")), *model.kafka])
    model.commit([])
    with pytest.raises(
        CatalogNotSynced, match="n was long and is double: Iceberg reads a column of older files only if"
    ):
        model.publisher.publish(model.reported)
    assert model.publisher.newest() is not None
    anew = IcebergModel(tmp_path, table="anew")
    anew.timeline = model.timeline
    with pytest.raises(CatalogNotSynced, match=r"\.parquet, n was (int|long) and is double"):
        anew.another_publisher().publish({})


def test_files_that_are_replaced_leave_and_rows_stay(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    for _ in range(3):
        model.append()
        model.publisher.publish(model.reported)
    before = model.expected()
    model.cluster(model.live[:7])
    model.publisher.publish({})
    assert model.found() == model.expected() == before
    model.commit(
        [], [path for path in model.live if path.startswith("dt=2026")], own=False, operation="DELETE_PARTITION"
    )
    model.publisher.publish({})
    assert model.found() == model.expected() != before


def test_a_restore_goes_back_and_on(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    commits = []
    for _ in range(4):
        commits.append(model.append())
        model.publisher.publish(model.reported)
    model.restore(commits[1].instant)
    done = model.publisher.publish({})
    assert done is not None and (done.made, done.newest.instant) == (0, commits[1].instant)
    assert model.found() == model.expected()
    model.append()
    model.publisher.publish({})
    assert model.found() == model.expected()
    model.restore("")
    model.append()
    model.publisher.publish({})
    assert model.found() == model.expected()
    model.append()
    done = model.publisher.publish({})
    assert done is not None and done.made == 1


def test_of_two_publishers_the_loser_makes_no_second_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IcebergModel(tmp_path)
    model.append()
    model.publisher.publish({})
    model.append()
    other, plain = model.another_publisher(), model.publisher._commit

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(model.publisher, "_commit", plain)
        assert other.publish({})
        plain(*arguments)

    monkeypatch.setattr(model.publisher, "_commit", late)
    done = model.publisher.publish({})
    assert done is not None and done.made == 0
    assert model.found() == model.expected()


def test_another_writer_s_snapshot_stops_it_and_the_remedy_works(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    model.append()
    model.publisher.publish({})
    iceberg = model.publisher.table()
    ours = iceberg.current_snapshot()
    assert ours is not None
    with iceberg.transaction() as changes, changes.update_snapshot().fast_append():
        pass
    model.append()
    with pytest.raises(CatalogNotSynced, match=r"is another writer's.*set the current snapshot back"):
        model.publisher.publish({})
    with model.publisher.table().manage_snapshots() as refs:
        refs.set_current_snapshot(snapshot_id=ours.snapshot_id)
    model.publisher.publish({})
    assert model.found() == model.expected()


def test_another_table_of_the_name_is_left_alone(tmp_path: Path) -> None:
    one, other = IcebergModel(tmp_path / "one"), IcebergModel(tmp_path / "other")
    other.home = one.home
    one.append()
    one.publisher.publish({})
    other.append()
    with pytest.raises(CatalogNotSynced, match=r"is another table, of file://.*one/orders. It is left alone"):
        other.another_publisher().publish({})


def test_snapshots_whose_files_cleaning_may_delete_are_gone(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    keep = model.pipeline.table.retain_commits
    for _ in range(keep + 5):
        model.append(1)
        model.publisher.publish(model.reported)
    assert len(model.publisher.table().snapshots()) <= keep + 1
    assert model.found() == model.expected()


def test_what_a_snapshot_says_of_its_commit(tmp_path: Path) -> None:
    model = IcebergModel(tmp_path)
    model.append()
    commit = model.append()
    model.publisher.publish({})
    snapshot = model.publisher.table().current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    said = snapshot.summary.additional_properties
    assert said[INSTANT] == commit.instant
    assert said[COMPLETED] == commit.completed_at.isoformat()
    assert said["hudi-ingest.offsets"] == '{"orders":{"0":12}}'
    assert said["hudi-ingest.sequence"] == "3"
    assert said["hudi-ingest.complete-through"] == "2026-01-01T00:00:00.000+00:00"


ACTIONS = ("append", "append", "cluster", "drop", "restore", "archive", "publish", "publish", "stale", "evolve")


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 10**9), actions=st.lists(st.sampled_from(ACTIONS), min_size=4, max_size=14))
def test_whatever_happens_iceberg_shows_what_the_table_has(
    tmp_path_factory: pytest.TempPathFactory, seed: int, actions: Sequence[str]
) -> None:
    drawn = random.Random(seed)
    model = IcebergModel(tmp_path_factory.mktemp("model"), ddl="dt string, n int")
    states: dict[str, list[dict[str, Any]]] = {}
    for action in (*actions, "append", "publish"):
        _act(model, action, drawn)
        states |= {commit.instant: model.expected() for commit in _newest(model)}
        if action in ("publish", "stale") and model.timeline.commits:
            assert model.found() == model.expected()
            for snapshot in model.publisher.table().snapshots():
                assert snapshot.summary is not None
                state = states[snapshot.summary.additional_properties[INSTANT]]
                assert _known(model.found(snapshot.snapshot_id)) == _known(state)


def _known(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the columns that came later."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _newest(model: IcebergModel) -> Sequence[CommittedInstant]:
    return model.timeline.completed()[:1]


def _act(model: IcebergModel, action: str, drawn: random.Random) -> None:
    live = model.live
    some = drawn.sample(live, drawn.randint(1, len(live))) if live else []
    if action == "append":
        model.append(drawn.randint(0, 4))
    elif action == "cluster" and some:
        model.cluster(some)
    elif action == "drop" and some:
        model.commit([], some, own=False, operation="DELETE_PARTITION")
    elif action == "restore" and len(model.timeline.commits) > 1:
        model.restore(drawn.choice(model.timeline.commits[:-1]).instant)
    elif action == "archive" and len(model.timeline.commits) > 3:
        model.archive(drawn.randint(1, len(model.timeline.commits) - 2))
    elif action == "publish":
        model.publisher.publish(model.reported if drawn.random() < 0.5 else {}, at_once=drawn.random() < 0.2)
    elif action == "stale":
        other, plain = model.another_publisher(), model.publisher._commit

        def late(*arguments: Any) -> None:
            model.publisher._commit = plain  # type: ignore[method-assign]
            if drawn.random() < 0.5:
                raise CommitFailedException("drawn")
            other.publish({})
            plain(*arguments)

        model.publisher._commit = late  # type: ignore[method-assign,assignment]
        model.publisher.publish({})
        model.publisher._commit = plain  # type: ignore[method-assign]
    elif action == "evolve":
        wide = parse_ddl("dt string, n long, note string")
        model.timeline.columns = pa.schema([*wide, *model.kafka])
        model.append(1)
