from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.folder import load_folder
from hudi_ingest_tests.support.pipeline_files import (
    RIGHT,
    SECRET,
    Write,
    document,
    load,
    problem,
    problems,
    with_security,
)

pytestmark = pytest.mark.fast


# ---- YAML itself


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="file not found") as raised:
        load_pipeline(tmp_path / "none.yaml", {})
    assert raised.value.where == str(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_pipeline(tmp_path, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty; begin with"),
        ("# nothing\n", "the file is empty"),
        ("~", "the file is empty"),
        ("- a\n- b\n", "the file must hold keys (name, source, table …); found a list"),
        ("just words", "the file must hold keys (name, source, table …); found text"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2: not YAML"),
        ("a:\n  b: 1\n   c: 2\n", "line 3, column 5: not YAML: mapping values are not allowed here"),
        ("a:\n- b\n d: 1\n", "begin the keys of one mapping in the same column"),
        ("a: [b]\n  c: 1\n", "keys of one mapping begin in the same column"),
        ("a: {b: c\nd: e\n", "close the bracket above, and put a text with `: ` or `, ` in quotes"),
        ("a: b: c\n", "line 1, column 5: not YAML: mapping values are not allowed here"),
        (
            "a:\n\tb: 1\n",
            "line 2, column 1: not YAML: found character '\\t' that cannot start any token; indent with spaces",
        ),
        ("a: [${X}]\n", 'inside [ ] and { } put "${NAME}" in quotes'),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: not YAML: but found another document"),
        ("a: \x07\n", "line 1: character U+0007 is not allowed in YAML"),
    ],
)
def test_files_that_are_not_a_pipeline(write: Write, text: str, expected: str) -> None:
    assert expected in problem(write, text)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("name: é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 7\)"):
        load_pipeline(path, {})
    path.write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(document()).encode())
    assert load_pipeline(path, {}).name == "orders"


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("name: other\n", "name: duplicate key, in line 1 and in line 9; keep one"),
        (
            "transaction: {retries: 1, retries: 2}\n",
            "transaction.retries: duplicate key, in line 9 and in line 9",
        ),
        ("transaction: &x {retries: 1}\non_bad_record: *x\n", "on_bad_record: anchors and aliases"),
        ("transaction: !mine {retries: 1}\n", "transaction: YAML tags (!…) are not supported"),
        ("transaction: {<<: {retries: 1}}\n", "transaction.<<: unknown key in line 9"),
        ("transaction: {on: 1}\n", "transaction.on: unknown key in line 9"),
        ("transaction: {[a]: 1}\n", "transaction: line 9: a key must be plain text"),
        ("transaction: {retries: !!int x}\n", "transaction.retries: not a value that YAML can read"),
        ("transaction: {retries: !!binary eA==}\n", "transaction.retries: YAML tags"),
        ("transaction: {5: 1}\n", "transaction.5: unknown key"),
        ("5: 1\n", "5: unknown key in line 9; allowed: name, enabled, source, table"),
        ("transaction:\n", "transaction: must be a mapping of keys; found nothing; allowed: a mapping with the keys"),
        ("transaction: 3\n", "transaction: must be a mapping of keys; found a number"),
        ("transaction: fast\n", "transaction: must be a mapping of keys; found text"),
    ],
)
def test_yaml_that_is_refused(write: Write, added: str, expected: str) -> None:
    assert expected in problem(write, RIGHT + added)


def test_a_self_containing_alias_does_not_hang(write: Write) -> None:
    assert any("anchors and aliases" in each for each in problems(write, "name: &a [*a]\n"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("no", "name: must be text; found no, which YAML reads as a boolean; put it in quotes; allowed: a letter"),
        ("On", "name: must be text; found On, which YAML reads as a boolean; put it in quotes"),
        ("2024", "name: must be text; found the number 2024; put it in quotes"),
        ("0x1F", "name: must be text; found the number 0x1F; put it in quotes"),
        ("1.50", "name: must be text; found the number 1.50; put it in quotes"),
        ("null", "name: must be text; found nothing"),
        ("[a]", "name: must be text; found a list"),
        ("2024-01-01", "name: not allowed; found '2024-01-01'; allowed: a letter, then up to 62 letters, digits and _"),
        ("or-ders", "name: not allowed; found 'or-ders'; allowed: a letter, then"),
        ("", "name: must be text; found nothing"),
        ("a" * 64, "name: not allowed; found 'aaa"),
    ],
)
def test_yaml_traps_in_text(write: Write, written: str, expected: str) -> None:
    assert expected in problem(write, RIGHT.replace("name: orders", f"name: {written}"))


