"""One file mirrors a schema: Debezium's topics of tables with different keys, on a real broker, Spark and Hudi."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.serialization import MessageField
from hudi import HudiTable

from hudi_ingest.exceptions import BadRecord, SchemaRefused
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest.pipeline.folder import find_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.convert.connect.debezium import UNAVAILABLE
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.run import run_transaction
from hudi_ingest_tests.lab.row_comparison import compare_rows, read_with_hudi_rs, read_with_spark
from hudi_ingest_tests.support.ground import Ground, fresh_ground, write_pipeline
from hudi_ingest_tests.support.registry import Registry
from hudi_ingest_tests.support.serializers import avro_bytes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LONG, TEXT = {"type": "int64"}, {"type": "string", "optional": True}
Row = Mapping[str, Any]
Columns = Mapping[str, Mapping[str, Any]]


def struct(columns: Columns) -> dict[str, Any]:
    fields = [{**kind, "field": name} for name, kind in columns.items()]
    return {"type": "struct", "optional": True, "fields": fields}


class Mirror:
    """A database whose changes Debezium writes as JSON with schemas, and the file that mirrors it."""

    def __init__(self, ground: Ground, tables: Mapping[str, Columns], /, **changes: Any) -> None:
        self.ground = ground
        self.columns = dict(tables)
        for table in tables:
            create_topic(ground.bootstrap_servers, self.topic(table), 1)
        self.write(**changes)

    def write(
        self, table: Mapping[str, Any] | None = None, source: Mapping[str, Any] | None = None, **changes: Any
    ) -> None:
        own = {"base_path": str(self.ground.home.root / "{topic}"), "schema": "infer", "mode": "upsert"}
        write_pipeline(
            self.ground,
            "m_{topic}",
            "mirror.yaml",
            source={"topics": [self.topic(name) for name in self.columns], "envelope": "debezium", **(source or {})},
            table={**own, "key": "kafka_key", "buckets": 1, "partition_by": [], **(table or {})},
            **changes,
        )

    def topic(self, table: str) -> str:
        return f"{self.ground.name}.{table}"

    def send(
        self,
        table: str,
        key: list[str] | None,
        op: str,
        before: Row | None,
        after: Row | None,
        name: str = "",
        lsn: int = 0,
    ) -> None:
        """An event as Debezium writes it, and the tombstone after a delete. `key`: the columns of the primary key; `name`: the table's in
        the source, if that is another one; `lsn`: where it is in the source's log."""
        columns, row = self.columns[table], after or before or {}
        source = struct({**dict.fromkeys(("db", "schema", "table"), TEXT), "lsn": LONG})
        parts = {"before": struct(columns), "after": struct(columns), "source": source, "op": {"type": "string"}}
        event = struct(parts)
        of_table = {"db": "shop", "schema": "public", "table": name or table, "lsn": lsn}
        payload = {"before": before, "after": after, "source": of_table, "op": op}
        own = None
        if key is not None:
            of_key = struct({name: columns[name] for name in key})
            own = json.dumps({"schema": of_key, "payload": {name: row[name] for name in key}}).encode()
        self.produce(table, own, {"schema": event, "payload": payload}, *([None] if op == "d" else []))

    def produce(self, table: str, key: bytes | None, *values: object) -> None:
        for value in values:
            text = None if value is None else json.dumps(value).encode()
            self.ground.producer.produce(self.topic(table), text, key, partition=0)
        assert self.ground.producer.flush(120) == 0

    def pipeline(self, table: str) -> Pipeline:
        return find_pipeline(self.ground.home.pipelines, f"m_{self.topic(table)}".replace(".", "_"))

    def run(self, table: str) -> CommitReceipt:
        return run_transaction(self.pipeline(table), home=self.ground.home)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows as hudi-rs reads them, which must be as Spark does. `columns`: those of the source if none are named."""
        path = self.pipeline(table).table.base_path
        names = [*(columns or self.columns[table])]
        by_rust = pa.Table.from_batches(HudiTable(path).read()).select(names).to_pylist()
        by_spark = current_session(self.ground.home).newSession().read.format("hudi").load(path).select(names).collect()
        found = sorted(tuple(row.values()) for row in by_rust)
        assert found == sorted(tuple(row) for row in by_spark)
        return found


@pytest.fixture
def ground(bootstrap_servers: str, tmp_path: Path) -> Iterator[Ground]:
    with fresh_ground(bootstrap_servers, tmp_path) as made:
        yield made


@pytest.mark.tier(1)
def test_p1_s16_each_table_has_the_key_of_its_records_and_a_changed_key_stops_only_its_table(ground: Ground) -> None:
    orders: Columns = {"id": LONG, "note": TEXT}
    lines: Columns = {"line": LONG, "note": TEXT, "order": TEXT}
    mirror = Mirror(ground, {"orders": orders, "lines": lines})
    for number in (1, 2, 3):
        mirror.send("orders", ["id"], "c", None, {"id": number, "note": f"o{number}"})
        row = {"line": number % 2, "note": f"l{number}", "order": f"a{number // 2}"}
        mirror.send("lines", ["order", "line"], "c", None, row)
    assert (mirror.run("orders").rows, mirror.run("lines").rows) == (3, 3)
    mirror.send("orders", ["id"], "d", {"id": 2, "note": None}, None)
    mirror.send("orders", ["id"], "u", None, {"id": 3, "note": "newer"})
    mirror.send("lines", ["order", "line"], "u", None, {"line": 1, "note": "newer", "order": "a1"})
    mirror.run("orders")
    mirror.run("lines")
    assert mirror.rows("orders") == [(1, "o1"), (3, "newer")]
    kept = [(0, "l2", "a1"), (1, "l1", "a0"), (1, "newer", "a1")]
    assert mirror.rows("lines") == kept
    # Its primary key is changed to a wider one, and then the other table goes on.
    mirror.send("lines", ["order", "line"], "u", None, {"line": 1, "note": "last", "order": "a0"})
    mirror.send("lines", ["order", "line", "note"], "c", None, {"line": 1, "note": "two", "order": "a0"})
    with pytest.raises(SchemaRefused) as told:
        mirror.run("lines")
    assert f"{mirror.topic('lines')}:0:5 has the key (order, line, note)" in str(told.value)
    mirror.send("orders", ["id"], "c", None, {"id": 9, "note": "o9"})
    assert mirror.run("orders").rows == 1
    assert mirror.rows("lines") == kept
    assert mirror.rows("orders") == [(1, "o1"), (3, "newer"), (9, "o9")]


def test_p1_a_table_without_a_key_is_named_and_only_appended_to_where_the_file_says_so(ground: Ground) -> None:
    logins: Columns = {"who": TEXT, "note": TEXT}
    mirror = Mirror(ground, {"logins": logins, "orders": {"id": LONG, "note": TEXT}})
    for who in ("ann", "bob", "ann"):
        mirror.send("logins", None, "c", None, {"who": who, "note": "in"})
    mirror.send("orders", ["id"], "c", None, {"id": 1, "note": "o1"})
    with pytest.raises(SchemaRefused) as told:
        mirror.run("logins")
    assert f"the newest records of {mirror.topic('logins')} have no key" in str(told.value)
    assert "set `mode: append` for it" in str(told.value)
    assert mirror.run("orders").rows == 1
    mirror.write(tables={mirror.topic("logins"): {"mode": "append"}})
    assert mirror.run("logins").rows == 3
    assert mirror.rows("logins") == [("ann", "in"), ("ann", "in"), ("bob", "in")]
    # The connector's heartbeat and a message of the source's log are no rows, and not bad.
    mirror.produce("logins", b'{"serverName":"shop"}', {"ts_ms": 5}, {"op": "m", "ts_ms": 6, "message": {}})
    (report,) = mirror.run("logins").reports
    assert (report.rows, report.skipped, report.heartbeats, report.messages) == (0, 2, 1, 1)
    mirror.send("logins", None, "u", {"who": "bob", "note": "in"}, {"who": "bob", "note": "out"})
    with pytest.raises(BadRecord, match="rows are only inserted"):
        mirror.run("logins")


def test_p1_rows_of_two_source_tables_in_one_topic_do_not_overwrite_each_other(ground: Ground) -> None:
    """Debezium replaces what a topic's name cannot have, so two tables of PostgreSQL may have one topic."""
    mirror = Mirror(ground, {"gr__e": {"id": LONG, "note": TEXT}})
    mirror.send("gr__e", ["id"], "c", None, {"id": 1, "note": "a"}, "größe")
    assert mirror.run("gr__e").rows == 1
    mirror.send("gr__e", ["id"], "c", None, {"id": 1, "note": "b"}, "grüße")
    mirror.send("gr__e", ["id"], "u", None, {"id": 1, "note": "c"}, "größe")
    with pytest.raises(
        BadRecord, match=r"gr__e:0:1 field source.table: expected a change of public.größe.*public.grüße"
    ):
        mirror.run("gr__e")
    assert mirror.rows("gr__e") == [(1, "a")]
    mirror.write(on_bad_record="dead_letter")
    receipt = mirror.run("gr__e")
    assert (receipt.rows, receipt.rejected, mirror.rows("gr__e")) == (1, 1, [(1, "c")])
    # On purpose, as with a router that merges tables whose keys do not meet.
    mirror.write(source={"event_columns": {"source_table": "source.table"}})
    mirror.send("gr__e", ["id"], "c", None, {"id": 2, "note": "b"}, "grüße")
    mirror.run("gr__e")
    assert mirror.rows("gr__e", "id", "note", "source_table") == [(1, "c", None), (2, "b", "grüße")]
    # A connector that could not read the name.
    other = Mirror(ground, {"gr____e": {"id": LONG, "note": TEXT}})
    other.send("gr____e", None, "c", None, {"id": 1, "note": "a"}, "gr\ufffd\ufffd\ufffd\ufffde")
    with pytest.raises(SchemaRefused, match="name the connector could not read"):
        other.run("gr____e")


