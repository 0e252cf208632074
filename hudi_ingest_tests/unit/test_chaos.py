"""The chaos run's own judgement: what the oracle calls an anomaly, which cases there are, and that an unreached one counts."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from hudi_ingest.faults import POINTS
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.__main__ import summary
from hudi_ingest_tests.chaos.cases import (
    AT_EVERY_POINT,
    BIG_FILES,
    CLUSTER,
    ENVIRONMENT,
    MERGING,
    NOT_IN_THE_SLICE,
    OF_THE_CLUSTER,
    STACKS,
    WORK,
    choose,
    choose_keyed,
    matrix,
    never_reached,
    slice_of_all,
    split,
    work_matrix,
)
from hudi_ingest_tests.chaos.fleet import FAULTS, TOPIC_CHANGES, choose_fleet
from hudi_ingest_tests.chaos.keyed import Deleted, KeyedRecords, MirrorRecords, Noted, Truncated, prefixes
from hudi_ingest_tests.chaos.oracle import Record, StoredTable, compare_rows
from hudi_ingest_tests.support.waiting import NotInTime

AT = 1_767_225_600_123
PRODUCED = {(0, 7): Record("r1", 1, "d1", AT), (1, 0): Record("r2", 2, "d0", AT)}


def row(partition: int, offset: int, **changes: Any) -> dict[str, Any]:
    record = PRODUCED.get((partition, offset), Record("r9", 9, "d1", AT))
    return {
        "_hoodie_record_key": f"t-{partition}-{offset}",
        "_hoodie_partition_path": f"dt={record.dt}",
        "_kafka_partition": partition,
        "_kafka_offset": offset,
        "id": record.id,
        "n": record.n,
        "dt": record.dt,
        "_kafka_topic": "t",
        "_kafka_timestamp": datetime.fromtimestamp(AT / 1000, timezone.utc),
    } | changes


@pytest.mark.parametrize(
    ("rows", "anomalies"),
    [
        ([row(0, 7), row(1, 0)], {}),
        ([row(0, 7)], {"lost": 1}),
        ([row(0, 7), row(1, 0), row(1, 0)], {"duplicate": 1}),
        ([row(0, 7), row(1, 0), row(1, 1)], {"foreign": 1}),
        *(
            ([row(0, 7, **{column: value}), row(1, 0)], {"changed": 1})
            for column, value in {
                "id": "r2",
                "n": 2,
                "dt": "d0",
                "_kafka_topic": "u",
                "_kafka_timestamp": datetime(2026, 1, 1, tzinfo=timezone.utc),
                "_hoodie_record_key": "t-0-8",
                "_hoodie_partition_path": "dt=d0",
            }.items()
        ),
    ],
)
def test_every_column_of_a_row_is_compared(rows: list[dict[str, Any]], anomalies: dict[str, int]) -> None:
    assert compare_rows(pa.Table.from_pylist(rows), "t", PRODUCED) == Counter(anomalies)


def test_a_letter_waits_for_each_bad_record_with_its_bytes_and_is_in_a_file(tmp_path: Path) -> None:
    folder = tmp_path / oracle.DEAD_LETTERS
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"partition": [0, 0], "offset": [1, 2], "value": [b"x", b"y"]}), folder / "a.parquet")
    first, second = (
        {"partition": 0, "offset": offset, "value_base64": base64.b64encode(value).decode()}
        for offset, value in ((1, b"x"), (2, b"y"))
    )

    def compared(waiting: list[dict[str, Any]], bad: dict[tuple[int, int], bytes]) -> int:
        return oracle.compare_letters(StoredTable.on_disk(tmp_path), waiting, bad)

    assert compared([first, second], {(0, 1): b"x", (0, 2): b"y"}) == 0
    assert compared([first], {(0, 1): b"x"}) == 0, "the other one may have become a row"
    assert compared([first], {(0, 1): b"x", (0, 2): b"y"}) == 1
    assert compared([first, second], {(0, 1): b"x"}) == 1
    assert compared([first, first], {(0, 1): b"x"}) == 1
    assert compared([first], {(0, 1): b"z"}) == 3, "one too many, one too few, and it is in no file"


def test_losses_and_the_order_of_commits_are_read_from_their_accounting(tmp_path: Path) -> None:
    timeline = tmp_path / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    loss = {"partition": 1, "committed": 5, "restart": 9}
    extra = {"type": "map", "values": "string"}
    schema = {"type": "record", "name": "commit", "fields": [{"name": "extraMetadata", "type": extra}]}
    for instant, sequence, resets in (
        ("20261122100000000", 2, [loss]),
        ("20261122090000000", 1, []),
        ("20261122110000000", 1, []),
    ):
        accounting = {"hudi_ingest.transaction.t": json.dumps({"sequence": sequence, "resets": resets})}
        with (timeline / f"{instant}_{instant}.commit").open("wb") as file:
            fastavro.writer(file, schema, [{"extraMetadata": accounting}])
    stored = StoredTable.on_disk(tmp_path)
    assert oracle.resets(stored, "t") == {(1, 5, 9)}
    assert oracle.order_of_commits(stored, "t") == [1, 2, 1]
    assert not oracle.order_of_commits(stored, "other")


def test_an_instant_that_is_archived_between_listing_and_reading_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = iter([["20261122100000000_20261122100000001.commit"], [], []])
    monkeypatch.setattr(StoredTable, "names", lambda stored, folder: next(listed))
    assert oracle.completed(StoredTable.on_disk(tmp_path)) == []


def faults_of(on: str) -> set[str]:
    return {*AT_EVERY_POINT, *ENVIRONMENT, *(OF_THE_CLUSTER if on == CLUSTER else ())}


def work_on(on: str) -> set[str]:
    return {*WORK, *((BIG_FILES,) if on == CLUSTER else ())}


@pytest.mark.parametrize("on", STACKS)
def test_the_slice_has_every_fault_that_no_other_test_has_and_every_kind_of_work(on: str) -> None:
    faults = faults_of(on) - {*NOT_IN_THE_SLICE}
    for seed in range(20):
        cases = slice_of_all(seed, on)
        assert cases == slice_of_all(seed, on)
        assert {blow.fault for case in cases for blow in case.blows} == faults
        assert {case.work for case in cases} == {"", *work_on(on)}
        assert len(cases) == len(faults)


def test_cases_of_a_fleet_take_turns_and_have_every_fault_at_every_point_beside_every_change() -> None:
    cases = choose_fleet(45, 7)
    assert cases == choose_fleet(45, 7)
    blows = {(case.blow.fault, case.blow.point) for case in cases}
    assert blows == {(fault, point) for fault, points in FAULTS.items() for point in points}
    assert len({(case.blow, case.change) for case in cases}) == len(blows) * len(TOPIC_CHANGES)
    assert {case.blow.fault for case in cases[: len(FAULTS)]} == set(FAULTS)
    assert {point for _, point in blows} <= POINTS.keys()


@pytest.mark.parametrize("on", STACKS)
def test_a_seed_gives_the_same_cases_and_the_matrices_come_first_taking_turns(on: str) -> None:
    size = len(matrix(on)) + len(work_matrix(on))
    assert choose(400, 7, on) == choose(400, 7, on)
    assert choose(400, 7, on) != choose(400, 8, on)
    first = choose(size, 7, on)
    assert {case.blows for case in first if not case.work} == set(matrix(on))
    assert {(case.work, case.blows[0]) for case in first if case.work} == set(work_matrix(on))
    few = choose(len(faults_of(on)) + len(work_on(on)), 7, on)
    assert {case.blows[-1].fault for case in few if not case.work} == faults_of(on)
    assert {case.work for case in few} == {"", *work_on(on)}


@pytest.mark.parametrize("on", STACKS)
def test_sixty_keyed_cases_have_every_fault_every_point_and_compaction(on: str) -> None:
    for seed in range(20):
        cases = choose_keyed(60, seed, 201, on)
        assert cases == choose_keyed(60, seed, 201, on)
        blows = {blow for case in cases for blow in case.blows}
        assert {blow.fault for blow in blows} >= faults_of(on)
        assert {blow.point for blow in blows} == {*POINTS, MERGING}
        assert all(case.keyed for case in cases)
        assert all({case.mirrors for case in lane} == {False, True} for lane in split(cases, 2))
        assert [case.number for case in cases] == [*range(201, 261)]


def test_the_slice_gives_each_of_two_lanes_one_kind_of_table() -> None:
    lanes = [*split(slice_of_all(1566), 2)]
    assert sorted({case.keyed for case in lane} == {True} for lane in lanes) == [False, True]
    assert sorted({case.keyed for case in lane} == {False} for lane in lanes) == [False, True]


CHANGES = {
    (0, 0): Record("k1", 1, "d1", AT),
    (0, 1): Record("k2", 2, "d0", AT),
    (0, 2): Record("k1", 3, "d1", AT),
    (0, 3): Deleted("k2", 4, "d0", AT),
}


def keyed_row(key: str, offset: int, **changes: Any) -> dict[str, Any]:
    record = CHANGES[0, offset]
    return {
        "_hoodie_record_key": key,
        "_hoodie_partition_path": f"dt={record.dt}",
        "_kafka_partition": 0,
        "_kafka_offset": offset,
        "id": key,
        "n": record.n,
        "dt": record.dt,
        "_kafka_topic": "t",
        "_kafka_timestamp": datetime.fromtimestamp(AT / 1000, timezone.utc),
    } | changes


@pytest.mark.parametrize(
    ("rows", "anomalies"),
    [
        ([keyed_row("k1", 2)], {}),
        ([keyed_row("k1", 0)], {"stale": 1}),
        ([keyed_row("k1", 2), keyed_row("k1", 2)], {"duplicate": 1}),
        ([keyed_row("k1", 2), keyed_row("k2", 1)], {"undeleted": 1}),
        ([keyed_row("k1", 2), keyed_row("k3", 1)], {"foreign": 1}),
        ([keyed_row("k1", 2, n=4)], {"changed": 1}),
        ([keyed_row("k1", 2, _hoodie_record_key="k2")], {"changed": 1}),
        ([keyed_row("k1", 2, _hoodie_partition_path="dt=d0")], {"changed": 1}),
        ([keyed_row("k2", 1)], {"undeleted": 1, "lost": 1}),
    ],
)
def test_a_keyed_table_holds_the_last_change_of_each_key(rows: list[dict[str, Any]], anomalies: dict[str, int]) -> None:
    records = KeyedRecords("t", Producer({}), random.Random(1))
    records.expected = dict(CHANGES)
    assert records.compare_rows(pa.Table.from_pylist(rows)) == Counter(anomalies)


@pytest.mark.parametrize(
    ("offsets", "ends"),
    [(set(), [0]), ({0}, [1]), ({0, 1}, [2]), ({1, 2}, [3]), ({2}, [4]), ({1}, []), ({0, 2}, []), ({2, 9}, [])],
)
def test_a_reader_of_a_keyed_table_must_see_what_its_first_changes_come_to(offsets: set[int], ends: list[int]) -> None:
    assert prefixes(offsets, [(at, change) for (_, at), change in CHANGES.items()]) == ends


EVENTS = {
    (0, 0): Noted("k1", 1, "d1", AT, "a"),
    (0, 1): Noted("k2", 2, "d0", AT, "b"),
    (0, 2): Truncated("", 3, "", AT),
    (0, 3): Noted("k1", 4, "d1", AT, "c"),
    (0, 4): Noted("k1", 5, "d1", AT),
}


@pytest.mark.parametrize(
    ("rows", "anomalies"),
    [
        ([("k1", 4, "c")], {}),
        ([("k1", 4, "a")], {"changed": 1}),
        ([("k1", 4, "__debezium_unavailable_value")], {"changed": 1}),
        ([("k1", 3, "c")], {"stale": 1}),
        ([("k1", 4, "c"), ("k2", 1, "b")], {"undeleted": 1}),
        ([], {"lost": 1}),
    ],
)
def test_a_mirror_holds_what_is_left_after_truncates_with_the_values_that_were_left_out(
    rows: list[tuple[str, int, str]], anomalies: dict[str, int]
) -> None:
    records = MirrorRecords("t", Producer({}), random.Random(1))
    records.expected = dict(EVENTS)
    found = [
        oracle.expected_row("t", (0, offset), EVENTS[0, offset], record_key=key) | {"note": note}
        for key, offset, note in rows
    ]
    schema = None if found else pa.schema([(name, pa.timestamp("us", "UTC")) for name in records.columns])
    assert records.compare_rows(pa.Table.from_pylist(found, schema)) == Counter(anomalies)


@pytest.mark.parametrize(("offsets", "ends"), [({0, 1}, [2]), (set(), [0, 3]), ({4}, [5]), ({1, 4}, []), ({0, 3}, [])])
def test_a_reader_of_a_mirror_sees_no_row_that_a_truncate_has_deleted(offsets: set[int], ends: list[int]) -> None:
    assert prefixes(offsets, [(at, change) for (_, at), change in EVENTS.items()]) == ends


def test_a_mirror_is_sent_changes_of_every_kind() -> None:
    """Its last one writes a row."""
    sent: list[bytes] = []

    class Sent(MirrorRecords):
        def _send(self, value: bytes, partition: int, acknowledged: Any, timestamp_ms: int | None = None) -> None:
            acknowledged((partition, len(sent)))
            sent.append(value)

    records = Sent("t", Producer({}), random.Random(1))
    for count in (1, 500, 120):
        records.produce(count)
        assert isinstance(records.expected[max(records.expected)], Noted)
    assert {json.loads(value)["op"] for value in sent if value != b"not JSON"} == {*"cudt"}
    assert b"__debezium_unavailable_value" in b"".join(sent)
    rows = records.last_changes().values()
    assert all(isinstance(change, Deleted) or "note" in change.note for _, change in rows if isinstance(change, Noted))
    assert records.ends() == {0: len(sent)}


def test_faults_of_the_cluster_come_only_to_it_and_at_points_that_there_are() -> None:
    struck = {blow for blows in matrix(CLUSTER) for blow in blows}
    assert {blow.fault for blow in struck - {blow for blows in matrix() for blow in blows}} == set(OF_THE_CLUSTER)
    assert {blow.point for blow in struck} == set(POINTS)


def test_what_an_instant_that_is_over_has_left_is_found(tmp_path: Path) -> None:
    stored = StoredTable.on_disk(tmp_path)
    over, open_, done = "20261122100000000", "20261122110000000", "20261122120000000"
    schema = {"type": "record", "name": "commit", "fields": [{"name": "operationType", "type": "string"}]}
    (tmp_path / oracle.TIMELINE).mkdir(parents=True)
    (tmp_path / oracle.TIMELINE / f"{open_}.commit.requested").touch()
    with (tmp_path / oracle.TIMELINE / f"{done}_{done}.commit").open("wb") as file:
        fastavro.writer(file, schema, [{"operationType": "INSERT"}])
    for folder in (oracle.MARKERS, oracle.DEAD_LETTERS):
        for instant in (over, open_, done):
            (tmp_path / folder / instant).mkdir(parents=True)
            (tmp_path / folder / instant / "file").touch()
    (tmp_path / oracle.DEAD_LETTERS / "copied").touch()
    assert set(oracle.left_overs(stored)) == {
        f"{oracle.MARKERS}/{over}/file",
        f"{oracle.MARKERS}/{done}/file",
        f"{oracle.DEAD_LETTERS}/{over}/file",
    }


def test_an_instant_is_stale_only_if_the_run_that_cleans_leaves_it(tmp_path: Path) -> None:
    timeline = tmp_path / oracle.TIMELINE
    timeline.mkdir(parents=True)
    left, cleaning = "20261122100000000", "20261122110000000"
    for instant in (left, cleaning):
        (timeline / f"{instant}.clean.requested").touch()
    looks = iter([True, True, False])

    def running() -> bool:
        still = next(looks)
        if not still:
            (timeline / f"{cleaning}_{cleaning}.clean").touch()
        return still

    assert oracle.left_pending(StoredTable.on_disk(tmp_path), running, 60) == {left}
    with pytest.raises(NotInTime):
        oracle.left_pending(StoredTable.on_disk(tmp_path), lambda: True, 0)


def test_a_case_that_only_its_second_try_reached_was_tried() -> None:
    assert never_reached([("a", False), ("b", True), ("a", True), ("c", False), ("c", False)]) == ["c"]


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "case": "case 1: kill at commit_landed",
        "faults": ["kill"],
        "points": ["commit_landed"],
        "work": "",
        "keyed": False,
        "anomalies": {},
        "not_reached": [],
        "recovery": 1.0,
    } | changes


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([facts()], 0),
        ([], 1),
        ([facts(anomalies={"lost": 1})], 1),
        ([facts(), {"anomalies": {"orphan": 1}}], 1),
        ([facts(), facts(case="case 2", not_reached=["x"])], 1),
        ([facts(not_reached=["x"]), facts()], 0),
        ([facts(), {"left_out": "case 3"}], 1),
    ],
)
def test_anomalies_and_cases_that_nobody_reached_or_began_make_the_run_fail(
    found: list[dict[str, Any]], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summary(found, [0], 60.0) == code
    assert ("not reached: case 2" in capsys.readouterr().out) == any(one.get("case") == "case 2" for one in found)


def test_a_lane_that_broke_off_makes_the_run_fail() -> None:
    assert summary([facts()], [0, 1], 60.0) == 1
