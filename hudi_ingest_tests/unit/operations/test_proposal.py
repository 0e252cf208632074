"""`hudi-ingest new`: what is proposed for topics of many kinds, whose bytes real serializers wrote. A proposal is right if the format,
the envelope, the mode, the key and where it comes from, the partitioning and the file are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.operations.new_pipeline import file_text, known_schema, tried
from hudi_ingest.operations.proposal import Proposal, propose
from hudi_ingest.operations.sampled_values import KnownSchema, NoProposal, Observed, SeenRecord
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest_tests.support.every_format import framed
from hudi_ingest_tests.support.proposed_files import written

ROWS: list[dict[str, Any]] = [
    {"id": f"o-{n}", "n": n % 3, "amount": n * 1.5, "note": None if n % 2 else "x"} for n in range(12)
]
NUMBERED: list[dict[str, Any]] = [{**row, "id": n} for n, row in enumerate(ROWS)]
DATED = [{**row, "day": f"2026-01-0{n % 3 + 1}", "at": f"2026-01-01T00:00:{n:02}Z"} for n, row in enumerate(ROWS)]
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
AVRO_DATED = {**AVRO, "fields": [*AVRO["fields"], {"name": "day", "type": {"type": "int", "logicalType": "date"}}]}
AVRO_DELETED = {**AVRO, "fields": [*AVRO["fields"], {"name": "__deleted", "type": ["null", "string"]}]}
AVRO_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", AVRO]},
        {"name": "after", "type": ["null", "Order"]},
        {"name": "op", "type": "string"},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "string"},
        "n": {"type": "integer"},
        "amount": {"type": "number"},
        "note": {"type": "string"},
    },
}
PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; int64 n = 2; double amount = 3; }'
IN_REGISTRY: dict[int, tuple[SchemaKind, str]] = {
    1: ("AVRO", json.dumps(AVRO)),
    2: ("AVRO", json.dumps(AVRO_KEY)),
    3: ("AVRO", json.dumps(EVENT)),
    4: ("JSON", json.dumps(JSON_SCHEMA)),
    5: ("PROTOBUF", PROTO),
    6: ("AVRO", '"string"'),
    7: ("AVRO", json.dumps(AVRO_DATED)),
    8: ("AVRO", json.dumps(AVRO_DELETED)),
    9: ("AVRO", '{"type": "long"}'),
}
Bytes = Sequence[bytes | None]


def as_json(rows: Sequence[Any]) -> Bytes:
    return [json.dumps(row).encode() for row in rows]


def avro(schema_id: int, rows: Sequence[Any]) -> Bytes:
    def one(row: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(IN_REGISTRY[schema_id][1])), row)
        return framed(out.getvalue(), schema_id)

    return [one(row) for row in rows]


def protobuf(rows: Sequence[dict[str, Any]]) -> Bytes:
    message = GetMessageClass(
        ProtobufSchema(compile_protos("order.proto", {"order.proto": PROTO})).message("shop.Order")
    )
    return [
        framed(b"\0" + message(id=row["id"], n=row["n"], amount=row["amount"]).SerializeToString(), 5) for row in rows
    ]


def json_schema(rows: Sequence[Any]) -> Bytes:
    return [framed(json.dumps(row).encode(), 4) for row in rows]


def connect(rows: Sequence[Any], kind: str = "struct") -> Bytes:
    types = {str: "string", int: "int64", float: "double", type(None): "string"}

    def schema(row: Any) -> dict[str, Any]:
        if kind != "struct":
            return {"type": kind, "optional": False}
        fields = [{"field": name, "type": types[type(value)], "optional": True} for name, value in row.items()]
        return {"type": "struct", "fields": fields, "optional": False}

    return [json.dumps({"schema": schema(row), "payload": row}).encode() for row in rows]


def events(rows: Sequence[Any], with_schema: bool = False) -> Bytes:
    found = [{"before": None, "after": row, "op": "c", "source": {"lsn": 1}, "ts_ms": 1} for row in rows]
    return as_json(
        [{"schema": {"type": "struct", "fields": []}, "payload": each} for each in found] if with_schema else found
    )


def avro_events(rows: Sequence[Any]) -> Bytes:
    return avro(3, [{"before": None, "after": row, "op": "c"} for row in rows])


def text(row: Any, delimiter: str = ",") -> bytes:
    return delimiter.join("" if value is None else str(value) for value in row.values()).encode()


def ids(rows: Sequence[Any] = ROWS) -> list[Any]:
    return [row["id"] for row in rows]


def fields(rows: Sequence[Any] = ROWS) -> list[Any]:
    return [{"id": row["id"]} for row in rows]


STRING_KEYS = [str(each).encode() for each in ids()]
OTHER_KEYS = [f"customer {n % 4}".encode() for n in range(12)]
NO_KEYS: Bytes = [None] * 12
LONG_KEYS = [n.to_bytes(8, "big") for n in range(12)]
TEXTS = [f"line number {n} of a log".encode() for n in range(12)]
BYTES = [bytes([255, 254, n]) for n in range(12)]


@dataclass(frozen=True)
class Topic:
    values: Bytes
    keys: Bytes = ()
    policy: str = "delete"
    format: str = "json"
    envelope: str = "none"
    mode: str = "append"
    key: Any = ()
    from_key: str | None = None
    """The schema of `source.key`."""
    partition_by: Any = None


def upsert(values: Bytes, keys: Bytes, key: Any, from_key: str | None, policy: str = "compact", **more: Any) -> Topic:
    return Topic(values, keys, policy, mode="upsert", key=key, from_key=from_key, **more)


ID, KEY, STRING = ["id"], ["key"], "id string NOT NULL"
TOPICS: dict[str, Topic] = {
    "json": Topic(as_json(ROWS)),
    "json, string keys": Topic(as_json(ROWS), STRING_KEYS),
    "json, keys of others": Topic(as_json(ROWS), OTHER_KEYS),
    "json, object keys": Topic(as_json(ROWS), as_json(fields())),
    "json, days": Topic(as_json(DATED), STRING_KEYS, partition_by=["day"]),
    "json, compacted": upsert(as_json(ROWS), STRING_KEYS, ID, STRING),
    "json, compacted and deleted": upsert(as_json(ROWS), STRING_KEYS, ID, STRING, "compact,delete"),
    "json, compacted, long ids": upsert(
        as_json(NUMBERED), [str(n).encode() for n in range(12)], ID, "id long NOT NULL"
    ),
    "json, compacted, keys of others": upsert(as_json(ROWS), OTHER_KEYS, KEY, "key string NOT NULL"),
    "json, compacted, object keys": upsert(as_json(ROWS), as_json(fields()), ID, STRING),
    "json, compacted, connect keys": upsert(as_json(ROWS), connect(fields()), ID, STRING),
    "json, compacted, connect scalar keys": upsert(as_json(ROWS), connect(ids(), "string"), ID, STRING),
    "json, compacted, long bytes": upsert(as_json(NUMBERED), LONG_KEYS, ID, "id long NOT NULL"),
    "json, compacted, avro keys": upsert(as_json(ROWS), avro(2, fields()), ID, STRING),
    "json, compacted, days": upsert(as_json(DATED), STRING_KEYS, ID, STRING),
    "json, compacted without keys": Topic(as_json(ROWS), NO_KEYS, "compact"),
    "json, tombstones": upsert([*as_json(ROWS[:10]), None, None], STRING_KEYS, ID, STRING, "delete"),
    "json, flattened": upsert(
        as_json([{**row, "__deleted": "false"} for row in ROWS]), as_json(fields()), ID, None, "delete"
    ),
    "json, flattened, tombstones": upsert(
        [*as_json([{**row, "__deleted": "false"} for row in ROWS[:11]]), None], as_json(fields()), ID, None
    ),
    "connect": Topic(connect(ROWS), envelope="connect"),
    "connect, object keys": Topic(connect(ROWS), connect(fields()), envelope="connect"),
    "debezium": upsert(events(ROWS), as_json(fields()), "kafka_key", None, "delete", envelope="debezium"),
    "debezium, compacted": upsert(events(ROWS), as_json(fields()), "kafka_key", None, envelope="debezium"),
    "debezium, with schemas": upsert(events(ROWS, True), connect(fields()), "kafka_key", None, envelope="debezium"),
    "debezium, tombstones": upsert(
        [*events(ROWS[:11]), None], as_json(fields()), "kafka_key", None, envelope="debezium"
    ),
    "debezium, no keys": Topic(events(ROWS), NO_KEYS, envelope="debezium"),
    "debezium, two columns": upsert(
        events(ROWS),
        as_json([{"id": row["id"], "n": row["n"]} for row in ROWS]),
        "kafka_key",
        None,
        envelope="debezium",
    ),
    "debezium, avro": upsert(
        avro_events(ROWS), avro(2, fields()), "kafka_key", None, format="avro", envelope="debezium"
    ),
    "debezium, avro, no keys": Topic(avro_events(ROWS), NO_KEYS, format="avro", envelope="debezium"),
    "avro": Topic(avro(1, ROWS), format="avro"),
    "avro, string keys": Topic(avro(1, ROWS), STRING_KEYS, format="avro"),
    "avro, avro keys": Topic(avro(1, ROWS), avro(2, fields()), format="avro"),
    "avro, compacted": upsert(avro(1, ROWS), avro(2, fields()), ID, STRING, format="avro"),
    "avro, compacted, string keys": upsert(avro(1, ROWS), STRING_KEYS, ID, STRING, format="avro"),
    "avro, compacted, avro string keys": upsert(avro(1, ROWS), avro(6, ids()), ID, STRING, format="avro"),
    "avro, compacted, avro long keys": upsert(
        avro(1, ROWS), avro(9, range(12)), KEY, "key long NOT NULL", format="avro"
    ),
    "avro, tombstones": upsert([*avro(1, ROWS[:11]), None], STRING_KEYS, ID, STRING, "delete", format="avro"),
    "avro, flattened": upsert(
        avro(8, [{**row, "__deleted": "false"} for row in ROWS]), avro(2, fields()), ID, None, format="avro"
    ),
    "avro, days": Topic(
        avro(7, [{**row, "day": 20000 + n} for n, row in enumerate(ROWS)]), format="avro", partition_by=["day"]
    ),
    "protobuf": Topic(protobuf(ROWS), format="protobuf"),
    "protobuf, compacted, keys of others": upsert(
        protobuf(ROWS), OTHER_KEYS, KEY, "key string NOT NULL", format="protobuf"
    ),
    "json_schema": Topic(json_schema([{**row, "note": "x"} for row in ROWS]), STRING_KEYS, format="json_schema"),
    "json_schema, compacted": upsert(
        json_schema([{**row, "note": "x"} for row in ROWS]), STRING_KEYS, ID, STRING, format="json_schema"
    ),
    "csv": Topic([text(row) for row in ROWS], format="csv"),
    "csv, semicolons": Topic([text(row, ";") for row in ROWS], STRING_KEYS, format="csv"),
    "csv, compacted": upsert([text(row) for row in ROWS], STRING_KEYS, ["c1"], "c1 string NOT NULL", format="csv"),
    "text": Topic(TEXTS, format="string"),
    "text, compacted": upsert(TEXTS, STRING_KEYS, KEY, "key string NOT NULL", format="string"),
    "bytes": Topic(BYTES, format="bytes"),
}


def seen(topic: Topic, with_registry: bool = True) -> Observed:
    keys = topic.keys or [None] * len(topic.values)
    records = [
        SeenRecord(f"t:0:{n}", key, value) for n, (key, value) in enumerate(zip(keys, topic.values, strict=True))
    ]
    config = SchemaRegistry(url="http://registry:8081")
    schemas: dict[int, KnownSchema] = {}
    for schema_id, (kind, schema) in IN_REGISTRY.items():
        start = framed(b"", schema_id)
        named = [
            each for pair in zip(keys, topic.values, strict=True) for each in pair if each and each.startswith(start)
        ]
        if named:
            schemas[schema_id] = known_schema(kind, RegisteredSchema(schema), config, named)
    return Observed("t", 2, records, topic.policy, schemas=schemas if with_registry else None)


def file_of(proposal: Proposal, make: Callable[..., str] = file_text) -> Pipeline:
    source = {"bootstrap_servers": "broker:9092", "topics": ["t"], "schema_registry": {"url": "http://registry:8081"}}
    written = {
        "name": "t",
        "source": {**source, **proposal.source},
        "table": {"base_path": "/data/t", **proposal.table},
        **({"transforms": proposal.transforms} if proposal.transforms else {}),
        **proposal.other,
    }
    return Pipeline.model_validate(yaml.safe_load(make(written, proposal)))


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_gets_the_file_that_fits(name: str) -> None:
    topic = TOPICS[name]
    proposal = propose(seen(topic))
    source, table = proposal.source, proposal.table
    assert source.get("format", "json") == topic.format
    assert source.get("envelope", "none") == topic.envelope
    assert table.get("mode", "append") == topic.mode
    assert table.get("key", ()) == topic.key
    assert source.get("key", {}).get("schema") == topic.from_key
    assert table.get("partition_by") == topic.partition_by
    assert {"format", "partition_by"} <= {*proposal.reasons} or topic.envelope == "debezium"
    assert file_of(proposal).table.mode == topic.mode


def test_there_are_at_least_forty_topics() -> None:
    assert len(TOPICS) >= 40


@pytest.mark.parametrize("name", ["avro", "protobuf", "json_schema", "debezium, avro"])
def test_records_that_name_schemas_need_a_registry(name: str) -> None:
    with pytest.raises(NoProposal, match="--schema-registry"):
        propose(seen(TOPICS[name], with_registry=False))


@pytest.mark.parametrize(
    "name", [name for name, topic in TOPICS.items() if topic.format not in ("avro", "protobuf", "json_schema")]
)
def test_other_records_need_none(name: str) -> None:
    if "avro" not in name:
        assert propose(seen(TOPICS[name], with_registry=False)).table == propose(seen(TOPICS[name])).table


def test_columns_come_with_what_was_seen() -> None:
    proposal = propose(seen(TOPICS["json, days"]))
    assert proposal.table["schema"] == "id string, n long, amount double, note string, day date, at timestamp"
    assert proposal.reasons["schema.n"] == "3 distinct, 0 to 2"
    assert proposal.reasons["schema.id"] == "12 distinct, 'o-0' to 'o-9'"
    assert proposal.reasons["schema.note"] == "6 nulls, 1 distinct, 'x'"
    assert proposal.reasons["schema.day"] == "3 distinct, 2026-01-01 to 2026-01-03"
    empty = Observed("t", 1, [SeenRecord("t:0:0", b"k", None)])
    with pytest.raises(NoProposal, match="Produce some first"):
        propose(empty)


def test_decimals_in_texts_become_decimals_or_name_the_line_to_change() -> None:
    rows = [
        {"price": f"{n}.50", "weight": f"{n}.{n}" if n else "0", "version": f"1.{n}.0", "zip": f"0{n}.1", "n": str(n)}
        for n in range(9, 13)
    ]
    columns = "price decimal(18,2), weight string, version string, zip string, n string"
    proposal = propose(seen(Topic(as_json(rows))))
    assert proposal.table["schema"] == columns
    reasons = {name.removeprefix("schema."): reason for name, reason in proposal.reasons.items()}
    assert (
        reasons["price"].startswith("4 distinct, 9.50 to 12.50, decimals in texts")
        and "`price string`" in reasons["price"]
    )
    assert "`weight decimal(18,2)` instead" in reasons["weight"]
    assert not any("decimal" in reasons[name] for name in ("version", "zip", "n"))
    file_of(proposal)
    csv = propose(seen(Topic([text(row) for row in rows]))).reasons
    assert "`c1 decimal(18,2)` instead would not round" in csv["schema.c1"]
    assert csv["schema.c5"] == "4 distinct, 9 to 12"
    long = propose(seen(Topic(as_json([{"a": f"{10**20}.5", "b": f"{10**40}.5", "c": "two\nlines: x"}]))))
    assert long.table["schema"] == "a decimal(38,1), b string, c string"
    file_of(long)


DECLARED = [
    name
    for name, topic in TOPICS.items()
    if topic.format in ("json", "csv", "string", "bytes") and topic.envelope == "none"
]


@pytest.mark.parametrize("name", [name for name in DECLARED if "avro" not in name])
def test_a_proposed_file_makes_no_sampled_record_bad(name: str, tmp_path: Path) -> None:
    topic = seen(TOPICS[name], with_registry=False)
    outcome = tried(written(propose(topic)), tmp_path, topic.records)
    assert (outcome.records, outcome.bad) == (len(topic.records), 0), outcome.text