@pytest.mark.parametrize("on_bad_record", ["fail", "dead_letter"])
def test_p1_a_changed_key_that_the_connector_sends_again_loses_no_row(ground: Ground, on_bad_record: str) -> None:
    """As Kafka Connect does that was killed: an update that changes the key, without the large value."""
    mirror = Mirror(ground, {"docs": {"id": LONG, "title": TEXT, "body": TEXT}}, on_bad_record=on_bad_record)
    for number in (1, 2):
        mirror.send("docs", ["id"], "r", None, {"id": number, "title": "t", "body": f"body {number}"})
    assert mirror.run("docs").rows == 2

    def move(old: int, new: int, title: str) -> None:
        mirror.send("docs", ["id"], "d", {"id": old, "title": None, "body": None}, None, lsn=10 * old)
        row = {"id": new, "title": title, "body": UNAVAILABLE}
        mirror.send("docs", ["id"], "c", None, row, lsn=10 * old)

    # In one transaction, with what came after it, and in two.
    move(1, 101, "one")
    move(1, 101, "one")
    mirror.send("docs", ["id"], "u", None, {"id": 101, "title": "later", "body": UNAVAILABLE}, lsn=30)
    assert mirror.run("docs").rejected == 0
    assert mirror.rows("docs") == [(2, "t", "body 2"), (101, "later", "body 1")]
    for _ in range(2):
        move(2, 102, "two")
        assert mirror.run("docs").rejected == 0
    assert mirror.rows("docs") == [(101, "later", "body 1"), (102, "two", "body 2")]