def test_each_problem_has_the_line_of_its_key_or_of_the_one_above_it(write: Write) -> None:
    path = write(
        "name: a b\nsource:\n  topics: [a]\n  bootstrap_servers: ${S}\ntable: {base_path: /t,\n  schema: id strin}\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_pipeline(path, {})
    lines = {found.partition(":")[0]: found.rpartition(" (line ")[2] for found in raised.value.problems}
    assert lines == {"name": "1)", "source.bootstrap_servers": "4)", "table.schema": "6)"}
    path.write_text("name: a\nsource:\n  topics: [a]\ntable: {base_path: /t, schema: id string}\n")
    with pytest.raises(ConfigError, match=r"source.bootstrap_servers: missing.* \(line 2\)"):
        load_pipeline(path, {})


def test_numbers_and_booleans_in_lists_of_text(write: Write) -> None:
    text = RIGHT.replace("- orders", "- 2024\n  - yes\n  - orders")
    assert problems(write, text) == [
        "source.topics[0]: must be text; found the number 2024; put it in quotes; allowed: text",
        "source.topics[1]: must be text; found yes, which YAML reads as a boolean; put it in quotes; allowed: text",
    ]


# ---- Translation of what is wrong


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": None}, "name: missing; allowed: a letter, then up to 62 letters, digits and _"),
        (
            {"source__topics": None},
            "source.topics: missing; list the topics, or set `topics_pattern`",
        ),
        ({"table": None}, "table: missing; allowed: a mapping with the keys base_path, schema"),
        (
            {"source__fromat": "json"},
            "source.fromat: unknown key in line 4; allowed: bootstrap_servers, topics, topics_pattern, format",
        ),
        ({"source__fromat": "json"}, "did you mean format?"),
        ({"table__schema_": "id int"}, "table.schema_: unknown key"),
        ({"transaction__zzz": 1}, "transaction.zzz: unknown key"),
        (
            {"source__format": "avr"},
            "source.format: found 'avr'; allowed: json, avro, json_schema, protobuf, csv, string, bytes, or",
        ),
        (
            {"source__format": "avro"},
            "source.schema_registry: missing; format avro in Confluent's wire format needs it, or set avro.wire_format",
        ),
        (
            {"source__format": "protobuf"},
            "source.schema_registry: missing; format protobuf in Confluent's wire format needs",
        ),
        ({"source__csv": {"delimiter": "::"}}, "source.csv: delimiter must be one ASCII character"),
        (
            {"on_bad_record": "ignore"},
            "on_bad_record: not one of the allowed values; found 'ignore'; allowed: fail, skip or dead_letter",
        ),
        (
            {"table__compression": "lz4"},
            "table.compression: not one of the allowed values; found 'lz4'; allowed: zstd, snappy or gzip",
        ),
        (
            {"source__topics": "orders"},
            "source.topics: must be a list; found 'orders'; allowed: a list of Kafka topic names",
        ),
        ({"source__topics": []}, "source.topics: found an empty list; allowed: at least one topic"),
        (
            {"source__bootstrap_servers": ["a:1"]},
            "source.bootstrap_servers: must be text; found a list; allowed: host:port",
        ),
        ({"table__lock": {}}, "table.lock.zookeeper: missing; allowed: host:port, or several separated by commas"),
        ({"table__lock": {"zookeeper": "zk1"}}, "table.lock.zookeeper: not a ZooKeeper server's address; found 'zk1'"),
        (
            {"table__lock": {"zookeeper": "zk1:1", "path": "locks"}},
            "table.lock.path: not a ZooKeeper path; found 'locks'",
        ),
        ({"table__lock": {"zookeeper": "zk1:1", "path": "/a/../b"}}, "table.lock.path: not a ZooKeeper path"),
        ({"table__lock": {"zookeeper": "a:1", "filesystem": "/x"}}, "table.lock.filesystem: unknown key"),
        (
            {"transaction__interval_seconds": 0.9},
            "transaction.interval_seconds: too small; found 0.9; allowed: a number from 1 to 31536000",
        ),
        ({"transaction__interval_seconds": float("inf")}, "must be a finite number; found inf"),
        (
            {"transaction__interval_seconds": True},
            "must be a number; found true, which YAML reads as a boolean; allowed",
        ),
        (
            {"transaction__interval_seconds": "often"},
            "must be a number; found 'often'; allowed: a number from 1 to 31536000",
        ),
        ({"transaction__interval_seconds": [1]}, "must be a number; found a list"),
        (
            {"transaction__retries": True},
            "transaction.retries: must be a number; found true, which YAML reads as a boolean",
        ),
        (
            {"transaction__retries": -1},
            "transaction.retries: too small; found -1; allowed: a whole number from 0 to 100",
        ),
        ({"transaction__retries": 1.5}, "transaction.retries: must be a whole number; found 1.5"),
        ({"transaction__retries": "two"}, "transaction.retries: must be a whole number; found 'two'"),
        ({"transaction__max_records": 0}, "transaction.max_records: too small; found 0"),
        (
            {"transaction__max_bytes": 0},
            "transaction.max_bytes: too small; found 0; allowed: a whole number of at least 1",
        ),
        (
            {"transaction__min_records": 6_000_000},
            "transaction.max_records: found 5000000; allowed: at least min_records",
        ),
        ({"transaction__timeout_seconds": 9}, "allowed: a whole number from 10 to 31536000"),
        ({"transaction__retries": -1}, "transaction.retries: too small"),
        ({"source__request_timeout_seconds": 0}, "too small; found 0; allowed: a number above 0"),
        ({"table__target_file_bytes": 1000}, "allowed: a whole number of at least 1048576"),
        ({"table__kafka_columns": ["offset"]}, "table.kafka_columns[0]: not one of the allowed values; found 'offset'"),
        ({"table__kafka_columns": ["topic", "topic"]}, "table.kafka_columns: found one entry twice"),
    ],
)
def test_sentences(write: Write, changes: dict[str, Any], expected: str) -> None:
    assert expected in problem(write, **changes)


