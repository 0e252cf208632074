from __future__ import annotations

import pickle
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import ProblemsFromTop
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.kafka_client import Security
from hudi_ingest.pipeline.sections.source import KafkaSource, StartingTimestamp
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.pipeline.sections.transaction import FAN_OUT_FROM, Transaction
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.pipeline_files import RIGHT, SECRET, Write, load, problem, problems, with_security

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parent.parent.parent.parent


# ---- A right file


def test_the_shortest_file_has_all_defaults(write: Write) -> None:
    found = load(write)
    assert found == Pipeline(
        name="orders",
        source=KafkaSource(bootstrap_servers="localhost:9092", topics=("orders",)),
        table=Table(base_path="/data/orders", schema="id string, dt string, n long, amount double"),
    )
    assert found.source.starting_offsets == "earliest"
    assert found.source.security is None
    assert found.source.request_timeout_seconds == 8
    assert found.table.kafka_columns == ("topic", "timestamp")
    assert found.table.target_file_bytes == 134_217_728
    assert found.table.compression == "zstd"
    assert found.transaction == Transaction()
    assert (found.transaction.interval_seconds, found.transaction.max_records) == (60, 5_000_000)
    assert (found.transaction.min_records, found.transaction.max_bytes) == (1, None)
    assert (found.transaction.timeout_seconds, found.transaction.ops) == (300, "auto")
    assert (found.transaction.retries, found.transaction.retry_delay_seconds) == (2, 5)
    assert found.on_bad_record == "fail"
    assert found.checkpoint_key == "hudi_ingest.checkpoint.orders"
    assert found.transaction_key == "hudi_ingest.transaction.orders"
    assert found.group_id == "hudi-ingest.orders"
    assert found.table.record == parse_ddl("id string, dt string, n long, amount double")


def test_the_demo_pipeline() -> None:
    stack = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:19092", "HUDI_INGEST_TABLES": "/home/tables"}
    found = load_pipeline(REPOSITORY / "pipelines" / "orders.yaml", stack)
    assert found.name == "orders"
    assert found.source.bootstrap_servers == "127.0.0.1:19092"
    assert found.source.topics == ("orders",)
    assert found.table.base_path == "/home/tables/orders"
    assert found.table.record == parse_ddl("id string, ts long, user string, amount double, note string, dt string")
    assert found.table.partition_by == ("dt",)
    assert found.transaction.interval_seconds == 10
    assert found.transaction.max_records == 200_000
    assert found.transaction.timeout_seconds == 300
    # While the stack is down, it is no other table of another user's broker.
    with pytest.raises(ConfigError) as refused:
        load_pipeline(REPOSITORY / "pipelines" / "orders.yaml", {})
    assert all("`hudi-ingest up` starts a stack that sets it" in problem for problem in refused.value.problems)
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    ("interval", "tick"),
    [(1, 1), (2.5, 1), (10, 1), (49.9, 4), (50, 5), (60, 5), (99.9, 5), (100, 10), (299, 25), (300, 30), (86_400, 30)],
)
def test_a_long_interval_needs_few_ticks_and_no_work_waits_for_long(interval: float, tick: int) -> None:
    assert Transaction(interval_seconds=interval).tick_seconds == tick
    elsewhere = {"KAFKA_BOOTSTRAP_SERVERS": "b1:9092,b2:9092", "HUDI_INGEST_TABLES": "file:///mnt/lake"}
    moved = load_pipeline(REPOSITORY / "pipelines" / "orders.yaml", elsewhere)
    assert moved.source.bootstrap_servers == "b1:9092,b2:9092"
    assert moved.table.base_path == "/mnt/lake/orders"


def test_a_pipeline_is_frozen_and_survives_pickle(write: Write) -> None:
    found = load(write)
    with pytest.raises(ValidationError):
        found.name = "other"
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.table.record == found.table.record


def test_group_id_may_be_chosen(write: Write) -> None:
    assert load(write, source__group_id="lag-watchers").group_id == "lag-watchers"
    assert "source.group_id: must not be empty" in problem(write, source__group_id="")


def test_models_made_in_python_hide_their_input_too() -> None:
    with pytest.raises(ValidationError) as raised:
        Security.model_validate({"protocol": "SASL_SSL", "password": [SECRET]})
    assert SECRET not in str(raised.value)