def test_p1_rows_that_a_new_snapshot_does_not_have_go_with_one_statement(ground: Ground) -> None:
    """docs/keyed-tables.md says which: rows were deleted while no connector watched."""
    mirror = Mirror(ground, {"orders": {"id": LONG, "note": TEXT}})
    for number in range(10):
        mirror.send("orders", ["id"], "r", None, {"id": number, "note": "first"})
    mirror.send("orders", ["id"], "u", None, {"id": 9, "note": "changed"})
    mirror.run("orders")
    run_services(mirror.pipeline("orders"), home=ground.home)
    end = 11
    for number in range(3, 10):
        mirror.send("orders", ["id"], "r", None, {"id": number, "note": "second"})
    mirror.send("orders", ["id"], "c", None, {"id": 11, "note": "new"})
    mirror.run("orders")
    spark = current_session(ground.home).newSession()
    path = mirror.pipeline("orders").table.base_path
    spark.sql(f"create table {ground.name} using hudi location '{path}'")
    spark.sql(f"delete from {ground.name} where _kafka_offset < {end}")
    kept = [(number, "second") for number in range(3, 10)] + [(11, "new")]
    assert mirror.rows("orders") == kept
    mirror.send("orders", ["id"], "c", None, {"id": 1, "note": "back"})
    mirror.run("orders")
    assert mirror.rows("orders") == [(1, "back"), *kept]