def test_all_problems_of_a_file_at_once(write: Write) -> None:
    found = problems(
        write,
        """
        name: no
        source:
          bootstrap_servers: ${KAFKA_BOOTSTRAP_SERVERS}
          topics: [orders, "a b", orders2]
          starting_offsets: {payments: {0: 1}}
        table:
          base_path: data/orders
          schema: id string, x byte
          partition_by: [dt]
          target_file_bytes: 1
        transaction: {intervall_seconds: 3, retries: -1}
        """,
    )
    assert [each.split(": ")[0] for each in found] == [
        "source.bootstrap_servers",
        "name",
        "source.topics[1]",
        "table.base_path",
        "table.schema",
        "table.target_file_bytes",
        "transaction.retries",
        "transaction.intervall_seconds",
    ]
    assert found[-1].endswith("did you mean interval_seconds?")


def test_problems_of_one_model_do_not_hide_its_cross_checks(write: Write) -> None:
    found = problems(write, table__partition_by=["nope"], table__target_file_bytes=1, table__base_path="x")
    assert [each.split(": ")[0] for each in found] == [
        "table.base_path",
        "table.partition_by[0]",
        "table.target_file_bytes",
    ]


# ---- Environment


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\nsource: " + "[" * 2000, "line 2, column 59"),
        ("{a: " * 2000, "line 1, column 202"),
        ("\n".join(" " * level + "a:" for level in range(400)), "line 51, column 51"),
        ("- " * 2000, "line 1, column 103"),
    ],
    ids=["lists", "mappings", "blocks", "items"],
)
def test_a_file_nested_too_deep_is_told_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_pipeline(file, {})
    for text, *_ in (raised.value.problems, load_folder(tmp_path, {}).broken[0].problems):
        assert text.endswith(f"{place}: nested deeper than 50 levels, which no setting is; look for unclosed brackets")


