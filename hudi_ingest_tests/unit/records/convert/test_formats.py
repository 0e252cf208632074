"""Formats by name, plain values, and JSON behind the wire format."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import RegistryUnreachable
from hudi_ingest.records.convert.converter import Converter, Decoded, Rejected
from hudi_ingest.records.convert.formats import converter_for, known_formats
from hudi_ingest.records.convert.json.framed import RegisteredSchemas
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest_tests.support.outcomes import outcomes, rows_of

pytestmark = pytest.mark.fast

IDS = pa.schema([pa.field("id", pa.int64(), False)])
TEXT = pa.schema([pa.field("value", pa.string(), False)])
BYTES = pa.schema([pa.field("value", pa.binary(), False)])

WIRE_FORMAT = (
    "Confluent's wire format: byte 0, then a schema id of 4 bytes; ids in headers need `schema_registry.schema_ids: headers`, "
    "and Confluent's names of headers (Apicurio's serializers have others: set apicurio.registry.headers.enabled to false)"
)


@dataclass(frozen=True)
class Registered:
    """A registry with these ids."""

    ids: Collection[int]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema("{}") if schema_id in self.ids else None


class Silent:
    """A registry that does not answer."""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        raise RegistryUnreachable("no answer")


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + payload


def test_text_is_verified_and_bytes_are_not() -> None:
    values = ["grüß".encode(), b"", b"a\0\n", b"\xffab", b"x" * 10_000_000]
    found = rows_of(outcomes(converter_for("string", TEXT), TEXT, values))
    assert found[:3] == [{"value": "grüß"}, {"value": ""}, {"value": "a\0\n"}]
    assert found[3] == ("value", "string in UTF-8", "bytes that are not UTF-8, at byte 0")
    found = rows_of(outcomes(converter_for("bytes", BYTES), BYTES, values))
    assert [row["value"] for row in found] == values


def test_plain_values_are_not_copied() -> None:
    values = pa.array([b"abc", b"de"], pa.binary())
    for format, schema in (("string", TEXT), ("bytes", BYTES)):
        column = converter_for(format, schema).decode(values).rows.column(0)
        assert column.buffers()[2].address == values.buffers()[2].address


@pytest.mark.parametrize(
    "schema", [pa.schema([("a", pa.bool_())]), pa.schema([("a", pa.string()), ("b", pa.string())]), pa.schema([])]
)
@pytest.mark.parametrize("format", ["string", "bytes"])
def test_a_plain_value_is_one_column(format: str, schema: pa.Schema) -> None:
    with pytest.raises(ValueError, match="the schema must be one column of type"):
        converter_for(format, schema)


def test_json_behind_the_wire_format() -> None:
    converter = pickle.loads(
        pickle.dumps(converter_for("json_schema", IDS, {"registered": RegisteredSchemas(Registered({7, 8}))}))
    )
    values = [
        framed(7, b'{"id":1}'),
        framed(9, b'{"id":2}'),
        b'{"id":3}',
        framed(8, b'{"id":"x"}'),
        b"",
        framed(8, b""),
        framed(8, b' {"id":4}'),
    ]
    assert rows_of(outcomes(converter, IDS, values)) == [
        {"id": 1},
        ("", "the id of a JSON schema in the schema registry", "schema id 9, which it does not have"),
        (
            "",
            WIRE_FORMAT,
            "first byte 0x7b; the producer may write no schema id, or write it into headers",
        ),
        ("id", "int (64 bit)", '"x"'),
        ("", WIRE_FORMAT, "an empty value"),
        ("", "a JSON object", "an empty value"),
        {"id": 4},
    ]
    assert outcomes(converter, IDS, values[:1]) and outcomes(converter, IDS, []) == []
    assert rows_of(outcomes(converter, IDS, values[1:3]))[0][2] == "schema id 9, which it does not have"


def test_a_registry_that_does_not_answer_makes_no_bad_record_of_json() -> None:
    converter = converter_for("json_schema", IDS, {"registered": RegisteredSchemas(Silent())})
    with pytest.raises(RegistryUnreachable):
        converter.decode(pa.array([framed(7, b"{}")], pa.binary()))
    assert (
        converter.decode(pa.array([b"{}"], pa.binary())).rejected[0].found
        == "first byte 0x7b; the producer may write no schema id, or write it into headers"
    )


@pytest.mark.parametrize("format", ["json", "json_schema"])
def test_deep_and_large_json(format: str) -> None:
    head = framed(7, b"") if format == "json_schema" else b""
    options = {"registered": RegisteredSchemas(Registered({7}))} if format == "json_schema" else {}
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.string()), pa.field("l", pa.list_(pa.int64()))])
    lists, objects = b"[" * 10_000 + b"]" * 10_000, b'{"l":' * 10_000 + b"1" + b"}" * 10_000
    values = [
        b'{"id":1,"ignored":' + lists + b"}",
        b'{"id":2,"ignored":' + objects + b"}",
        b'{"l":' + lists + b"}",
        objects,
        lists,
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b'{"id":3,"s":"' + b"x" * 10_000_000 + b'"}',
        b'{"id":' + b"9" * 1_000_000 + b"}",
        b'{"id":9223372036854775808}',
    ]
    found = rows_of(outcomes(converter_for(format, schema, options), schema, [head + value for value in values]))
    assert [each["id"] if isinstance(each, dict) else None for each in found] == [1, 2, *[None] * 5, 3, None, None]
    assert [each[0] for each in found if not isinstance(each, dict)] == ["l[0]", "l", "", "", "", "id", "id"]


@pytest.mark.parametrize(
    ("format", "options", "problem"),
    [
        ("jsn", {}, r"format 'jsn' is not known; known are: json, .*; did you mean json\?"),
        ("json", {"a": 1}, "format json has no options, found 'a'"),
        ("json_schema", {}, "format json_schema needs its only option, 'registered'; found none"),
        ("no_such_package.x:Y", {}, "importing no_such_package.x failed, ModuleNotFoundError"),
        ("json:detect_encodin", {}, r"json has no detect_encodin; did you mean detect_encoding\?"),
        ("json:__name__", {}, "__name__ is 'json'.*, not a converter"),
        ("json:", {}, "not an import path"),
        ("collections:OrderedDict", {}, "called with the schema and the options, TypeError: expected"),
    ],
)
def test_formats_that_cannot_be(format: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        converter_for(format, IDS, options)


class Upper:
    """A converter as another package may bring it; `options` choose what it does wrong."""

    def __init__(self, schema: pa.Schema, options: dict[str, Any]) -> None:
        self._schema, self._wrong = schema, options.get("wrong")

    def decode(self, values: pa.BinaryArray) -> Any:
        cells = [value.decode().upper() for value in values.to_pylist()]
        rows = pa.RecordBatch.from_arrays([pa.array(cells, pa.string())], schema=self._schema)
        wrong: dict[object, Any] = {
            None: Decoded(rows, None, ()),
            "type": rows,
            "schema": Decoded(rows.rename_columns(["other"]), None, ()),
            "null": Decoded(
                pa.RecordBatch.from_arrays([pa.nulls(len(values), pa.string())], schema=self._schema), None, ()
            ),
            "lost": Decoded(rows.slice(1), pa.array([*range(1, len(values))], pa.int64()), ()),
            "twice": Decoded(rows, None, (Rejected(0, "", "a", "b"),)),
            "count": Decoded(rows.slice(1), None, ()),
        }
        return wrong[self._wrong]


@pytest.mark.parametrize("wrong", ["type", "schema", "null", "lost", "twice", "count"])
def test_what_a_foreign_converter_returns_is_checked(wrong: str) -> None:
    converter = converter_for(f"{__name__}:Upper", TEXT, {"wrong": wrong})
    with pytest.raises(ValueError, match="this is a defect of the converter"):
        converter.decode(pa.array([b"a", b"b"], pa.binary()))


def test_an_object_without_decode_is_no_converter() -> None:
    with pytest.raises(ValueError, match="returned dict, which is not a converter"):
        converter_for(f"{__name__}:no_converter", TEXT)


def no_converter(schema: pa.Schema, options: dict[str, Any]) -> dict[str, Any]:
    return options


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that brings the format `upper`, and a broken one that brings `broken`."""
    info = tmp_path / "upper-1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: upper\nVersion: 1\n")
    info.joinpath("entry_points.txt").write_text(
        f"[hudi_ingest.converters]\nupper = {__name__}:Upper\nbroken = broken_upper:Upper\n"
    )
    tmp_path.joinpath("broken_upper.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("broken_upper", None)


@pytest.mark.usefixtures("installed")
def test_packages_bring_formats() -> None:
    assert {"upper", "broken"} < set(known_formats())
    converter: Converter = pickle.loads(pickle.dumps(converter_for("upper", TEXT)))
    assert rows_of(outcomes(converter, TEXT, [b"a", b"b"])) == [{"value": "A"}, {"value": "B"}]
    with pytest.raises(
        ValueError, match=r"importing broken_upper failed, ModuleNotFoundError: No module named 'no_such_"
    ):
        converter_for("broken", TEXT)
