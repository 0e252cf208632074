"""What a registry answers to ids that nobody has registered, and to schemas that cannot be used."""

from __future__ import annotations

import json
import pickle
import random
import time

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import IngestError, RegistryUnreachable, SchemaMissing
from hudi_ingest.kafka.registry import MOST_REFUSED, KnownSchemas, RegistryClient
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.avro.converter import AvroConverter, ConfluentWireFormat
from hudi_ingest.records.convert.converter import Converter
from hudi_ingest.records.convert.json.framed import JsonSchemaConverter
from hudi_ingest.records.convert.protobuf import schema as protobuf_schema
from hudi_ingest.records.convert.protobuf.converter import RegisteredMessages, RegisteredProtobufConverter
from hudi_ingest.records.convert.protobuf.schema import CompiledSchemas, compiled
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind
from hudi_ingest_tests.support.http_server import Dripping, QuietHandler
from hudi_ingest_tests.support.http_server import serving as http_serving
from hudi_ingest_tests.support.registry import canned_registry
from hudi_ingest_tests.support.silent_server import serving, silent_server

pytestmark = pytest.mark.fast

COLUMNS = pa.schema([pa.field("id", pa.string())])
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
PROTO = 'syntax = "proto3"; message Order { string id = 1; }'
SCHEMAS: dict[SchemaKind, str] = {"AVRO": AVRO, "JSON": '{"type": "object"}', "PROTOBUF": PROTO}
DATUMS: dict[SchemaKind, bytes] = {"AVRO": b"\x02a", "JSON": b'{"id":"a"}', "PROTOBUF": b"\x00\x0a\x01a"}
KINDS: list[SchemaKind] = ["AVRO", "JSON", "PROTOBUF"]


def converter(kind: SchemaKind, url: str) -> Converter:
    schemas = KnownSchemas(SchemaRegistry(url=url), {}, kind)
    if kind == "AVRO":
        return AvroConverter(COLUMNS, ConfluentWireFormat(schemas))
    if kind == "JSON":
        return JsonSchemaConverter(COLUMNS, schemas)
    return RegisteredProtobufConverter(COLUMNS, RegisteredMessages(CompiledSchemas(schemas), "Order"))


def record(kind: SchemaKind, schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + DATUMS[kind]


def registered(kind: SchemaKind, text: str, **more: object) -> dict[str, object]:
    return {"schema": text, "schemaType": kind, **more}


@pytest.mark.parametrize("kind", KINDS)
def test_p1_garbage_by_the_thousand_asks_for_a_hundred_ids_a_task_at_most(kind: SchemaKind) -> None:
    rng = random.Random(7)
    garbage = [rng.getrandbits(32) for _ in range(2000)]
    values = pa.array([record(kind, 7), *(record(kind, each) for each in garbage), record(kind, 7)], pa.binary())
    answers = {"/schemas/ids/7": registered(kind, SCHEMAS[kind])}
    with canned_registry(answers) as (url, asked):
        task = pickle.loads(pickle.dumps(converter(kind, url)))
        for _ in range(3):
            done = task.decode(values)
            assert done.rows.to_pylist() == [{"id": "a"}] * 2
            assert [each.index for each in done.rejected] == [*range(1, 2001)]
            assert all(str(garbage[each.index - 1]) in each.found for each in done.rejected)
            assert all(len(each.found) <= 80 for each in done.rejected)
        assert len(asked) == MOST_REFUSED + 1
        assert not any(int(path.rpartition("/")[2]) >= 2**31 for path in asked), "no registry has such ids"


@pytest.mark.parametrize("kind", KINDS)
def test_p1_an_id_that_is_registered_later_is_found_by_the_next_attempt(kind: SchemaKind) -> None:
    answers: dict[str, object] = {}
    values = pa.array([record(kind, 8)], pa.binary())
    with canned_registry(answers) as (url, _):
        sent = pickle.dumps(converter(kind, url))
        assert len(pickle.loads(sent).decode(values).rejected) == 1
        answers["/schemas/ids/8"] = registered(kind, SCHEMAS[kind])
        assert pickle.loads(sent).decode(values).rows.to_pylist() == [{"id": "a"}]


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_references_in_a_circle_make_bad_records_and_refuse_a_pipelines_own_schema(kind: SchemaKind) -> None:
    def refers(subject: str, to: str) -> dict[str, object]:
        references = [{"name": f"{to}.proto", "subject": to, "version": 1}]
        return {**registered(kind, SCHEMAS[kind], references=references), "subject": subject, "version": 1, "id": 9}

    answers: dict[str, object] = {
        "/schemas/ids/9": refers("t-value", "a"),
        "/subjects/t-value/versions/latest": refers("t-value", "a"),
        "/subjects/a/versions/1": refers("a", "b"),
        "/subjects/b/versions/1": refers("b", "a"),
    }
    with canned_registry(answers) as (url, asked):
        task = converter(kind, url)
        for _ in range(2):
            (bad,) = task.decode(pa.array([record(kind, 9)], pa.binary())).rejected
            assert bad.expected == "a schema that records can be read with"
            assert bad.found == "its references lead in a circle, to version 1 of a"
        assert len(asked) == 3, "the second batch knows it"
        with pytest.raises(
            SchemaMissing, match="cannot be used: its references lead in a circle, to version 1 of a"
        ) as raised:
            RegistryClient(SchemaRegistry(url=url), kind).latest("t-value")
        assert (raised.value.url, raised.value.subject) == (url, "t-value")


def test_a_long_chain_of_references_is_followed() -> None:
    def refers(number: int) -> dict[str, object]:
        more = [{"name": f"n{number + 1}", "subject": f"s{number + 1}", "version": 1}] if number < 900 else []
        return {**registered("AVRO", str(number), references=more), "subject": f"s{number}", "version": 1, "id": number}

    answers: dict[str, object] = {f"/subjects/s{number}/versions/1": refers(number) for number in range(901)}
    with canned_registry({**answers, "/schemas/ids/5": refers(0)}) as (url, _):
        found = RegistryClient(SchemaRegistry(url=url)).schema(5)
    assert found is not None and found.references == tuple(str(number) for number in range(900, 0, -1))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("x" * 300 + ".proto",), "cannot be an import path of a .proto file: File name too long"),
        (("a", "a/b"), "'a/b' cannot be an import path of a .proto file: "),
    ],
)
def test_import_paths_that_no_file_can_have_are_told(names: tuple[str, ...], told: str) -> None:
    texts = tuple(f'syntax = "proto3"; message M{number} {{}}' for number in range(len(names)))
    with pytest.raises(ValueError, match=told):
        compiled(RegisteredSchema(PROTO, texts, names))