def test_substitution(write: Write) -> None:
    found = load(
        write,
        {"HOST": "b1", "EMPTY": "", "TOPIC": "orders"},
        name="${NAME:-orders}",
        source__bootstrap_servers="${HOST}:${PORT:-9092},${EMPTY:-b2}:9093",
        source__topics=["${TOPIC}"],
        source__group_id="$${x}-$HOME-${EMPTY}-${A:-}",
        transaction__max_records="${MAX:-1000}",
        transaction__interval_seconds="${I:-7.5}",
    )
    assert found.name == "orders"
    assert found.source.bootstrap_servers == "b1:9092,b2:9093"
    assert found.source.topics == ("orders",)
    assert found.group_id == "${x}-$HOME--"
    assert found.transaction.max_records == 1000
    assert found.transaction.interval_seconds == 7.5


def test_substituted_values_are_not_substituted_again(write: Write) -> None:
    assert load(write, {"A": "${B}", "B": "no"}, source__group_id="${A}").group_id == "${B}"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_value_may_come_from_a_file(write: Write, tmp_path: Path, ending: str) -> None:
    """As Docker and Kubernetes hand out secrets; what is in the file is not substituted again."""
    secret = f" {SECRET}${{B}} \n"
    (tmp_path / "secret").write_bytes(f"{secret}{ending}".encode())
    for written in ("${file:secret}", f"${{file:{tmp_path}/secret}}"):
        found = load(write, **with_security(password=written)).source.security
        assert found is not None and found.password is not None
        assert found.password.get_secret_value() == (secret if ending else secret.removesuffix("\n"))


@pytest.mark.parametrize("written", ["x_${file:secret}", "x_${LAKE_PASSWORD}"])
@pytest.mark.parametrize(
    ("key", "place", "wrap"),
    [
        ("name", "name", str),
        ("source__topics", "source.topics[0]", lambda text: [text]),
        ("table__base_path", "table.base_path", "/data/{}".format),
    ],
)
def test_what_everybody_sees_takes_no_secret(
    write: Write, tmp_path: Path, written: str, key: str, place: str, wrap: Callable[[str], Any]
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    told = problem(write, environment={"LAKE_PASSWORD": SECRET}, **{key: wrap(written)})
    assert f"{place}: takes no secret" in told
    assert SECRET not in told


def test_a_variable_called_file_is_still_one(write: Write) -> None:
    assert load(write, {"file": "a"}, source__group_id="${file}-${file:-b}").group_id == "a-a"
    assert load(write, source__group_id="${file:-b}").group_id == "b"


def test_a_file_that_is_no_text_is_not_shown(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff" + SECRET.encode())
    told = problem(write, **with_security(password="${file:secret}"))
    assert told == (
        f"source.security.password: file {tmp_path}/secret cannot be read: is not UTF-8 text; make it readable for this "
        "user, or correct the path"
    )


def test_the_process_environment_is_the_default(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUDI_INGEST_TEST_GROUP", "mine")
    path = write(yaml.safe_dump(document(source__group_id="${HUDI_INGEST_TEST_GROUP}")))
    assert load_pipeline(path).group_id == "mine"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"source__bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}"},
            "source.bootstrap_servers: environment variable KAFKA_BOOTSTRAP_SERVERS is not set; set it or write "
            "${KAFKA_BOOTSTRAP_SERVERS:-default}",
        ),
        ({"source__topics": ["a", "${T}"]}, "source.topics[1]: environment variable T is not set"),
        ({"transaction__max_records": "${N}"}, "transaction.max_records: environment variable N is not set"),
        ({"table__schema": "${S}"}, "table.schema: environment variable S is not set"),
        (
            {"source__starting_offsets": {"orders": {0: "${O}"}}},
            "source.starting_offsets.orders.0: environment variable O",
        ),
        ({"name": "${a-b}"}, "name: `${` does not start ${NAME}, ${NAME:-default} or ${file:PATH}; complete it"),
        ({"name": "${"}, "name: `${` does not start"),
        ({"name": "${file:}"}, "name: `${` does not start"),
        ({"name": "${file:/nowhere/x}"}, "name: file /nowhere/x cannot be read: No such file or directory; make it"),
        ({"name": "${file:/}"}, "name: file / cannot be read: Is a directory"),
    ],
)
def test_substitution_problems_come_alone(write: Write, changes: dict[str, Any], expected: str) -> None:
    assert problem(write, **changes).startswith(expected)


# ---- Secrets


