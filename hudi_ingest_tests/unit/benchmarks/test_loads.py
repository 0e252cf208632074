from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.loads import DEFAULT_LOADS, Load, orders_load, parse_load, parse_loads
from benchmarks.pipelines import made_pipeline
from benchmarks.results import CONTENDERS, STREAMING
from benchmarks.run import taking_part
from hudi_ingest.transaction.columns.decoding import converter_of

SOME = 400


@pytest.mark.parametrize(
    ("name", "records", "partitions"),
    [
        ("orders-10m", 10_000_000, 4),
        ("orders-200k", 200_000, 4),
        ("ORDERS-7", 7, 4),
        ("orders-avro-1m", 1_000_000, 4),
        ("orders-protobuf-300k", 300_000, 4),
        ("wide-1m", 1_000_000, 4),
        ("large-100k", 100_000, 4),
        ("skew-1m", 1_000_000, 4),
        ("partitions-200", 20_000, 200),
        ("tiny", 10, 4),
        ("tiny-3", 3, 4),
    ],
)
def test_a_name_says_how_many_records_and_partitions(name: str, records: int, partitions: int) -> None:
    load = parse_load(name)
    assert (load.records, len(load.counts)) == (records, partitions)


@pytest.mark.parametrize(
    "name", ["", "orders", "orders-0", "orders-1g", "orders-1.5m", "unknown-1m", "orders-1m-2", "orders-xml-1m"]
)
def test_another_name_is_refused_with_what_would_be_right(name: str) -> None:
    with pytest.raises(ValueError, match="orders-<n>"):
        parse_load(name)


def test_a_list_of_loads_has_each_once() -> None:
    assert [load.name for load in parse_loads("tiny, orders-1m,tiny,")] == ["tiny", "orders-1m"]
    with pytest.raises(ValueError, match="no load"):
        parse_loads(" ,")


def test_skew_is_nine_tenths_in_one_partition() -> None:
    assert parse_load("skew-1m").counts == (900_000, 33_334, 33_333, 33_333)


@pytest.mark.parametrize("name", [*DEFAULT_LOADS, "orders-avro-1m", "orders-protobuf-1m"])
def test_every_value_becomes_a_row_of_the_loads_schema(name: str, tmp_path: Path) -> None:
    load = parse_load(name)
    values = load.shape.values(5, SOME)
    decoded = converter_of(made_pipeline(tmp_path, "p", load, "broker:9092", tmp_path / "table")).decode(values)
    assert decoded.rejected == ()
    assert decoded.rows.num_rows == SOME
    assert not any(column.null_count for column in decoded.rows.columns)
    assert pc.count_distinct(decoded.rows["id"]).as_py() == SOME
    assert pc.count_distinct(decoded.rows["dt"]).as_py() == load.table_partitions
    assert abs(values.nbytes / SOME / load.record_bytes - 1) < 0.2


@pytest.mark.parametrize("name", ["orders-avro-1k", "orders-protobuf-1k"])
def test_orders_are_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    rows = []
    for load in (parse_load("orders-1k"), parse_load(name)):
        pipeline = made_pipeline(tmp_path, "p", load, "broker:9092", tmp_path / "table")
        rows.append(converter_of(pipeline).decode(load.shape.values(7, SOME)).rows)
    assert rows[0].equals(rows[1])


def test_who_cannot_read_a_load_takes_no_part_in_it() -> None:
    assert taking_part(CONTENDERS, parse_load("orders-1k")) == CONTENDERS
    assert set(CONTENDERS) - set(taking_part(CONTENDERS, parse_load("orders-protobuf-1k"))) == {STREAMING}


def test_wide_records_have_sixty_fields() -> None:
    assert len(json.loads(parse_load("wide-1m").shape.values(0, 1)[0].as_py())) == 60


def test_blocks_give_each_partition_its_records_once_and_the_same_ones_again() -> None:
    load = parse_load("skew-200k")
    ids = [
        (number, json.loads(value)["id"])
        for number, values in load.blocks()
        for value in (values[0].as_py(), values[-1].as_py())
    ]
    counts = pa.table({"partition": [n for n, _ in load.blocks()], "rows": [len(v) for _, v in load.blocks()]})
    summed = counts.group_by("partition").aggregate([("rows", "sum")]).sort_by("partition")
    assert tuple(summed["rows_sum"].to_pylist()) == load.counts
    assert len(set(ids)) == len(ids)
    assert [v.equals(w) for (_, v), (_, w) in zip(load.blocks(), load.blocks(), strict=True)] == [True] * len(ids[::2])


def test_orders_may_fall_into_any_number_of_table_partitions() -> None:
    load: Load = orders_load("days", (SOME,), days=100)
    days = {json.loads(each.as_py())["dt"] for each in load.shape.values(0, SOME)}
    assert len(days) == 100