# ---- Security


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_sasl(write: Write, protocol: str, mechanism: str) -> None:
    found = load(write, **with_security(protocol=protocol, sasl_mechanism=mechanism)).source.security
    assert found is not None
    assert (found.protocol, found.sasl_mechanism, found.username) == (protocol, mechanism, "u")


def test_ssl_needs_nothing_else(write: Write, tmp_path: Path) -> None:
    found = load(write, source__security={"protocol": "SSL", "ca_file": "certificates/ca.pem"}).source.security
    assert found is not None
    assert found.ca_file == tmp_path / "certificates" / "ca.pem"


def test_security_cross_checks(write: Write) -> None:
    assert problems(write, source__security={"protocol": "SASL_SSL"}) == [
        "source.security.sasl_mechanism: missing; protocol SASL_SSL needs sasl_mechanism, and the credentials for it"
    ]
    assert problems(write, source__security={"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}) == [
        f"source.security.{key}: missing; protocol SASL_SSL needs sasl_mechanism, username and password"
        for key in ("username", "password")
    ]
    assert problems(write, **with_security(protocol="SSL")) == [
        f"source.security.{key}: not used by protocol SSL; remove it, or set protocol to SASL_SSL"
        for key in ("sasl_mechanism", "username", "password")
    ]
    assert "ca_file: not used by protocol SASL_PLAINTEXT" in problem(
        write, **with_security(protocol="SASL_PLAINTEXT", ca_file="ca.pem")
    )
    assert problem(write, source__security={"protocol": "PLAINTEXT"}).endswith(
        "allowed: SSL, SASL_SSL or SASL_PLAINTEXT"
    )
    for key in ("certificate_file", "key_file"):
        alone = problem(write, source__security={"protocol": "SSL", key: "c.pem"})
        assert "is missing; a client's certificate needs certificate_file and key_file" in alone
    both = {"certificate_file": "c.pem", "key_file": "c.key"}
    assert [each.split(": ")[0] for each in problems(write, **with_security(protocol="SASL_PLAINTEXT", **both))] == [
        "source.security.certificate_file",
        "source.security.key_file",
    ]
    assert load(write, **with_security(**both)).source.security is not None
    assert "source.security.username: must not be empty" in problem(write, **with_security(username=""))
    assert "source.security.password:" in problem(write, **with_security(password=""))


# ---- Names cannot become paths or statements


@pytest.mark.parametrize(
    "text",
    [
        "../up",
        "a/b",
        "..",
        "orders\n",
        "or'ders",
        'or"ders',
        "orders; drop table transactions",
        "a b",
        "ö",
        "",
        "a%2Fb",
    ],
)
def test_names_are_plain_words(write: Write, text: str) -> None:
    """A name is part of file names, of keys in the commit's metadata and of Dagster's names."""
    assert problem(write, name=text).startswith("name: not allowed; found ")
    assert "source.topics[0]: not a valid topic name" in problem(write, source__topics=[text])
    assert "table.partition_by[0]: found" in problem(write, table__partition_by=[text])


# ---- Source


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("localhost:9092", "localhost:9092"),
        (" a:1 , b-c.d_e:65535 ", "a:1,b-c.d_e:65535"),
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("[::1]:9092", "[::1]:9092"),
    ],
)
def test_bootstrap_servers(write: Write, given_: str, expected: str) -> None:
    assert load(write, source__bootstrap_servers=given_).source.bootstrap_servers == expected


@pytest.mark.parametrize(
    "given_", ["", "localhost", "a:0", "a:65536", "a:1,", "a:1 b:2", "kafka://a:1", ":9092", "::1:9092"]
)
def test_bootstrap_servers_that_are_refused(write: Write, given_: str) -> None:
    found = problem(write, source__bootstrap_servers=given_)
    assert found.startswith("source.bootstrap_servers: not a broker's address; found ")
    assert "allowed: host:port" in found