def test_a_schema_that_keeps_protoc_busy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_schema, "SECONDS", 1)
    fields = "".join(f"message M{number} {{ M{number // 2} m = 1; string s = 2; }}" for number in range(400_000))
    with pytest.raises(ValueError, match="protoc needs more than 1 s of processor time for x"):
        protobuf_schema.compile_protos("x", {"x": f'syntax = "proto3"; {fields}'})


def test_a_registry_that_does_not_answer_is_given_up() -> None:
    with silent_server() as address:
        _gives_up(address, "no answer")


def test_a_registry_that_answers_byte_by_byte_is_given_up() -> None:
    Dripping.stopped.clear()
    with serving(Dripping) as address:
        _gives_up(address, "no answer within 5")
        Dripping.stopped.set()


def _gives_up(address: str, expected: str) -> None:
    client = RegistryClient(SchemaRegistry(url=f"http://{address}", timeout_seconds=0.5))
    began = time.monotonic()
    with pytest.raises(RegistryUnreachable, match=expected):
        client.latest("orders-value")
    assert time.monotonic() - began < 20


def test_a_registry_behind_a_token_is_told_its_logical_cluster() -> None:
    seen: list[tuple[str | None, str | None]] = []

    class Cloud(QuietHandler):
        def do_GET(self) -> None:
            seen.append((self.headers["Authorization"], self.headers["target-sr-cluster"]))
            self.answer(404, {"error_code": 40401, "message": "no such subject"})

    with http_serving(Cloud) as url, pytest.raises(IngestError):
        config = SchemaRegistry.model_validate({"url": url, "token": "t", "logical_cluster": "lsrc-1"})
        RegistryClient(config).latest("orders-value")
    assert set(seen) == {("Bearer t", "lsrc-1")}


@pytest.mark.parametrize(
    ("status", "answer", "shown"),
    [
        (500, b"SECRET of another server", False),
        (403, b'["SECRET"]', False),
        (422, b'{"message": "SECRET"}', False),
        (422, b'{"error_code": 42201, "message": "SECRET, in a registry\'s form"}', True),
    ],
)
def test_answers_of_other_servers_at_the_address_are_not_quoted(status: int, answer: bytes, shown: bool) -> None:
    class Other(QuietHandler):
        def do_GET(self) -> None:
            self.answer(status, answer)

    with http_serving(Other) as url, pytest.raises(IngestError, match=f"HTTP {status}") as raised:
        RegistryClient(SchemaRegistry(url=url)).latest("orders-value")
    assert ("SECRET" in str(raised.value)) == shown
    assert ("no registry's" in str(raised.value)) != shown
