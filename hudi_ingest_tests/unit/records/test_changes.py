"""Rows of keyed tables: what a record writes, what it deletes, and which changes name no row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.records.changes import BEFORE, DELETED, LEFT_OUT, KeyedRows, apply_chain, changes_of
from hudi_ingest.records.convert.connect.debezium import DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.kafka_keys import KeyGuard
from hudi_ingest.records.row_maker import DECODING, PARTITIONING, TRANSFORMING, BatchOutcome, RowMaker
from hudi_ingest.records.schema.columns import table_schema
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.casts import Cast
from hudi_ingest.records.transform.chain import Chain, Step
from hudi_ingest.records.transform.columns import Constant, Filter, KeepLast, Mask, Rename
from hudi_ingest.records.transform.sql import Expect
from hudi_ingest_tests.support.change_images import EU, MOVABLE, SOURCE, US, Images, Record, batch, change

pytestmark = pytest.mark.fast

VALUE = pa.schema(
    [pa.field("name", pa.string(), False), ("country", pa.string()), ("gone", pa.bool_()), ("at", pa.int64())]
)
KEY = pa.schema([("id", pa.int64())])


def maker(*steps: Transform, keyed: KeyedRows | None = None, **changes: Any) -> RowMaker:
    record = pa.schema([*VALUE, *KEY])
    chain = Chain.of(record, [Step(f"transforms[{number}]", step) for number, step in enumerate(steps)])
    keyed = keyed or KeyedRows(("id",))
    output = pa.schema([field for field in chain.output if field.name != keyed.delete_field])
    settings: dict[str, Any] = {
        "converter": converter_for("json", VALUE),
        "on_tombstone": "delete",
        "key_converter": converter_for("json", KEY),
        "key_columns": KEY,
        "keyed": keyed,
        **changes,
    }
    return RowMaker(chain=chain, columns=table_schema(output, ("topic",)).columns, **settings)


def rows_of(outcome: BatchOutcome, *names: str) -> list[tuple[Any, ...]]:
    columns = outcome.rows.select([*names, DELETED]).to_pydict()
    return list(zip(*columns.values(), strict=True))


def refusals(outcome: BatchOutcome) -> list[tuple[int, str, str, str]]:
    return [(bad.index, bad.stage, bad.field, bad.found) for bad in outcome.bad]


def test_a_tombstone_deletes_its_key_although_other_columns_are_not_null() -> None:
    outcome = maker().make(SOURCE, batch([({"id": 1}, {"name": "ann"}), ({"id": 1}, None), ({"id": 2}, None)]))
    assert outcome.rows.schema.field(len(outcome.rows.schema) - 1) == pa.field(DELETED, pa.bool_(), False)
    assert rows_of(outcome, "id", "name", "_kafka_offset") == [
        (1, "ann", 10, False),
        (1, None, 11, True),
        (2, None, 12, True),
    ]
    assert (outcome.bad, outcome.skipped, outcome.filtered, outcome.moves) == ((), 0, 0, 0)


def test_nothing_but_tombstones() -> None:
    assert rows_of(maker().make(SOURCE, batch([({"id": 2}, None)])), "id") == [(2, True)]
    skipping = maker(on_tombstone="skip").make(SOURCE, batch([({"id": 2}, None)]))
    assert (skipping.rows.num_rows, skipping.skipped, DELETED in skipping.rows.schema.names) == (0, 1, True)


def test_a_tombstone_without_source_key_is_bad() -> None:
    chain = Chain.of(pa.schema([*VALUE, *KEY]), ())
    without = RowMaker(
        converter_for("json", chain.record),
        chain,
        table_schema(chain.output, ()).columns,
        on_tombstone="delete",
        keyed=KeyedRows(("id",)),
    )
    outcome = without.make(SOURCE, batch([({"id": 2}, None), (None, {"id": 3, "name": "bob"})]))
    assert refusals(outcome) == [(0, DECODING, "", "a tombstone, which has none")]
    assert "source.key" in outcome.bad[0].expected
    assert rows_of(outcome, "id") == [(3, False)]


def test_the_delete_field_deletes_and_is_no_column() -> None:
    by_field = maker(keyed=KeyedRows(("id",), delete_field="gone"))
    records: list[Record] = [
        ({"id": 1}, {"name": "ann", "gone": True}),
        ({"id": 2}, {"name": "bob", "gone": False}),
        ({"id": 3}, {"name": "cy"}),
    ]
    outcome = by_field.make(SOURCE, batch(records))
    assert "gone" not in outcome.rows.schema.names
    assert rows_of(outcome, "id", "name") == [(1, "ann", True), (2, "bob", False), (3, "cy", False)]


def test_deletes_are_not_filtered_since_their_rows_would_stay() -> None:
    steps = (Filter("country", "==", ("eu",)), Constant.of("region", "x", pa.string()), Cast({"at": pa.string()}))
    records: list[Record] = [
        ({"id": 1}, {"name": "a", "country": "us"}),
        ({"id": 1}, None),
        ({"id": 2}, {"name": "b", "country": "eu"}),
    ]
    outcome = maker(*steps).make(SOURCE, batch(records))
    assert rows_of(outcome, "id", "region") == [(1, "x", True), (2, "x", False)]
    assert outcome.filtered == 1


def test_a_change_without_a_key_or_its_ordering_is_bad() -> None:
    keyed = KeyedRows(("id", "country"), ordering="at")
    records: list[Record] = [
        (None, {"name": "a", "country": "eu", "at": 1}),
        ({"id": 1}, {"name": "a", "at": 1}),
        ({"id": 1}, {"name": "a", "country": "eu"}),
        ({"id": 1}, {"name": "a", "country": "eu", "at": 5}),
        ({"id": 1}, {"name": "a", "country": "", "at": 6}),
    ]
    outcome = maker(keyed=keyed).make(SOURCE, batch(records))
    assert refusals(outcome) == [
        (0, PARTITIONING, "id", "null"),
        (1, PARTITIONING, "country", "null"),
        (2, PARTITIONING, "at", "null"),
    ]
    assert rows_of(outcome, "id", "country", "at") == [(1, "eu", 5, False), (1, "", 6, False)]
    hidden = maker(Mask(("country",), KeepLast(2)), keyed=KeyedRows(("country",))).make(SOURCE, batch([records[1]]))
    assert hidden.bad[0].found.startswith("a value that is not shown")


def test_a_delete_without_the_value_of_its_table_partition_is_bad() -> None:
    outcome = maker(partition_by=("country",)).make(
        SOURCE, batch([({"id": 1}, {"name": "a"}), ({"id": 1}, None), ({"id": 2}, {"name": "b", "country": "eu"})])
    )
    assert refusals(outcome) == [(1, PARTITIONING, "country", "null")]
    assert rows_of(outcome, "id") == [(1, False), (2, False)]


# ---- Changes with the row as it was


def mover(*steps: Transform, **changes: Any) -> RowMaker:
    chain = Chain.of(MOVABLE, [Step(f"transforms[{number}]", step) for number, step in enumerate(steps)])
    settings = {"keyed": KeyedRows(("id",)), "partition_by": ("country",), **changes}
    return RowMaker(Images(), chain, table_schema(chain.output, ()).columns, **settings)


def test_a_row_that_moves_to_another_table_partition_is_deleted_in_the_old_one_first() -> None:
    records = [
        change(EU),
        change(US, {"id": 1, "country": "eu"}),
        change({**US, "at": 7}, {"id": 1, "country": "us"}),
        change({"id": 1, "country": "us"}, deleted=True),
    ]
    outcome = mover().make(SOURCE, batch(records))
    assert rows_of(outcome, "id", "country", "at", "_kafka_offset") == [
        (1, "eu", 5, 10, False),
        (1, "eu", 6, 11, True),
        (1, "us", 6, 11, False),
        (1, "us", 7, 12, False),
        (1, "us", None, 13, True),
    ]
    assert outcome.moves == 1
    assert outcome.kept is not None and outcome.kept.to_pylist() == [0, 1, 1, 2, 3]


def test_a_key_that_changes_leaves_no_second_row() -> None:
    outcome = mover().make(SOURCE, batch([change({**EU, "id": 2}, {"id": 1, "country": "eu"})]))
    assert rows_of(outcome, "id", "country") == [(1, "eu", True), (2, "eu", False)]


def test_a_difference_that_the_transforms_remove_moves_nothing() -> None:
    outcome = mover(Mask(("country",), KeepLast(1))).make(
        SOURCE, batch([change({**EU, "country": "au"}, {"id": 1, "country": "eu"})])
    )
    assert rows_of(outcome, "country") == [("****u", False)]
    assert outcome.moves == 0


def test_a_move_is_bad_as_a_whole_and_a_filtered_one_still_deletes() -> None:
    wide = change({**US, "at": 2**40}, {"id": 1, "country": "eu"})
    unplaced = change({"id": None, "country": "us", "at": 1}, {"id": 1, "country": "eu"})
    homeless = change(US, {"id": 1, "country": None})
    outcome = mover(Cast({"at": pa.int32()})).make(SOURCE, batch([wide, unplaced, homeless, change(EU)]))
    assert [(bad.index, bad.stage, bad.field) for bad in outcome.bad] == [
        (0, TRANSFORMING, "at"),
        (1, PARTITIONING, "id"),
        (2, PARTITIONING, "country"),
    ]
    assert rows_of(outcome, "country") == [("eu", False)]

    left_out = mover(Filter("country", "==", ("eu",))).make(SOURCE, batch([change(US, {"id": 1, "country": "eu"})]))
    assert rows_of(left_out, "country") == [("eu", True)]
    assert (left_out.filtered, left_out.moves) == (0, 0)


images = st.none() | st.fixed_dictionaries(
    {"id": st.sampled_from([None, 1, 2]), "country": st.sampled_from([None, "eu", "us"]), "at": st.integers(0, 9)}
)


@given(
    st.lists(st.tuples(images, images, st.booleans(), st.booleans()), max_size=8),
    st.booleans(),
)
def test_each_record_is_rows_bad_or_filtered_and_no_outcome_depends_on_neighbours(
    drawn: list[tuple[Any, Any, bool, bool]], filtering: bool
) -> None:
    records = [
        change(after, None if before is None else {name: before[name] for name in ("id", "country")}, deleted=deleted)
        for after, before, deleted, _ in drawn
    ]
    for (_, value), (*_, broken) in zip(records, drawn, strict=True):
        if broken:
            value["broken"] = True
    made_by = mover(*([Filter("at", "!=", (3,))] if filtering else []))
    together = made_by.make(SOURCE, batch(records))
    alone = [made_by.make(SOURCE, batch([record], 10 + place)) for place, record in enumerate(records)]
    assert together.rows.to_pylist() == [row for outcome in alone for row in outcome.rows.to_pylist()]
    assert together.moves == sum(outcome.moves for outcome in alone)
    assert together.filtered == sum(outcome.filtered for outcome in alone)
    assert [bad.index for bad in together.bad] == [place for place, outcome in enumerate(alone) if outcome.bad]


def test_a_table_partition_may_come_from_a_struct() -> None:
    place = pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])
    places = [
        {"city": "x", "tags": ["a"]},
        {"city": "x", "tags": ["a"]},
        {"city": None, "tags": None},
        None,
        {"city": "x", "tags": []},
    ]
    before = [
        {"city": "x", "tags": ["a"]},
        {"city": "y", "tags": ["a"]},
        {"city": None, "tags": None},
        {"city": None, "tags": None},
        {"city": "x", "tags": None},
    ]
    decoded = pa.RecordBatch.from_arrays(
        [pa.array(places, place), pa.array([{"place": value} for value in before], pa.struct([("place", place)]))],
        ["place", BEFORE],
    )
    changes = changes_of(decoded, np.zeros(5, np.bool_), ["place"])
    assert changes.records.tolist() == [0, 1, 1, 2, 3, 3, 4, 4]
    assert changes.deleted.tolist() == [False, True, False, False, True, False, True, False]
    assert changes.rows["place"].to_pylist()[1:3] == [before[1], places[1]]


def test_control_records_are_skipped_by_kind_and_need_no_key_of_the_table() -> None:
    row = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())])
    chain, naming = Chain.of(row, ()), NamingFields(("id",))
    events = DebeziumConverter(ConnectJsonConverter(event_schema(row, naming), framed=False), row, naming)
    mirror = RowMaker(
        converter=events,
        chain=chain,
        columns=table_schema(chain.output, ()).columns,
        keyed=KeyedRows(("id",)),
        key_guard=KeyGuard("shop", "/lake/shop", ("id",)),
    )
    key, ann = {"id": 1}, {"id": 1, "name": "ann"}
    records: list[Record] = [
        ({"serverName": "shop"}, {"ts_ms": 5}),
        (key, {"op": "c", "before": None, "after": ann}),
        ({"id": "9:7"}, {"status": "BEGIN", "id": "9:7", "event_count": None, "data_collections": None}),
        (key, {"op": "u", "before": None, "after": None}),
        (key, {"op": "d", "before": ann, "after": None}),
        (key, None),
        ({"x": 1}, {"op": "m", "message": {}}),
    ]
    outcome = mirror.make(SOURCE, batch(records))
    assert rows_of(outcome, "id", "name") == [(1, "ann", False), (1, None, True)]
    assert outcome.kept is not None and outcome.kept.to_pylist() == [1, 4]
    assert outcome.control == {0: "heartbeats", 2: "boundaries", 6: "messages"}
    assert (outcome.skipped, [bad.index for bad in outcome.bad]) == (4, [3])
    with pytest.raises(SchemaRefused, match=r"the record at customers:1:11 has the key \(id, at\)"):
        mirror.make(SOURCE, batch([*records[:1], ({"id": 1, "at": 2}, {"op": "c", "after": ann})]))


def test_a_rule_judges_no_change_without_a_value_that_it_reads() -> None:
    record = pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
    steps: list[Transform] = [
        Rename({"text": "title"}),
        Expect("short", "length(title) < 5", rejects=True),
        Expect("few", "n < 5", rejects=False),
    ]
    chain = Chain.of(record, [Step(str(at), each) for at, each in enumerate(steps)])
    rows = [(1, "placeholder", 9), (2, "too long", 1), (3, None, 1), (4, "abc", 9), (5, "placeholder", 1), (6, "a", 1)]
    decoded = pa.RecordBatch.from_pylist(
        [{"id": id_, "text": text, "n": n} for id_, text, n in rows],
        schema=pa.schema([*record, *KAFKA_FIELDS.values()]),
    ).append_column(LEFT_OUT, pa.array([["text"], None, None, None, ["text"], None], pa.list_(pa.string())))
    deleted = np.array([False, False, True, False, False, False])
    applied = apply_chain(chain, changes_of(decoded, deleted, ()))
    assert applied.changes.rows["id"].to_pylist() == [1, 3, 4, 5, 6]
    assert applied.changes.left_out is not None
    assert applied.changes.left_out.to_pylist() == [["text"], None, None, ["text"], None]
    assert applied.changes.deleted.tolist() == [False, True, False, False, False]
    assert [*applied.rejected] == [1]
    assert applied.violations == {"short": 1, "few": 2}