def test_topics_that_are_refused(write: Write) -> None:
    found = problems(write, source__topics=["a b", ".", "..", "", "x" * 250, "ö"])
    assert [each.split(":")[0] for each in found] == [f"source.topics[{index}]" for index in range(6)]
    assert "source.topics[0]: not a valid topic name; found 'a b'; allowed: 1 to 249 of" in found[0]
    assert problem(write, source__topics=["a", "b", "a"]) == "source.topics[2]: found 'a' twice in the list; remove one"


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ({"orders": {0: 5, "1": "7"}}, {"orders": {0: 5, 1: 7}}),
        ({"timestamp": "2026-01-31T10:00:00Z"}, datetime(2026, 1, 31, 10, tzinfo=timezone.utc)),
        ({"timestamp": "2026-01-31 10:00+02:00"}, datetime(2026, 1, 31, 8, tzinfo=timezone.utc)),
        ({"timestamp": "2026-01-31T10:00:00.5-0230"}, datetime(2026, 1, 31, 12, 30, 0, 500_000, tzinfo=timezone.utc)),
    ],
)
def test_starting_offsets(write: Write, given_: object, expected: object) -> None:
    found = load(write, source__starting_offsets=given_).source.starting_offsets
    if isinstance(expected, datetime):
        assert isinstance(found, StartingTimestamp)
        assert found.timestamp == expected
    else:
        assert found == expected


def test_a_time_that_is_not_in_quotes(write: Write) -> None:
    text = RIGHT.replace("source:\n", "source:\n  starting_offsets: {timestamp: 2026-01-31T10:00:00Z}\n")
    assert load_pipeline(write(text), {}).source.starting_offsets == StartingTimestamp(
        timestamp=datetime(2026, 1, 31, 10, tzinfo=timezone.utc)
    )


def test_a_topic_called_timestamp_may_have_offsets(write: Write) -> None:
    found = load(write, source__topics=["timestamp"], source__starting_offsets={"timestamp": {0: 1}})
    assert found.source.starting_offsets == {"timestamp": {0: 1}}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("newest", "source.starting_offsets: found 'newest'; allowed: earliest, latest, {timestamp:"),
        (5, "source.starting_offsets: found 5; allowed: earliest"),
        (["latest"], "source.starting_offsets: found a list; allowed"),
        ({}, "source.starting_offsets: found an empty mapping"),
        ({"payments": {0: 1}}, "source.starting_offsets.payments: not a topic of source.topics; allowed: orders"),
        ({"order": {0: 1}}, "did you mean orders?"),
        ({"orders": 5}, "source.starting_offsets.orders: found 5; allowed: {partition: offset}, like {0: 120}"),
        ({"orders": {}}, "source.starting_offsets.orders: found a mapping; allowed"),
        ({7: {0: 1}}, "source.starting_offsets.7: not a topic of source.topics"),
        (
            {"orders": {"x": 1}},
            "source.starting_offsets.orders.x: a partition must be a whole number of at least 0; found 'x'",
        ),
        ({"orders": {-1: 1}}, "source.starting_offsets.orders.-1: a partition must be a whole number"),
        ({"orders": {2**31: 1}}, "a partition must be a whole number"),
        (
            {"orders": {0: -1}},
            "source.starting_offsets.orders.0: an offset must be a whole number of at least 0; found -1",
        ),
        (
            {"orders": {0: True}},
            "source.starting_offsets.orders.0: an offset must be a whole number of at least 0; found the boolean",
        ),
        ({"orders": {0: 2**63}}, "an offset must be a whole number"),
        ({"orders": {0: 1, "0": 2}}, "source.starting_offsets.orders.0: duplicate key"),
        ({"orders": {0: 1, "00": 2}}, "source.starting_offsets.orders.00: partition 0 is listed twice"),
        (
            {"timestamp": "2026-01-31T10:00:00"},
            "source.starting_offsets.timestamp: a time without a zone; found '2026-01-31T",
        ),
        (
            {"timestamp": "yesterday"},
            "source.starting_offsets.timestamp: not a time; found 'yesterday'; allowed: ISO 8601",
        ),
        ({"timestamp": "2026-02-31T10:00:00Z"}, "source.starting_offsets.timestamp: not a time"),
        ({"timestamp": 1700000000}, "source.starting_offsets.timestamp: not a time; found 1700000000"),
        ({"timestamp": "1700000000"}, "source.starting_offsets.timestamp: not a time; found '1700000000'"),
        ({"timestamp": "2026-01-31T10:00:00Z", "orders": {0: 1}}, "`timestamp` must be the only key"),
    ],
)
def test_starting_offsets_that_are_refused(write: Write, given_: object, expected: str) -> None:
    assert expected in problem(write, source__starting_offsets=given_)


