"""K7: what a sample says of records, to people and to machines."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, time, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.console import Console, RenderableType

from hudi_ingest.cli.sample_view import sample_view
from hudi_ingest.cli.views import columns_view, schema_text
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.sample import Outcome, Sample, SampledRecord, as_json, sampled
from hudi_ingest.records.changes import KeyedRows
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.row_maker import RowMaker, Tombstones
from hudi_ingest.records.schema.columns import ddl_type, spark_json, table_schema
from hudi_ingest.records.transform.chain import Chain, Step
from hudi_ingest.records.transform.columns import Filter, KeepLast, Mask
from hudi_ingest_tests.support.change_images import MOVABLE, US, Images, change
from hudi_ingest_tests.support.change_images import batch as keyed_batch

pytestmark = pytest.mark.fast

SOURCE = TopicPartition("orders", 0)
NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RECORD = pa.schema([("id", pa.string()), ("n", pa.int32()), ("card", pa.string())])
VALUES = [
    b'{"id": "a", "n": 1, "card": "4711-0815"}',
    b'{"id": "b", "n": 0, "card": "4711-0816"}',
    None,
    b'{"id": "c", "n": "x", "card": "4711-0817"}',
    b'{"id": "d", "n": 2, "card": 47110818}',
]


def take(on_tombstone: Tombstones = "skip") -> Sample:
    steps = [Step("transforms[0].filter", Filter("n", "!=", (0,))), Step("m", Mask(("card",), KeepLast(2)))]
    if on_tombstone == "row":
        del steps[0]
    chain = Chain.of(RECORD, steps)
    columns = table_schema(chain.output, ("topic", "timestamp")).columns
    maker = RowMaker(converter_for("json", RECORD), chain, columns, on_tombstone=on_tombstone)
    count = len(VALUES)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"] * count,
            "partition": [0] * count,
            "offset": [*range(5, 5 + count)],
            "timestamp": [NOW] * count,
            "value": VALUES,
            "key": [None] * count,
            "headers": [None] * count,
        },
        schema=RECORDS,
    )
    made = maker.make(SOURCE, batch, count)
    return Sample(
        "orders",
        chain.output,
        (Slice("orders", 0, 5, 20),),
        tuple(sampled(on_tombstone, SOURCE, batch, made)),
        made.fields,
    )


def shown(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_record_says_what_it_became() -> None:
    found = take()
    assert [(record.place, record.outcome.value) for record in found.records] == [
        ("orders:0:5", "row"),
        ("orders:0:6", "filtered"),
        ("orders:0:7", "skipped"),
        ("orders:0:8", "bad"),
        ("orders:0:9", "bad"),
    ]
    assert found.records[0].row == {"id": "a", "n": 1, "card": "****15"}
    assert [record.outcome for record in take("fail").records][2] is Outcome.BAD
    tombstone = take("row").records[2]
    assert (tombstone.outcome, tombstone.is_tombstone) == (Outcome.ROW, True)
    assert tombstone.row == {"id": None, "n": None, "card": None}


def test_people_see_rows_marks_and_reasons_and_nothing_that_is_masked() -> None:
    text = shown(sample_view(take()))
    assert "5 records: 1 row, 2 bad, 1 filtered, 1 skipped" in text
    for line in ("orders:0:5", "skipped, tombstone", '"x"', "****15"):
        assert line in text
    everything = text + json.dumps(take().to_dict())
    assert "4711" not in everything
    assert "a value that is not shown" in text
    empty = Sample("orders", RECORD, (Slice("orders", 0, 5, 5),), ())
    assert shown(sample_view(empty)).startswith("no records in orders:0[5,5); choose other offsets with --from")


def test_deletes_and_moves_of_a_keyed_table() -> None:
    chain = Chain.of(MOVABLE, ())
    maker = RowMaker(
        Images(), chain, table_schema(chain.output, ()).columns, partition_by=("country",), keyed=KeyedRows(("id",))
    )
    records = [change(US, {"id": 1, "country": "eu"}), change(US, deleted=True)]
    batch = keyed_batch(records)
    moved, deleted = sampled(maker.on_tombstone, SOURCE, batch, maker.make(SOURCE, batch))
    assert (moved.outcome, deleted.outcome) == (Outcome.ROW, Outcome.DELETE)
    assert (moved.row, deleted.row) == (US, US)
    assert moved.to_dict()["moved_from"] == {"id": 1, "country": "eu", "at": 6}
    text = shown(sample_view(Sample("customers", MOVABLE, (), (moved, deleted))))
    assert "2 records: 1 row, 1 delete" in text
    assert "row, moved from country eu" in text


def test_a_wide_row_is_one_cell() -> None:
    columns = pa.schema([(f"c{number}", pa.int32()) for number in range(9)])
    record = SampledRecord(SOURCE, 5, 0, False, Outcome.ROW, dict.fromkeys(columns.names, 1))
    text = shown(sample_view(Sample("orders", columns, (), (record,))))
    assert "c0: 1, c1: 1" in text


def test_long_texts_are_cut_for_people_and_structs_are_json() -> None:
    columns = pa.schema([("s", pa.struct([("at", pa.date32())])), ("t", pa.string())])
    row = {"s": {"at": date(2026, 1, 31)}, "t": "x" * 5000}
    record = SampledRecord(SOURCE, 5, 0, False, Outcome.ROW, row)
    sample = Sample("orders", columns, (), (record, record))
    text = shown(sample_view(sample))
    assert "2 records: 2 rows, 0 bad" in text
    assert '{"at": "2026-01-31"}' in text
    assert 2 * 190 < text.count("x") <= 2 * 200
    assert sample.to_dict()["records"][0]["row"]["t"] == row["t"]


def test_machines_get_plain_json() -> None:
    found = take().to_dict()
    assert found["counts"] == {"row": 1, "delete": 0, "bad": 2, "filtered": 1, "skipped": 1}
    assert found["partitions"] == [{"topic": "orders", "partition": 0, "start": 5, "end": 20}]
    assert found["columns"][1] == {"name": "n", "type": "int", "nullable": True}
    assert found["records"][0]["row"] == {"id": "a", "n": 1, "card": "****15"}
    assert (found["records"][2]["tombstone"], found["records"][2]["outcome"]) == (True, "skipped")
    assert {"field", "expected", "found"} <= found["records"][3].keys()
    row = {
        "time": NOW,
        "day": date(2026, 1, 1),
        "price": Decimal("1.10"),
        "raw": b"\x00",
        "nan": float("nan"),
        "inside": {"times": [NOW], "map": [("k", b"\x01")]},
    }
    record = SampledRecord(SOURCE, 5, 1_700_000_000_000_000_000, False, Outcome.ROW, row)
    assert (found["records"][0]["timestamp"], found["records"][0]["timestamp_ms"]) == (
        "2026-01-01T12:00:00+00:00",
        1767268800000,
    )
    assert (record.to_dict()["timestamp"], record.to_dict()["timestamp_ms"]) == (None, 1_700_000_000_000_000_000)
    assert json.loads(json.dumps(record.to_dict(), allow_nan=False))["row"] == {
        "time": "2026-01-01T12:00:00+00:00",
        "day": "2026-01-01",
        "price": "1.10",
        "raw": "AA==",
        "nan": "nan",
        "inside": {"times": ["2026-01-01T12:00:00+00:00"], "map": {"k": "AQ=="}},
    }


def test_numbers_that_readers_of_json_keep_are_numbers() -> None:
    values = [Decimal(2**64), Decimal("-12.50"), time(12, 30), {"sum": Decimal("7")}, [Decimal("-0")]]
    assert [json.dumps(as_json(value)) for value in values] == [
        str(2**64),
        '"-12.50"',
        '"12:30:00"',
        '{"sum": 7}',
        "[0]",
    ]


def test_columns_are_shown_as_the_file_writes_them() -> None:
    text = shown(columns_view(pa.schema([pa.field("tags", pa.list_(pa.string()), False), ("at", pa.int64())])))
    assert "array<string>" in text
    assert "never" in text
    long = pa.struct([(f"field{number}", pa.int64()) for number in range(500)])
    columns = spark_json(pa.schema([("s", long)]))
    changes = (f"column s {ddl_type(long)} is added",)
    text = schema_text(TransactionSchema("inferred", columns, columns, declared=False, changes=changes))
    assert 20 < text.count("field") < 200, "the plan names the type twice, and shows pages of neither"
    assert shown(columns_view(pa.schema([("s", long)]))).count("field") < 20, "a type of pages is for --json"