def test_p1_keys_and_columns_of_avro_come_from_the_registry(ground: Ground, registry: Registry) -> None:
    line = [{"name": "line", "type": "long"}, {"name": "note", "type": "string"}, {"name": "order", "type": "string"}]
    row = {"type": "record", "name": "Value", "fields": line}
    event = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    columns: Columns = {"line": LONG, "note": TEXT, "order": TEXT}
    source = {"format": "avro", "schema_registry": {"url": registry.url}}
    mirror = Mirror(ground, {"lines": columns}, source=source, table={"schema": None})
    topic = mirror.topic("lines")

    def send(key: list[str], op: str, before: Row | None, after: Row | None) -> None:
        own = {"type": "record", "name": "Key", "fields": [field for field in line if field["name"] in key]}
        image = after or before or {}
        ground.producer.produce(
            topic,
            avro_bytes(registry, topic, json.dumps(event), {"before": before, "after": after, "op": op}),
            avro_bytes(registry, topic, json.dumps(own), {name: image[name] for name in key}, field=MessageField.KEY),
            partition=0,
        )
        assert ground.producer.flush(120) == 0

    def control(name: str, **values: Any) -> None:
        """Send a record of the connector itself, which becomes the newest version of the same subject."""
        kinds = {name: "long" if isinstance(value, int) else "string" for name, value in values.items()}
        fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
        schema = json.dumps({"type": "record", "name": name, "fields": fields})
        ground.producer.produce(topic, avro_bytes(registry, topic, schema, values), b"", partition=0)
        assert ground.producer.flush(120) == 0

    first, second = {"line": 1, "note": "a", "order": "x"}, {"line": 1, "note": "b", "order": "y"}
    send(["line", "order"], "c", None, first)
    send(["line", "order"], "c", None, second)
    control("Heartbeat", ts_ms=5)
    send(["line", "order"], "u", second, {**second, "note": "c"})
    receipt = mirror.run("lines")
    assert (receipt.rows, [report.heartbeats for report in receipt.reports]) == (3, [1])
    send(["line", "order"], "u", first, {**first, "note": "newer"})
    control("SchemaChange", source="s", databaseName="shop", ddl="alter table", tableChanges="")
    send(["line", "order"], "d", second, None)
    receipt = mirror.run("lines")
    assert (receipt.rows, [report.ddl for report in receipt.reports]) == (2, [1])
    assert mirror.rows("lines") == [(1, "newer", "x")]
    send(["line"], "c", None, second)
    with pytest.raises(
        SchemaRefused, match=r":0:7 has the key \(line\), and the table at .* has the key \(line, order\)"
    ):
        mirror.run("lines")


