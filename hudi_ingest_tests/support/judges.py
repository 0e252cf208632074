"""For each subject of `every_format` records of any values, written by a library that is not ours, and what such a library reads."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema
from hudi_ingest.records.schema.avro import crc_64
from hudi_ingest_tests.support.every_format import (
    AVRO,
    AVRO_MAPPED,
    CSV,
    FLAT,
    MAPPED,
    PROTOBUF,
    PROTOBUF_MAPPED,
    TYPED,
    TYPED_FIELDS,
    enveloped,
    framed,
    subjects,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Values = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Judged:
    """How to write rows, and to read whatever may have become of them."""

    rows: Values
    write: Callable[[Mapping[str, Any]], bytes]
    read: Callable[[bytes], Mapping[str, Any] | None]
    """The columns of a record that we make a row of; None when the judge cannot tell. Raises anything for bad records."""


def values_of(field: pa.Field, finite: bool = True) -> Values:
    """What `to_pylist` gives for values of a field."""
    found = _values_of(field.type, finite)
    return st.none() | found if field.nullable else found


def _values_of(type_: pa.DataType, finite: bool) -> Values:
    if pa.types.is_struct(type_):
        return st.fixed_dictionaries({each.name: values_of(each, finite) for each in type_})
    if pa.types.is_list(type_):
        return st.lists(values_of(type_.value_field, finite), max_size=3)
    if pa.types.is_map(type_):
        return st.dictionaries(_TEXTS, values_of(type_.item_field, finite), max_size=3).map(
            lambda each: [*each.items()]
        )
    if pa.types.is_integer(type_):
        end = 1 << type_.bit_width - 1
        return st.integers(-end, end - 1) | st.sampled_from([-end, end - 1])
    if pa.types.is_decimal(type_):
        end = 10**type_.precision - 1
        return st.integers(-end, end).map(lambda number: Decimal(number).scaleb(-type_.scale))
    if pa.types.is_floating(type_):
        return st.floats(width=type_.bit_width, allow_nan=not finite, allow_infinity=not finite)
    return _PLAIN[type_]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_PLAIN: Mapping[pa.DataType, Values] = {
    pa.bool_(): st.booleans(),
    pa.string(): _TEXTS,
    pa.binary(): st.binary(max_size=9),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(timezone.utc)),
}


def _rows(schema: pa.Schema, finite: bool = True) -> Values:
    return st.fixed_dictionaries({field.name: values_of(field, finite) for field in schema})


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are one, where NaN is itself, -0.0 is not 0.0, and a map's entries have no order."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same(each, theirs[name]) for name, each in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        if ours and theirs and isinstance(ours[0], tuple):
            return len(ours) == len(theirs) and same(dict(ours), dict(theirs))
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float):
        return isinstance(theirs, float) and repr(ours) == repr(theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


_NUMBER_MARKED = re.compile(rb'"@(-?[0-9.]+)@"')


def _json_text(value: Any) -> bytes:
    """`value`, whose decimals become numbers."""
    return _NUMBER_MARKED.sub(rb"\1", json.dumps(value, default=_json_value, ensure_ascii=False).encode())


def _json_value(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return f"@{value:f}@" if isinstance(value, Decimal) else str(value.isoformat())


def _in_json(value: Any, type_: pa.DataType) -> Any:
    """The same with maps as objects."""
    if value is None or pa.types.is_map(type_):
        return value if value is None else dict(value)
    if pa.types.is_struct(type_):
        return {each.name: _in_json(value[each.name], each.type) for each in type_}
    return value


def _from_json(value: Any, type_: pa.DataType) -> Any:
    """What JSON's values mean; numbers are decimals."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {each.name: _from_json(value.get(each.name), each.type) for each in type_}
    if pa.types.is_list(type_):
        return [_from_json(each, type_.value_type) for each in value]
    if pa.types.is_map(type_):
        return [(key, _from_json(each, type_.item_type)) for key, each in value.items()]
    if pa.types.is_integer(type_):
        return int(value)
    if pa.types.is_floating(type_):
        return float(np.float32(value)) if type_.bit_width == 32 else float(value)
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(type_):
        return _instant(value)
    return base64.b64decode(value, validate=True) if pa.types.is_binary(type_) else value


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def _loaded(value: bytes) -> Any:
    return json.loads(value.decode(), parse_int=Decimal, parse_float=Decimal)


