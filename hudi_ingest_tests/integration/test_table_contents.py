"""What comes out of the table is what went into the topic: types, partitions, Kafka columns, by hudi-rs and by Spark."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTable
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import BadRecord
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.hudi_keys import escape
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

UTC = datetime.timezone.utc
DDL = """
  id string not null, small int, big bigint, ratio float, exact double, ok boolean, price decimal(20,4), day date,
  at timestamp, raw binary, tags array<string>, counts map<string, bigint>,
  customer struct<name: string, addresses: array<struct<zip: string, since: date>>, extra: map<string, array<int>>>
"""
FULL: dict[str, Any] = {
    "id": "one",
    "small": -7,
    "big": 2**62,
    "ratio": 0.5,
    "exact": 0.1,
    "ok": True,
    "price": 1234567890123456.7891,
    "day": "2026-02-28",
    "at": "2026-02-28T23:59:59.123456+02:00",
    "raw": base64.b64encode(b"\x00\xff").decode(),
    "tags": ["a", None, "ü🙂"],
    "counts": {"x": 1, "y": None},
    "customer": {
        "name": "Ada",
        "addresses": [{"zip": "1", "since": "2020-01-01"}, {"zip": None, "since": None}],
        "extra": {"k": [1, 2]},
    },
}
EXPECTED: dict[str, Any] = {
    "id": "one",
    "small": -7,
    "big": 2**62,
    "ratio": 0.5,
    "exact": 0.1,
    "ok": True,
    "price": Decimal("1234567890123456.7891"),
    "day": datetime.date(2026, 2, 28),
    "at": datetime.datetime(2026, 2, 28, 21, 59, 59, 123456, tzinfo=UTC),
    "raw": b"\x00\xff",
    "tags": ["a", None, "ü🙂"],
    "counts": {"x": 1, "y": None},
    "customer": {
        "name": "Ada",
        "addresses": [{"zip": "1", "since": datetime.date(2020, 1, 1)}, {"zip": None, "since": None}],
        "extra": {"k": [1, 2]},
    },
}


def as_json(record: dict[str, Any]) -> bytes:
    # The decimal goes into the text with all its digits, which a float would not carry.
    return json.dumps(record).replace("1234567890123456.8", "1234567890123456.7891").encode()


OLD: dict[str, Any] = {
    "id": "old",
    "ok": True,
    "day": "1066-10-14",
    "at": "1582-10-04T23:59:59.999999Z",
    "customer": {"name": None, "addresses": [{"zip": None, "since": "0001-01-01"}], "extra": None},
}
"""Before the Gregorian calendar, and before Paris and Berlin had whole minutes."""
EXPECTED_OLD: dict[str, Any] = {
    **dict.fromkeys(EXPECTED),
    "id": "old",
    "ok": True,
    "day": datetime.date(1066, 10, 14),
    "at": datetime.datetime(1582, 10, 4, 23, 59, 59, 999999, tzinfo=UTC),
    "customer": {"name": None, "addresses": [{"zip": None, "since": datetime.date(1, 1, 1)}], "extra": None},
}


@pytest.mark.tier(1)
@pytest.mark.parametrize("partition_by", [[], ["ok", "day"]])
def test_s13_every_type_reads_back_equal(ground: Ground, topic: str, partition_by: list[str]) -> None:
    pipeline = make_pipeline(ground, table={"schema": DDL, "partition_by": partition_by})
    ground.send(0, [as_json(FULL), b'{"id": "two"}'])
    ground.run(pipeline)
    ground.send(0, [as_json(OLD)])
    ground.run(pipeline)
    spark = current_session(ground.home)
    wanted = {"one": EXPECTED, "two": {**dict.fromkeys(EXPECTED), "id": "two"}, "old": EXPECTED_OLD}
    assert by_hudi_rs(ground) == wanted
    assert by_spark(spark, ground) == wanted
    if not partition_by:
        # Clustering reads all columns by Spark and writes them anew.
        done = services_for(pipeline, ground.ledger, spark, ground.home).run(
            cluster=True, clean=False, report=lambda line: None
        )
        assert done.replaced == 2
        assert by_hudi_rs(ground) == wanted
        assert by_spark(spark, ground) == wanted


def by_hudi_rs(ground: Ground) -> dict[str, dict[str, Any]]:
    return {row["id"]: {name: plain(row[name]) for name in EXPECTED} for row in ground.rows().to_pylist()}


def by_spark(spark: SparkSession, ground: Ground) -> dict[str, dict[str, Any]]:
    theirs = spark.newSession()
    # Spark's default.
    theirs.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION")
    rows = theirs.read.format("hudi").load(ground.base_path).select(*EXPECTED).collect()
    found = {row["id"]: {name: plain(row[name]) for name in EXPECTED} for row in rows}
    for row in found.values():
        if row["at"] is not None:
            # pyspark hands out zoned timestamps in the process's local zone, without one.
            row["at"] = row["at"].astimezone(UTC)
    return found


def plain(value: Any) -> Any:
    """Rows, maps and buffers of either reader as Python values."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and not hasattr(each, "asDict") for each in value):
            return {key: plain(each) for key, each in value}
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def test_each_row_carries_its_kafka_coordinates(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 3)
    ground.send_rows(1, 2)
    ground.run(pipeline)
    rows = ground.rows().to_pylist()
    assert {(row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in rows} == {
        (topic, 0, 0),
        (topic, 0, 1),
        (topic, 0, 2),
        (topic, 1, 0),
        (topic, 1, 1),
    }
    now = datetime.datetime.now(UTC)
    assert all(now - datetime.timedelta(minutes=5) < row["_kafka_timestamp"] <= now for row in rows)


def test_topic_and_timestamp_columns_can_be_switched_off(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, table={"kafka_columns": []})
    ground.send_rows(0, 3)
    ground.run(pipeline)
    names = [name for name in ground.rows().schema.names if name.startswith("_kafka")]
    assert names == ["_kafka_partition", "_kafka_offset"]


AWKWARD = [
    "a/b",
    "x=1",
    "50%",
    "line\nbreak",
    "",
    None,
    "🙂 ü",
    "../up",
    "a:b",
    "__HIVE_DEFAULT_PARTITION__",
    "z" * 200,
    ".",
    "..",
    ".hoodie",
    "".join(map(chr, range(32))) + "\x7f",
    "'; drop table x; --",
    "$HOME `id` {a,b}*?[c]",
    "%2F%41",
]


@pytest.mark.tier(1)
def test_h4_awkward_partition_values_stay_in_their_folders_and_read_back(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    ground.send(0, [json.dumps({"id": str(n), "n": n, "dt": value}).encode() for n, value in enumerate(AWKWARD)])
    ground.run(pipeline)
    expected = dict(enumerate(AWKWARD))
    assert {row["n"]: row["dt"] for row in ground.rows().to_pylist()} == expected
    spark = current_session(ground.home)
    found = {row.n: row.dt for row in spark.read.format("hudi").load(ground.base_path).select("n", "dt").collect()}
    # Spark takes a partition column's value from the folder, where null and "" are one.
    assert {n: value or None for n, value in found.items()} == {
        n: None if value in (None, "", "__HIVE_DEFAULT_PARTITION__") else value for n, value in expected.items()
    }
    assert all(Path(ground.base_path) in file.parents for file in ground.data_files())


def test_h4_a_value_too_long_for_a_folder_refuses_the_transaction_and_names_the_record(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 3)
    ground.send(0, [json.dumps({"id": "x", "n": 1, "dt": "ü" * 300}).encode()])
    with pytest.raises(BadRecord) as raised:
        ground.run(pipeline)
    assert f"{ground.name}:0:3 field dt: expected a value that makes a folder name of at most 255 bytes" in str(
        raised.value
    )
    assert "found one of 603 bytes" in str(raised.value)
    assert "table.partition_by" in str(raised.value)
    assert ground.data_files() == []


def test_h4_every_sign_is_escaped_as_hudi_does(spark_home: Home) -> None:
    """Hudi's own Spark writer must find our folders, and must not make others beside them."""
    hudi = current_session(spark_home).sparkContext._jvm.org.apache.hudi.common.util.PartitionPathEncodeUtils
    signs = [chr(code) for code in [*range(0x180), 0x2028, 0xFF0F, 0x1F642]]
    assert [escape(f"a{each}") for each in signs] == [hudi.escapePathName(f"a{each}") for each in signs]


def test_a_table_path_with_signs_of_sql_and_of_shells_is_only_a_path(ground: Ground, topic: str) -> None:
    base_path = f"{ground.home.root}/o'r\"d; drop table transactions;-- $(id) ü"
    pipeline = make_pipeline(ground, table={"base_path": base_path})
    for start in (0, 5):
        ground.send_rows(0, 5, start)
        ground.run(pipeline)
    rows = pa.Table.from_batches(HudiTable(base_path).read())
    assert sorted(rows["n"].to_pylist()) == list(range(10))
    assert [each.state.value for each in ground.ledger.transactions.history(pipeline.name)] == [
        "committed",
        "committed",
    ]


@pytest.mark.tier(1)
def test_h1_r4_every_file_says_where_its_rows_came_from(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground)
    ground.send_rows(1, 30)
    receipt = ground.run(pipeline)
    written = {file.path: file for file in receipt.written}
    for path, file in written.items():
        assert file_groups.decode(Path(path).name) == file_groups.FileOrigin(1, file.first_offset)
    listed = answer(ground.home, "files", pipeline.name, "--json")
    assert listed.returncode == 0, listed.stderr
    found = {each["path"]: each for each in json.loads(listed.stdout)}
    assert found.keys() == written.keys()
    for path, each in found.items():
        assert each["origin"] == {"partition": 1, "first_offset": written[path].first_offset}
        assert each["offsets"] == [written[path].first_offset, written[path].last_offset]
        assert each["topics"] == [topic, topic]
        assert (each["rows"], each["instant"]) == (written[path].rows, receipt.instant)
    shown = answer(ground.home, "files", pipeline.name).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["KAFKA", *[f"{topic}:1"] * 3]