# ---- Table


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("/data/orders", "/data/orders"),
        ("/data/orders/", "/data/orders"),
        ("//data///orders//", "/data/orders"),
        ("file:///data/orders/", "/data/orders"),
        ("FILE:///data", "/data"),
        ("/data/with space", "/data/with space"),
        ("s3a://lake/shop/orders", "s3a://lake/shop/orders"),
        ("s3://lake//shop/orders/", "s3a://lake/shop/orders"),
    ],
)
def test_base_path(write: Write, given_: str, expected: str) -> None:
    assert load(write, table__base_path=given_).table.base_path == expected


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (
            "data/orders",
            "not an absolute path; found 'data/orders'; allowed: an absolute path like /data/orders or file:///",
        ),
        ("", "not an absolute path"),
        ("~/orders", "not an absolute path"),
        ("file:/data", "not an absolute path"),
        ("file://data/orders", "begins with three slashes"),
        *[
            (f"{scheme}://c@a.example/x", f"found {scheme}://; {why}")
            for scheme, why in {
                "s3n": "Hadoop has removed it; write s3a://",
                "gs": "tables on Google Cloud Storage have not been tried",
                "abfs": "tables on Azure storage have not been tried",
                "abfss": "tables on Azure storage have not been tried",
                "wasb": "tables on Azure storage have not been tried",
                "hdfs": "tables on HDFS have not been tried",
                "viewfs": "it is not a store that hudi-ingest knows",
            }.items()
        ],
        ("key@x://y", "found a store's address; it is not a store that hudi-ingest knows"),
        ("s3a://lake", "names no folder in the bucket"),
        ("s3a://key:secret@lake/orders", "must not contain a login"),
        ("s3a://Lake/orders", "not a bucket's name; found 'Lake'"),
        ("s3a://lake/a/../b", "contains a . or .. folder"),
        ("s3a://lake/a*", "treat as a pattern"),
        ("/", "names no folder"),
        ("file:///", "names no folder"),
        ("/data/../orders", "contains a . or .. folder"),
        ("/data/{a,b}", "treat as a pattern; found '/data/{a,b}'; allowed: a path without * ? { } [ ]"),
    ],
)
def test_base_path_that_is_refused(write: Write, given_: str, expected: str) -> None:
    found = problem(write, table__base_path=given_)
    assert found.startswith("table.base_path: ")
    assert expected in found


def test_schema_problems_are_at_table_schema(write: Write) -> None:
    assert problems(write, table__schema="id byte, _kafka_x int, a int, A int") == [
        "table.schema: column id: found type byte: Hudi would store it as int; use `int`",
        "table.schema: column _kafka_x: names beginning with _hoodie_ or _kafka_ belong to Hudi and hudi-ingest; rename it",
        "table.schema: column A: differs from a only in case; Spark cannot distinguish such names, so rename or remove one",
    ]


AVSC = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}, {"name": "dt", "type": ["null", "int"]}]}'


def test_schema_file_is_beside_the_pipeline_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(AVSC, "orders.avsc")
    monkeypatch.chdir("/")
    found = load(write, table__schema=None, table__schema_file="orders.avsc", table__partition_by=["dt"])
    assert found.table.record == parse_ddl("id string NOT NULL, dt int")
    assert found.table.schema_file == tmp_path / "orders.avsc"
    write("{}", "orders.avsc")
    assert found.table.record.names == ["id", "dt"], "a loaded pipeline does not follow its schema file"
    absolute = load_pipeline_with_schema(write, write(AVSC, "other.avsc"))
    assert absolute.table.schema_file == tmp_path / "other.avsc"


def load_pipeline_with_schema(write: Write, schema_file: Path) -> Pipeline:
    return load(write, table__schema=None, table__schema_file=str(schema_file))


def test_schema_file_problems(write: Write) -> None:
    neither = problem(write, table__schema=None)
    assert neither.startswith("table.schema_file: neither it nor `schema` is set; add `schema` (Spark DDL)")
    assert problem(write, table__schema_file="a.avsc") == "table.schema_file: `schema` is set too; keep one of the two"
    only = {"table__schema": None}
    gone = problem(write, **only, table__schema_file="gone.avsc")
    assert gone.startswith("table.schema_file: cannot be read: No such file or directory; found path /")
    assert "allowed: a path that ends in .avsc" in problem(write, **only, table__schema_file="a.json")
    write('{"type": "record"', "bad.avsc")
    assert problem(write, **only, table__schema_file="bad.avsc").startswith("table.schema_file: is not JSON at line 1")
    write('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}', "null.avsc")
    assert problem(write, **only, table__schema_file="null.avsc").startswith(
        "table.schema_file: column a: found type 'null'"
    )