def _json(schema: pa.Schema, before: bytes = b"") -> Judged:
    type_ = pa.struct(list(schema))
    return Judged(
        _rows(schema),
        lambda row: before + _json_text(_in_json(row, type_)),
        lambda value: _from_json(_loaded(value[len(before) :]), type_),
    )


def _micros(value: datetime) -> int:
    return (value - EPOCH) // timedelta(microseconds=1)


def _of_connect(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of TYPED as Connect's converter writes it."""
    price, day, at, times, more = (row[name] for name in ("price", "day", "at", "times", "more"))
    unscaled = None if price is None else int(price.scaleb(2))
    return {
        "id": row["id"],
        "price": None if unscaled is None else unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True),
        "day": None if day is None else (day - EPOCH.date()).days,
        "at": None if at is None else _micros(at) * 1000,
        "times": None if times is None else [None if each is None else _micros(each) for each in times],
        "more": None if more is None else {key: each and (each - EPOCH.date()).days for key, each in more},
    }


def _from_connect(row: Mapping[str, Any]) -> dict[str, Any]:
    def day(number: Any) -> date | None:
        if isinstance(number, str):
            return date.fromisoformat(number)
        return None if number is None else EPOCH.date() + timedelta(int(number))

    def instant(number: Any, per_micro: int = 1) -> datetime | None:
        if isinstance(number, str):
            return _instant(number)
        return None if number is None else EPOCH + timedelta(microseconds=int(number) // per_micro)

    def price(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return Decimal(int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)).scaleb(-2)

    times, more = row.get("times"), row.get("more")
    return {
        "id": row.get("id"),
        "price": price(row.get("price")),
        "day": day(row.get("day")),
        "at": instant(row.get("at"), 1000),
        "times": None if times is None else [*map(instant, times)],
        "more": None if more is None else [(key, day(each)) for key, each in more.items()],
    }


def _connect() -> Judged:
    # Nanoseconds in 64 bits end in 2262.
    rows = _rows(TYPED).filter(lambda row: row["at"] is None or 1678 < row["at"].year < 2262)

    def read(value: bytes) -> Mapping[str, Any] | None:
        record = _loaded(value)
        return _from_connect(record["payload"]) if record["schema"] == _SCHEMA else None

    return Judged(rows, lambda row: enveloped(json.loads(_json_text(_of_connect(row))), TYPED_FIELDS), read)


_SCHEMA = _loaded(enveloped(None, TYPED_FIELDS))["schema"]


def _debezium(framed: bool) -> Judged:
    """Events of new rows: what the others become is of `test_debezium.py`."""
    image = {"type": "struct", "optional": True, "fields": TYPED_FIELDS}
    fields: list[dict[str, Any]] = [{**image, "field": "after"}, {"field": "op", "type": "string"}]
    schema = _loaded(enveloped(None, fields))["schema"]
    plain = pa.struct(list(TYPED))

    def write(row: Mapping[str, Any]) -> bytes:
        after = _json_text(_of_connect(row) if framed else _in_json(row, plain))
        event = {"op": "c", "after": json.loads(after, parse_float=str)}
        return enveloped(event, fields) if framed else json.dumps(event).encode()

    def read(value: bytes) -> Mapping[str, Any] | None:
        event = _loaded(value)
        if framed and event["schema"] != schema:
            return None
        event = event["payload"] if framed else event
        if event["op"] not in ("c", "r") or (not framed and "payload" in event):
            return None
        row = _from_connect(event["after"]) if framed else _from_json(event["after"], plain)
        return row if isinstance(row, Mapping) else None

    return Judged(_connect().rows, write, read)


def _csv() -> Judged:
    names = CSV.names

    def write(row: Mapping[str, Any]) -> bytes:
        def cell(value: Any) -> str:
            if value is None:
                return ""
            if isinstance(value, str):
                return '"' + value.replace('"', '""') + '"'
            return str(value).lower() if isinstance(value, (bool, float)) else _csv_value(value)

        return ",".join(cell(row[name]) for name in names).encode()

    def read(value: bytes) -> Mapping[str, Any]:
        options = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        (cells,) = pa_csv.read_csv(
            pa.BufferReader(value),
            pa_csv.ReadOptions(column_names=names, use_threads=False),
            pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            options,
        ).to_pylist()
        row = {name: None if cells[name] is None else _of_cell(cells[name], CSV.field(name).type) for name in names}
        return row

    return Judged(_rows(CSV), write, read)


def _csv_value(value: Any) -> str:
    return _json_value(value).strip("@") if isinstance(value, (bytes, Decimal, date)) else str(value)


def _of_cell(text: str, type_: pa.DataType) -> Any:
    return {"true": True, "false": False}[text] if pa.types.is_boolean(type_) else _from_json(text, type_)


def _avro(text: str, before: bytes = b"") -> Judged:
    schema = fastavro.parse_schema(json.loads(text))
    whole = subjects()["avro, datum" if text == AVRO else "avro with a map, datum"].schema

    def write(row: Mapping[str, Any]) -> bytes:
        target = io.BytesIO()
        maps = {"counts": dict(row["counts"])} if "counts" in row else {}
        fastavro.schemaless_writer(target, schema, {**row, **maps})
        return before + target.getvalue()

    def read(value: bytes) -> Mapping[str, Any]:
        row = fastavro.schemaless_reader(io.BytesIO(value[len(before) :]), schema)
        return {**row, "counts": [*row["counts"].items()]} if "counts" in row else row

    return Judged(_rows(whole, finite=False), write, read)


def _protobuf(name: str, descriptors: bytes, before: bytes = b"") -> Judged:
    schema = subjects()[name].schema
    make = GetMessageClass(ProtobufSchema(descriptors).message("every.Full"))
    unsigned = {"small": st.integers(0, 2**32 - 1), "big": st.none() | st.integers(0, 2**63 - 1)}
    fields = {field.name: unsigned.get(field.name, values_of(field, finite=False)) for field in schema}

    def write(row: Mapping[str, Any]) -> bytes:
        maps = {"counts": dict(row["counts"] or ())} if "counts" in row else {}
        message: bytes = ParseDict(_in_proto_json({**row, **maps}), make()).SerializeToString()
        return before + message

    def read(value: bytes) -> Any:
        message = make.FromString(value[len(before) :])
        row = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        return _from_json(_no_numbers(row), pa.struct(list(schema)))

    return Judged(st.fixed_dictionaries(fields), write, read)


def _in_proto_json(value: Any) -> Any:
    """The same without nulls, which messages do not have."""
    if isinstance(value, dict):
        return {name: _in_proto_json(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_in_proto_json(each) for each in value if each is not None]
    if isinstance(value, float) and not isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return _json_value(value) if isinstance(value, (bytes, datetime)) else value


def _no_numbers(value: Any) -> Any:
    """The same with integers as `_loaded` gives them."""
    if isinstance(value, dict):
        return {name: _no_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(_no_numbers, value)]
    return Decimal(value) if type(value) is int else value


@cache
def judged() -> Mapping[str, Judged]:
    """By the subjects' names."""
    message = framed(b"\2\2")
    return {
        "json": _json(FLAT),
        "json with a map": _json(MAPPED),
        "json_schema": _json(FLAT, framed(b"")),
        "connect": _connect(),
        "debezium": _debezium(framed=False),
        "debezium with schemas": _debezium(framed=True),
        "csv": _csv(),
        "string": Judged(_rows(subjects()["string"].schema), lambda row: row["value"].encode(), _text),
        "bytes": Judged(_rows(subjects()["bytes"].schema), lambda row: row["value"], lambda value: {"value": value}),
        **{
            f"{name}, {kind}": _avro(text, before)
            for name, text in (("avro", AVRO), ("avro with a map", AVRO_MAPPED))
            for kind, before in (
                ("datum", b""),
                ("confluent", framed(b"")),
                ("single object", b"\xc3\x01" + crc_64(text)),
            )
        },
        **{
            f"{name}{kind}": _protobuf(name, descriptors, before)
            for name, descriptors in (("protobuf", PROTOBUF), ("protobuf with a map", PROTOBUF_MAPPED))
            for kind, before in (("", b""), (", registered", message))
        },
    }


def _text(value: bytes) -> Mapping[str, Any]:
    return {"value": value.decode()}