def test_a_pipeline_never_shows_its_password(write: Write) -> None:
    found = load(write, {"PASSWORD": SECRET}, **with_security(password="${PASSWORD}"))
    assert found.source.security is not None and found.source.security.password is not None
    assert found.source.security.password.get_secret_value() == SECRET
    for shown in (
        repr(found),
        str(found),
        found.model_dump_json(),
        str(found.model_dump()),
        str(found.model_dump(mode="json")),
    ):
        assert SECRET not in shown
        assert "****" in shown


@pytest.mark.parametrize(
    "changes",
    [
        with_security(password=[SECRET]),
        with_security(password={SECRET: SECRET}),
        with_security(password={"password": SECRET}),
        with_security(password="", username=1),
        with_security(protocol="SSL"),
        with_security(protocol="TLS"),
        with_security(sasl_mechanism=None),
        with_security(pasword=SECRET),
        with_security(**{SECRET: 1}),
        with_security(**{SECRET: {SECRET: SECRET}}),
        with_security(secret={"password": SECRET}),
        with_security(ca_file=[SECRET]),
        {"source__security": SECRET},
        {"source__security": [SECRET]},
        {"source__password": SECRET},
        {"password": SECRET},
        {"source": SECRET},
        {"table__base_path": f"s3a://key:{SECRET}@bucket/orders"},
        {"table__base_path": f"file://key:{SECRET}@host/orders"},
        {"source__bootstrap_servers": f"SASL_SSL://u:{SECRET}@b1:9092,b2"},
        with_security(password="${PASSWORD}", name="x"),
        with_security(password="${PASSWORD}${"),
        with_security(password="${NOT_SET:-" + SECRET + "} ${NOT_SET}"),
        with_security(protocol=SECRET),
        {**with_security(password=SECRET), "source__format": SECRET},
        {**with_security(password=SECRET), "source__envelope": SECRET},
        {**with_security(password=SECRET), "source__bootstrap_servers": f"b1:9092,{SECRET} x"},
        {**with_security(password="${PASSWORD}"), "transaction__max_records": "${PASSWORD}"},
        {"source__bootstrap_servers": "${file:secret} x"},
        {"transaction__max_records": f"https://u:{SECRET}@host/path"},
        {"transaction__max_records": f"https://u:{SECRET}/{SECRET}@host"},
        {"transaction__max_records": f"https://u:p@{SECRET}@host/path"},
        {"transaction__max_records": f"https://u:{SECRET}{'x' * 60}@host/path"},
    ],
)
def test_no_problem_shows_a_secret(write: Write, changes: dict[str, Any]) -> None:
    path = write(yaml.safe_dump(document(**changes)))
    (path.parent / "secret").write_text(SECRET)
    with pytest.raises(ConfigError) as raised:
        load_pipeline(path, {"PASSWORD": SECRET})
    _no_secret_in(raised.value)


@pytest.mark.parametrize(
    "lines",
    [
        f"password: 'a' {SECRET}",
        f"password: *{SECRET.split('-')[0]}",
        f"password: &{SECRET.split('-')[0]} x\n    username: &{SECRET.split('-')[0]} x",
        f"password: !{SECRET} x",
        f"password: !{SECRET.split('-')[0]}!x y",
        f"password: [{SECRET}",
        f"password: {{{SECRET}: {SECRET}}}",
        f"password {SECRET}",
        f"{SECRET}: x\n    {SECRET}: y",
        f"? [{SECRET}]\n    : x",
        f"<<: {SECRET}",
        'password: "\\q' + SECRET + '"',
        f"password: {SECRET}\n    password: {SECRET}",
    ],
)
def test_no_syntax_problem_shows_a_secret(write: Write, lines: str) -> None:
    text = RIGHT.replace("source:\n", f"source:\n  security:\n    {lines}\n")
    with pytest.raises(ConfigError) as raised:
        load_pipeline(write(text), {})
    for part in (SECRET, SECRET.split("-")[0]):
        _no_secret_in(raised.value, part)


def test_a_number_as_password_is_not_shown(write: Write) -> None:
    found = problem(write, **with_security(password=918273))
    assert found == "source.security.password: must be text; found ****; allowed: text"
    assert "YAML" not in problem(write, **with_security(password=True))