@pytest.mark.parametrize("kind", ["string", "boolean", "int", "long", "date", "varchar(3)"])
def test_partition_columns(write: Write, kind: str) -> None:
    found = load(write, table__schema=f"a int, p {kind}", table__partition_by=["p", "a"])
    assert found.table.partition_by == ("p", "a")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["day"], "table.partition_by[0]: found 'day'; allowed: a column of the schema (id, dt, n, amount)"),
        (
            ["n", "Dt"],
            "table.partition_by[1]: found 'Dt'; allowed: a column of the schema (id, dt, n, amount); did you mean dt?",
        ),
        (["_kafka_partition"], "table.partition_by[0]: found '_kafka_partition'; allowed: a column of the schema"),
        (
            ["amount"],
            "table.partition_by[0]: column amount has type double; allowed: string, boolean, int, long or date",
        ),
        (["dt", "dt"], "table.partition_by[1]: found 'dt' twice in the list; remove one"),
        ("dt", "table.partition_by: must be a list; found 'dt'; allowed: a list of columns, and of times"),
    ],
)
def test_partition_columns_that_are_refused(write: Write, columns: object, expected: str) -> None:
    assert expected in problem(write, table__partition_by=columns)


REGISTRY: dict[str, Any] = {"source__schema_registry": {"url": "http://localhost:8081"}}
AVRO: dict[str, Any] = {"source__format": "avro", **REGISTRY}


@pytest.mark.parametrize(
    "changes",
    [
        {"table__schema": "infer"},
        {"table__schema": "infer", "transforms": [{"drop": ["x"]}], "table__partition_by": ["day(ts)"]},
        {"table__schema": None, **AVRO},
        {"table__schema": None, **REGISTRY, "source__format": "json_schema"},
        {"table__schema": None, **REGISTRY, "source__format": "protobuf"},
    ],
)
def test_columns_that_a_transaction_finds(write: Write, changes: dict[str, Any]) -> None:
    found = load(write, **changes)
    assert not found.table.declares_schema
    resolved = found.with_record(parse_ddl("x int, ts timestamp"))
    assert resolved.table.record == resolved.chain.record == parse_ddl("x int, ts timestamp")
    assert resolved.table_schema.columns.names[: len(resolved.chain.output)] == resolved.chain.output.names
    with pytest.raises(AssertionError, match="not declared"):
        _ = found.chain
    if found.transforms:
        with pytest.raises(ProblemsFromTop, match="no field is called"):
            found.with_record(parse_ddl("id string, ts timestamp"))


def test_columns_that_cannot_be_found(write: Write) -> None:
    assert problem(write, table__schema="infer", **AVRO) == (
        "table.schema: `infer` works with JSON records only, and source.format is avro; declare the columns"
    )
    files: dict[str, Any] = {"source__avro": {"wire_format": "datum", "schema_files": ["orders.avsc"]}}
    write(AVSC, "orders.avsc")
    descriptors: dict[str, Any] = {"source__protobuf": {"descriptor_file": "orders.pb", "message": "shop.Order"}}
    for changes in ({"source__format": "avro", **files}, {"source__format": "protobuf", **descriptors}):
        assert problem(write, table__schema=None, **changes) == (
            "table.schema_file: neither it nor `schema` is set; add `schema` (Spark DDL) or `schema_file` (.avsc)"
        )


@pytest.mark.parametrize(
    ("ops", "count", "most", "parallel"),
    [
        ("auto", FAN_OUT_FROM - 1, 8, False),
        ("auto", FAN_OUT_FROM, 8, True),
        ("one", FAN_OUT_FROM - 1, 1, False),
        ("one", FAN_OUT_FROM, 8, True),
        ("parallel", 1, 8, True),
    ],
)
def test_r3_one_op_writes_a_small_transaction_only_if_asked(ops: Any, count: int, most: int, parallel: bool) -> None:
    found = Transaction(ops=ops)
    assert (found.write_ops(count), found.fans_out(count)) == (most, parallel)