DEBEZIUM: Columns = {
    "id": {"type": "int32"},
    "code": {"type": "string"},
    "fixed": {**TEXT, "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}},
    "any": {
        **struct({"scale": {"type": "int32"}, "value": {"type": "bytes"}}),
        "name": "io.debezium.data.VariableScaleDecimal",
    },
    "zoned": {**TEXT, "name": "io.debezium.time.ZonedTimestamp"},
    "at": {**LONG, "name": "io.debezium.time.MicroTimestamp", "optional": True},
    "day": {"type": "int32", "name": "io.debezium.time.Date", "optional": True},
    "raw": {"type": "bytes", "optional": True},
    "tags": {"type": "array", "items": TEXT, "optional": True},
    "numbers": {"type": "array", "items": {"type": "int32", "optional": True}, "optional": True},
    "half": {"type": "float", "optional": True},
    "ratio": {"type": "double", "optional": True},
    "large": TEXT,
}
PLAIN = (
    "id int not null, code string not null, fixed decimal(12,3), any string, zoned timestamp, at timestamp, day date, raw binary, "
    "tags array<string>, numbers array<int>, half float, ratio double, large string"
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _base64(number: int | bytes) -> str:
    raw = number if isinstance(number, bytes) else number.to_bytes(16, "big", signed=True)
    return base64.b64encode(raw).decode()


def _in_json(value: Any) -> Any:
    """A float, and a text if JSON has no number for it."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _with_schema(row: Row) -> Row:
    """A row as Debezium writes it by default."""
    scale = -int(Decimal(row["any"]).as_tuple().exponent)
    return {
        **{name: _in_json(value) for name, value in row.items()},
        "fixed": _base64(int(row["fixed"].scaleb(3))),
        "any": {"scale": scale, "value": _base64(int(row["any"].replace(".", "")))},
        "zoned": row["zoned"].isoformat().replace("+00:00", "Z"),
        "at": (row["at"] - EPOCH) // timedelta(microseconds=1),
        "day": (row["day"] - EPOCH.date()).days,
        "raw": _base64(row["raw"]),
    }


def _without_schema(row: Row) -> Row:
    """A row with `decimal.handling.mode=string` and `time.precision.mode=isostring`."""
    return {
        **{name: _in_json(value) for name, value in row.items()},
        "fixed": str(row["fixed"]),
        "zoned": row["zoned"].isoformat().replace("+00:00", "Z"),
        "at": row["at"].isoformat().replace("+00:00", "Z"),
        "day": f"{row['day']}Z",
        "raw": _base64(row["raw"]),
    }


def _row(id_: int, code: str, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "fixed": Decimal("-1234.500"),
        "any": "12345678901234567890.1234567890",
        "zoned": datetime(1905, 1, 1, 0, 0, 0, 1, timezone.utc),
        "at": datetime(1583, 1, 1, 23, 59, 59, 999_999, timezone.utc),
        "day": date(1600, 2, 29),
        "raw": b"\x00\xff",
        "tags": ["a", None, "", 'b,"c'],
        "numbers": [1, -(2**31), None],
        "half": math.nan,
        "ratio": -math.inf,
        "large": "l" * 3000,
    }
    return {"id": id_, "code": code, **values, **more}


def test_p5_rows_of_debezium_are_what_the_database_has_with_schemas_and_without(ground: Ground) -> None:
    """Composite keys with odd texts, deleted keys that come back, values at their ends and values that are left out."""
    key = ["id", "code"]
    mirror = Mirror(ground, {"typed": DEBEZIUM, "plain": {}})
    mirror.write(tables={mirror.topic("plain"): {"schema": PLAIN}})
    rows: dict[tuple[int, str], Row] = {}

    def write(op: str, before: Row | None, after: Row | None, **sent: Any) -> None:
        """`sent`: what the event has in place of the row's values."""
        image = after or before or {}
        written = {
            name: after and {**each(after), **sent}
            for name, each in (("typed", _with_schema), ("plain", _without_schema))
        }
        deleted = (
            None
            if before is None or after is not None
            else {**dict.fromkeys(before), "id": before["id"], "code": before["code"]}
        )
        mirror.send("typed", key, op, deleted, written["typed"])
        names = json.dumps({name: image[name] for name in key}).encode()
        event = {"before": deleted, "after": written["plain"], "op": op}
        mirror.produce("plain", names, event, *([None] if op == "d" else []))
        if before is not None:
            del rows[before["id"], before["code"]]
        if after is not None:
            rows[after["id"], after["code"]] = after

    def require_same() -> None:
        for table in ("typed", "plain"):
            path = mirror.pipeline(table).table.base_path
            for found in (read_with_hudi_rs(path), read_with_spark(path, ground.home)):
                compared = compare_rows(map(_comparable, rows.values()), map(_comparable, found), *key)
                assert compared.equal, (table, compared.examples)

    one, two, three = (
        _row(1, "é"),
        _row(1, "a:b:c", half=0.1, ratio=0.1),
        _row(2, " ", at=datetime(9999, 12, 31, tzinfo=timezone.utc)),
    )
    four = _row(3, "ü,ö=1")
    for row in (one, two, three, four):
        write("r", None, {**row, "half": float(np.float32(row["half"]))})
    assert (mirror.run("typed").rows, mirror.run("plain").rows) == (4, 4)
    require_same()
    for table in ("typed", "plain"):
        run_services(mirror.pipeline(table), compact=True, clean=False, home=ground.home)
    # An update that leaves the large value out, one key that becomes another that was deleted before, and one that is deleted, inserted
    # and updated at once.
    write("u", four, {**four, "day": date(9999, 12, 31)}, large=UNAVAILABLE)
    write("d", two, None)
    write("d", rows[1, "é"], None)
    write("c", None, {**one, "code": "a:b:c", "half": math.inf})
    write("d", rows[2, " "], None)
    write("c", None, {**three, "large": "short"})
    write("u", rows[2, " "], {**three, "large": "short", "fixed": Decimal("999999999.999"), "tags": []})
    mirror.run("typed")
    mirror.run("plain")
    require_same()
    for table in ("typed", "plain"):
        run_services(mirror.pipeline(table), compact=True, clean=False, home=ground.home)
    require_same()


def _comparable(row: Row) -> dict[str, Any]:
    """NaN is not itself."""
    return {name: "NaN" if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