def test_masking_leaves_messages_useful(write: Write) -> None:
    named_like_words = with_security(password="password", protocol="SASL-SSL")
    assert problem(write, **named_like_words).startswith(
        "source.security.protocol: not one of the allowed values; found 'SASL-SSL'; allowed: SSL, SASL_SSL"
    )
    changes = {**with_security(password="short"), "transaction__max_records": "a short one"}
    assert "found 'a short one'" in problem(write, **changes)
    assert "found 'http://host:80/a'" in problem(write, transaction__max_records="http://host:80/a")


def _no_secret_in(error: ConfigError, secret: str = SECRET) -> None:
    shown = "".join(traceback.format_exception(error, chain=True))
    assert secret not in shown
    assert secret not in repr(error)
    assert error.__cause__ is None
    assert error.__context__ is None, "logs that follow the context would find pydantic's input values"


# ---- Any file at all


def load_any(folder: Path, content: bytes) -> None:
    path = folder / "any.yaml"
    path.write_bytes(content)
    try:
        load_pipeline(path, {"X": "x"})
    except ConfigError as error:
        assert error.problems
        assert all(each.strip() for each in error.problems)


any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_file
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_a_pipeline_or_a_config_error(tmp_path: Path, content: bytes) -> None:
    load_any(tmp_path, content)


pieces = st.sampled_from(
    [
        "name",
        "source",
        "table",
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a ",
        "*a",
        "!!int ",
        "!x ",
        "'",
        '"',
        "|",
        ">",
        "? ",
        "<<",
        "yes",
        "0b_",
        "0x",
        "1e400",
        "1:99",
        ".inf",
        "=",
        "~",
        "#",
        "---",
        "...",
        "%TAG",
        "${X}",
        "${",
        "${Y:-z}",
        "$${",
        "2026-01-01",
        "\t",
        "\\",
        "é",
        "\u2028",
        "security",
        "password",
        "0" * 5000,
    ]
)


@any_file
@given(st.lists(pieces, max_size=30).map("".join))
def test_any_yaml_is_a_pipeline_or_a_config_error(tmp_path: Path, text: str) -> None:
    load_any(tmp_path, text.encode("utf-8"))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=12)
    | st.dates()
    | st.datetimes()
    | st.sampled_from(
        ["${X}", "earliest", "SSL", "SASL_SSL", "/data/x", "s3a://b/x", "id int", "a struct<", "a:1", "json"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=6) | st.integers(-2, 3) | st.booleans() | st.sampled_from(["timestamp", "orders"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
places = st.sampled_from(
    [
        "name",
        "source",
        "table",
        "transaction",
        "on_bad_record",
        "source__bootstrap_servers",
        "source__topics",
        "source__format",
        "source__starting_offsets",
        "source__group_id",
        "source__security",
        "source__security__protocol",
        "table__schema",
        "source__security__password",
        "source__security__ca_file",
        "source__request_timeout_seconds",
        "table__base_path",
        "table__schema_file",
        "table__partition_by",
        "table__kafka_columns",
        "table__target_file_bytes",
        "table__compression",
        "transaction__interval_seconds",
        "transaction__max_records",
        "transaction__max_bytes",
        "transaction__max_wait_seconds",
        "transaction__new",
        "table__name",
    ]
)


@any_file
@given(st.dictionaries(places, values, max_size=3))
def test_any_values_are_a_pipeline_or_a_config_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = document()
    for place, value in changes.items():
        *above, last = place.split("__")
        target: Any = data
        for key in above:
            target = target.setdefault(key, {}) if isinstance(target, dict) else {}
        if isinstance(target, dict):
            target[last] = value
    load_any(tmp_path, yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass"))


passwords = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=12, max_size=20).map("pw{}".format)


@any_file
@given(
    passwords,
    st.sampled_from(["password", "pasword", "protocol_", "x"]),
    st.sampled_from(["{}", "[{}]", "{{a: {}}}", "!{} x", "*{}", "&{}", "'{}", '"{}" x']),
)
def test_no_form_of_a_password_is_ever_shown(tmp_path: Path, password: str, key: str, form: str) -> None:
    path = tmp_path / "any.yaml"
    login = f"protocol: SASL_SSL\n    sasl_mechanism: PLAIN\n    {key}: {form.format(password)}"
    path.write_text(RIGHT.replace("source:\n", f"source:\n  security:\n    {login}\n"))
    with pytest.raises(ConfigError) as raised:
        load_pipeline(path, {})
    _no_secret_in(raised.value, password)
