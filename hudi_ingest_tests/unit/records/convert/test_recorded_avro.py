"""What Debezium 3.3 and Apicurio's Avro converter (`as-confluent`) wrote of changes in MariaDB 10.11 and PostgreSQL 15."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.avro.converter import ConfluentWireFormat
from hudi_ingest.records.convert.connect.avro import ConnectAvroConverter
from hudi_ingest.records.convert.connect.debezium import (
    UNAVAILABLE,
    AvailableValues,
    DebeziumConverter,
    NamingFields,
    event_schema,
)
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema

pytestmark = pytest.mark.fast

FOLDER = Path(__file__).parent / "debezium"
MARIADB = (
    "id long not null, name string not null, balance decimal(12,2), wide decimal(30,10), tiny int, flag int, small int, "
    "med int, num int, unum long, f4 float, f8 double, born date, dt timestamp, dt6 timestamp, ts timestamp, doc string, "
    "kind string, flags string, raw binary, bin4 binary, blob_ binary, txt string, loyalty decimal(8,3), tier string"
)
POSTGRESQL = (
    "id long not null, name string not null, balance decimal(12,2), ratio decimal(20,6), ok boolean, born date, "
    "local_at timestamp, zoned timestamp, tags array<string>, long_text string, loyalty decimal(8,3), tier string"
)


@dataclass(frozen=True)
class Registry:
    texts: dict[str, str]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(self.texts[str(schema_id)]) if str(schema_id) in self.texts else None


def decoded(recording: dict[str, Any], ddl: str, naming: NamingFields) -> Decoded:
    columns = parse_ddl(ddl)
    writers = ConfluentWireFormat(Registry(recording["schemas"]))
    values = [base64.b64decode(value) for _, value in recording["records"] if value is not None]
    events = ConnectAvroConverter(event_schema(columns, naming), writers)
    return AvailableValues(DebeziumConverter(events, columns, naming)).decode(pa.array(values, pa.binary()))


def recording(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return content


def applied(changes: Decoded) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for change in changes.rows.to_pylist():
        if change[DELETED]:
            del rows[change["id"]]
        else:
            rows[change["id"]] = change
    return rows


def shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, int | float) else str(value).removesuffix("+00:00")


def test_the_changes_of_a_table_in_mariadb_come_to_what_it_holds() -> None:
    of_mariadb = recording("mariadb_avro.json")
    changes = decoded(of_mariadb, MARIADB, NamingFields(("id", "dt6"), whole=True))
    assert changes.rejected == ()
    rows = applied(changes)
    expected = {row["id"]: dict(row) for row in of_mariadb["rows"]}
    # Debezium writes 2001 for year 1 (`enable.time.adjuster`), null for zero dates, and nothing at all for the rows that are
    # there when a column with a default is added.
    expected[3]["dt"] = "2001-01-01 00:00:00"
    expected[9] |= {"born": None, "dt": None}
    for key in (3, 6, 40):
        expected[key]["tier"] = None
    names = parse_ddl(MARIADB).names
    assert {key: {name: shown(row[name]) for name in names} for key, row in rows.items()} == {
        key: {name: row[name] for name in names} for key, row in expected.items()
    }
    befores = [row[BEFORE]["id"] for row in changes.rows.to_pylist() if row[BEFORE]]
    assert befores == [1, 3, 4, 5, 6, 6, 7, 1, 2], "each update and delete has the whole row before it"


def test_types_of_mysql_that_are_not_what_they_seem() -> None:
    rows = applied(
        decoded(
            recording("mariadb_avro.json"),
            "id long, ubig long, at long, y int, b1 boolean, bits binary",
            NamingFields(("id",)),
        )
    )
    assert (rows[1]["at"], rows[1]["b1"]) == (-40953123456, True)
    assert rows[1]["bits"] == b"\x01\x00\x0a", "b'10100000000000000001', the least significant byte first"
    assert rows[3]["ubig"] == -1, "18446744073709551615 with bigint.unsigned.handling.mode=long, its default"
    assert rows[3]["y"] == 1900, "0000"


def test_the_changes_of_a_table_in_postgresql_that_sends_only_keys() -> None:
    changes = decoded(recording("postgresql_avro.json"), POSTGRESQL, NamingFields(("id",)))
    assert {(refusal.field, refusal.found) for refusal in changes.rejected} == {
        ("long_text", UNAVAILABLE),
        ("op", "t, a truncate"),
    }
    outcome = [
        (row["id"], row[DELETED], shown(row["balance"]), shown(row["ratio"]), shown(row["zoned"]), shown(row["born"]))
        for row in changes.rows.to_pylist()
    ]
    nothing = (None, None, None, None)
    assert outcome == [
        (3, False, *nothing),
        (3, False, "9999999999.99", "-0.000001", "1969-12-31 23:59:59.999999", "9999-12-31"),
        (4, True, *nothing),
        (5, True, *nothing),
        (2, True, *nothing),
        (9, False, *nothing),
    ]


def test_dates_and_times_as_text() -> None:
    """`time.precision.mode=isostring`, which JSON without schemas needs for times with units."""
    lines = (FOLDER / "mariadb_with_iso_times.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line)["value"].encode() for line in lines]
    columns = parse_ddl("id long, born date, dt timestamp, dt6 timestamp, ts timestamp, balance decimal(12,2)")
    events = ConnectJsonConverter(event_schema(columns, NamingFields(("id", "born"))), framed=False)
    changes = DebeziumConverter(events, columns, NamingFields(("id", "born"))).decode(pa.array(values, pa.binary()))
    assert changes.rejected == ()
    assert [tuple(shown(row[name]) for name in columns.names) for row in changes.rows.to_pylist()] == [
        (2, "2024-02-02", "2024-02-29 12:34:56", "2024-02-29 12:34:56.123456", "2024-02-29 12:34:56.654321", "2.25"),
        (
            3,
            "9999-12-31",
            "2001-01-01 00:00:00",
            "9999-12-31 23:59:59.999999",
            "1970-01-01 00:00:01.000001",
            "9999999999.99",
        ),
        (2, "2024-02-02", None, None, None, None),
        (9, None, None, None, None, None),
    ]


def test_records_about_the_log_are_told_from_changes() -> None:
    """What Apicurio's converter makes of the schemas that Debezium has for them; `m` is PostgreSQL's, the change of a schema MySQL's."""
    of_postgresql = recording("postgresql_avro.json")
    changes = [base64.b64decode(value) for _, value in of_postgresql["records"][:1]]
    records: list[dict[str, Any]] = json.loads((FOLDER / "control_records_avro.json").read_text(encoding="utf-8"))
    first = 1_000_000
    texts = {str(first + place): json.dumps(each["schema"]) for place, each in enumerate(records)}
    control = [
        b"\0" + (first + place).to_bytes(4, "big") + base64.b64decode(each["value"])
        for place, each in enumerate(records)
    ]
    columns, naming = parse_ddl(POSTGRESQL), NamingFields(("id",))
    writers = ConfluentWireFormat(Registry({**of_postgresql["schemas"], **texts}))
    events = ConnectAvroConverter(event_schema(columns, naming), writers)
    found = AvailableValues(DebeziumConverter(events, columns, naming)).decode(
        pa.array([*changes, *control, *changes], pa.binary())
    )
    assert found.rows.num_rows == 2 * len(changes)
    assert [fault.control for fault in found.rejected] == [each["kind"] for each in records]
    assert {each["kind"] for each in records} == {"heartbeats", "boundaries", "ddl", "messages"}
