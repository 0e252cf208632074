"""Writes the tables of docs/formats.md that show what every type of a database becomes: `python -m hudi_ingest_tests.support.types_page`.

They come from records of real connectors (`record_types.py`), which are decoded to columns as `schema: infer` finds them, and compared
with what the database showed.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.convert.connect.columns import connect_columns
from hudi_ingest.records.convert.connect.debezium import DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Converter, Decoded
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.schema.connect import parse_connect_schema
from hudi_ingest.records.schema.wire_type import WireType
from hudi_ingest_tests.support.database_types import MARIADB, MARIADB_MODES, POSTGRESQL, POSTGRESQL_MODES, Type

RECORDS = Path(__file__).parents[1] / "unit" / "records" / "convert" / "debezium" / "types"
DATABASES: Mapping[str, tuple[Sequence[Type], Mapping[str, Mapping[str, str]]]] = {
    "postgresql": (POSTGRESQL, POSTGRESQL_MODES),
    "mariadb": (MARIADB, MARIADB_MODES),
}
REFUSED = "a bad record"
_KEY = pa.field("id", pa.int64(), False)
_NAMING = NamingFields(("id",))


@dataclass(frozen=True)
class Recording:
    """What a connector sent. `row`: the type of the rows in Connect."""

    schema: bytes
    payloads: tuple[bytes, ...]
    row: WireType

    @property
    def records(self) -> pa.BinaryArray:
        """As they were in the topic, with schemas."""
        return pa.array(
            [b'{"schema":' + self.schema + b',"payload":' + each + b"}" for each in self.payloads], pa.binary()
        )


@cache
def recording(database: str, mode: str) -> Recording:
    schema, *payloads = gzip.decompress((RECORDS / f"{database}_{mode}.jsonl.gz").read_bytes()).splitlines()
    connect = parse_connect_schema(schema)
    assert connect is not None
    return Recording(schema, tuple(payloads), connect.members["after"])


@cache
def shown(database: str) -> Mapping[str, Sequence[str | None]]:
    """What the database shows of each column, by row."""
    content: dict[str, list[str | None]] = json.loads((RECORDS / f"{database}.json").read_text(encoding="utf-8"))
    return content


def inferred(row: WireType, name: str) -> pa.DataType | None:
    """The type that `schema: infer` gives a column; None if Debezium leaves it out. Raises SchemaProblem if no table can have it."""
    if name not in row.members:
        return None
    return connect_columns(WireType("struct", names=(name,), parts=(row.members[name],))).field(0).type


@cache
def decoded(database: str, mode: str, name: str, kind: pa.DataType, *, schemas: bool = True) -> list[Any]:
    """The values of a column, by row: those of the snapshot, then those of inserts; REFUSED for a bad record."""
    source = recording(database, mode)
    values = source.records if schemas else pa.array(source.payloads, pa.binary())
    row = pa.schema([_KEY, pa.field(name, kind)])
    return _values(ConnectJsonConverter(event_schema(row, _NAMING), framed=False), row, values)


def _values(events: Converter, row: pa.Schema, values: pa.BinaryArray) -> list[Any]:
    outcome: Decoded = DebeziumConverter(events, row, _NAMING).decode(values)
    bad = {fault.index for fault in outcome.rejected}
    kept = iter(outcome.rows.column(1).to_pylist())
    return [REFUSED if index in bad else next(kept) for index in range(len(values))]


def is_right(kind: Type, settings: Mapping[str, str], connect: WireType, text: str | None, value: Any) -> bool:
    """Whether a column's value is what the database showed as `text`."""
    if text is None or value is None or value is REFUSED:
        return text is value
    try:
        if not kind.sql.endswith("[]"):
            return _same(kind.sql, settings, connect, text, value)
        assert connect.items is not None
        return _same_items(kind, settings, connect.items, json.loads(text, parse_float=str, parse_int=str), value)
    except (ValueError, ArithmeticError, struct.error):
        # A text that is no value of the type at all.
        return False


def _same_items(kind: Type, settings: Mapping[str, str], connect: WireType, items: Any, values: Any) -> bool:
    if not isinstance(values, list) or len(items) != len(values):
        return False
    return all(
        item is value is None
        or (
            (item is not None and value is not None)
            and _same(kind.sql.removesuffix("[]"), settings, connect, item, value)
        )
        for item, value in zip(items, values, strict=True)
    )


_NUMERIC = re.compile(r"(numeric|decimal|price|money|real|float|double)\b")
_PLACES = ("point", "linestring", "polygon", "geometry", "geography")
_INTEGERS = re.compile(r"(tiny|small|medium|big)?int(eger)?\b(?!\d)|year|oid")


def _same(sql: str, settings: Mapping[str, str], connect: WireType, text: Any, value: Any) -> bool:
    """One that is in no container."""
    if isinstance(value, dict | list) and sql != "hstore" and not sql.startswith(_PLACES):
        return False
    if isinstance(value, bool):
        return (text in (True, False) and value == text) or text in (("t", "1") if value else ("f", "0"))
    if sql in ("boolean", "tinyint(1)") or (_INTEGERS.match(sql) and "range" not in sql):
        return not isinstance(value, bytes) and int(value) == int(text)
    if _NUMERIC.match(sql):
        plain = str(text).replace("$", "").replace(",", "")
        if isinstance(value, float):
            digits = "f" if sql in ("real", "float") else "d"
            return struct.pack(digits, value) == struct.pack(digits, float(plain))
        return isinstance(value, str | int | Decimal) and Decimal(value).compare(Decimal(plain)) == 0
    if sql.startswith("bit"):
        return isinstance(value, bytes) and int.from_bytes(value, "little") == int(text or "0", 2)
    if sql == "bytea" or "blob" in sql or "binary" in sql:
        return _bytes_in(settings, value) == bytes.fromhex(text.removeprefix("\\x"))
    if sql.startswith(("date", "timestamp")) and "range" not in sql:
        return _same_time(text, value)
    if sql.startswith("time"):
        return _same_time_of_day(connect, text, value)
    if sql == "interval":
        return _same_interval(connect, text, value)
    if sql in ("json", "jsonb", "hstore"):
        return _same_json(text, value)
    if sql.startswith(_PLACES):
        return _same_place(text, value)
    return bool(value == text)


def _bytes_in(settings: Mapping[str, str], value: Any) -> bytes | None:
    if isinstance(value, bytes):
        return value
    mode = settings.get("binary.handling.mode", "bytes")
    try:
        if mode == "hex":
            return bytes.fromhex(value)
        return base64.urlsafe_b64decode(value) if mode == "base64-url-safe" else base64.b64decode(value, validate=True)
    except ValueError:
        return None


def _same_time(text: str, value: Any) -> bool:
    try:
        if isinstance(value, datetime):
            expected = datetime.fromisoformat(text if "+" in text else f"{text}+00:00")
            return value.replace(tzinfo=value.tzinfo or timezone.utc) == expected
        if isinstance(value, date):
            return value == date.fromisoformat(text)
        return isinstance(value, str) and datetime.fromisoformat(value).replace(tzinfo=None) == datetime.fromisoformat(
            text
        ).replace(tzinfo=None)
    except ValueError:
        return False


_MICROSECONDS = {"Time": 1000, "MicroTime": 1, "MicroDuration": 1}


def _microseconds(connect: WireType, value: int) -> int | None:
    name = connect.meaning.rpartition(".")[2]
    if name.startswith("Nano"):
        return value // 1000 if value % 1000 == 0 else None
    return value * _MICROSECONDS[name] if name in _MICROSECONDS else None


def _of_day(text: str) -> int:
    """Microseconds of `[-]hours:minutes:seconds`."""
    hours, minutes, seconds = text.removeprefix("-").split(":")
    found = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
    return -found if text.startswith("-") else found


def _same_time_of_day(connect: WireType, text: str, value: Any) -> bool:
    zone = re.search(r"[+-]\d\d$", text[1:])
    if isinstance(value, int):
        return zone is None and _microseconds(connect, value) == _of_day(text)
    if not isinstance(value, str):
        return False
    offset = int(zone.group()) if zone else 0
    expected = _of_day(text[: zone.start() + 1] if zone else text) - offset * 3_600_000_000
    if zone:
        expected %= 86_400_000_000
    clock = re.fullmatch(r"(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)Z?", value)
    return clock is not None and _of_day(clock[1] if clock[1].count(":") == 2 else f"{clock[1]}:00") == expected


def _same_interval(connect: WireType, text: str, value: Any) -> bool:
    """A number has 365.25 days for a year, and a twelfth of it for a month."""
    parts = {name: int(number) for number, name in re.findall(r"(-?\d+) (year|mon|day)", text)}
    clock = re.search(r"-?\d+:\d\d:\S+", text)
    months, days = parts.get("year", 0) * 12 + parts.get("mon", 0), parts.get("day", 0)
    rest = _of_day(clock.group()) if clock else 0
    if isinstance(value, int):
        whole = Decimal(months) * Decimal("30.4375") * 86_400_000_000 + days * 86_400_000_000 + rest
        return _microseconds(connect, value) == int(whole)
    match = re.fullmatch(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?[\d.]+)S", value)
    if match is None:
        return False
    years, mons, found_days, hours, minutes = map(int, match.groups()[:5])
    found = (hours * 60 + minutes) * 60_000_000 + int(Decimal(match[6]) * 1_000_000)
    return (years * 12 + mons, found_days, found) == (months, days, rest)


def _same_json(text: Any, value: Any) -> bool:
    expected = json.loads(text, parse_int=str, parse_float=str) if isinstance(text, str) else text
    if isinstance(value, list):
        value = dict(value)
    try:
        found = json.loads(value, parse_int=str, parse_float=str) if isinstance(value, str) else value
        return bool(found == expected)
    except ValueError:
        return False


def _same_place(text: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", text.rpartition("(")[2] if "(" in text else text)]
    if "LINESTRING" in text:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text.rpartition("(")[2])]
    srid = int(match[1]) if (match := re.match(r"SRID=(\d+)", text)) else None
    found = value["wkb"]
    doubles = list(struct.unpack(f"<{len(numbers)}d", found[-8 * len(numbers) :]))
    return doubles == numbers and (srid is None or value["srid"] == srid)


def modes_of(database: str) -> Mapping[str, Mapping[str, str]]:
    return DATABASES[database][1]


@dataclass(frozen=True)
class Becoming:
    """What a type becomes with the settings of a recording. `column`: the type as the page shows it; `others`: values that are not what
    the database showed, and what they become."""

    column: str
    others: tuple[tuple[str, str], ...]


def becoming(database: str, mode: str, kind: Type) -> Becoming:
    row = recording(database, mode).row
    texts = shown(database)[kind.name]
    try:
        column = inferred(row, kind.name)
    except SchemaProblem as problem:
        return Becoming(f"none: {problem.problems[0].partition(': ')[2].partition('; ')[0]}", ())
    if column is None:
        return Becoming("none: Debezium leaves it out", ())
    connect, settings = row.members[kind.name], DATABASES[database][1][mode]
    others = {}
    for index, value in enumerate(decoded(database, mode, kind.name, column)):
        text = texts[index % len(texts)]
        if not is_right(kind, settings, connect, text, value):
            where = (
                ""
                if _agree(database, mode, kind, column, index)
                else (" in a snapshot" if index < len(texts) else " later")
            )
            others[(str(text), where)] = (
                REFUSED if value is REFUSED else f"`{_in_words(value)}`" if value is not None else "null"
            )
    return Becoming(
        f"`{ddl_type(column)}`", tuple((f"`{text}`{where}", found) for (text, where), found in others.items())
    )


def _agree(database: str, mode: str, kind: Type, column: pa.DataType, index: int) -> bool:
    values = decoded(database, mode, kind.name, column)
    half = len(values) // 2
    return repr(values[index % half]) == repr(values[index % half + half])


def _in_words(value: Any) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime | date | Decimal):
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, default=_in_words, ensure_ascii=False)


def _setting(sql: str) -> str:
    """The setting that says how values of this type are sent; "" if none does."""
    if "unsigned" in sql and sql.startswith("bigint"):
        return "bigint.unsigned.handling.mode"
    if "range" in sql and "multi" not in sql:
        return ""
    if sql in ("tsquery", "line", "box", "circle", "pair", "nummultirange", "pg_lsn", "price[]"):
        return "include.unknown.datatypes"
    if sql == "year":
        return "enable.time.adjuster"
    if sql.startswith(("date", "time")):
        return "time.precision.mode"
    if sql.startswith(("numeric", "decimal", "money", "price")):
        return "decimal.handling.mode"
    if sql.startswith(("bytea", "binary", "varbinary", "blob", "tinyblob", "longblob")):
        return "binary.handling.mode"
    first = sql.partition("[")[0]
    return f"{first}.handling.mode" if first in ("interval", "hstore") else ""


def _named(sql: str, settings: Mapping[str, str]) -> str:
    """What the page calls a recording in the row of a type."""
    own, adjuster = _setting(sql), "enable.time.adjuster"
    return settings.get(own) or (
        f"{adjuster} {settings[adjuster]}" if own == "time.precision.mode" and adjuster in settings else "default"
    )


def _described(database: str, kind: Type) -> tuple[str, str, str]:
    """The cells of a type's row after its name."""
    found = {mode: becoming(database, mode, kind) for mode in modes_of(database)}
    default = found["default"]
    modes = {mode: _named(kind.sql, settings) for mode, settings in modes_of(database).items()}
    columns: dict[str, list[str]] = {}
    others: dict[tuple[str, str], list[str]] = {}
    for mode, each in found.items():
        if each.column != default.column:
            columns.setdefault(each.column, []).append(modes[mode])
        for other in each.others:
            others.setdefault(other, []).append(mode)
    cell = "; ".join(f"{', '.join(values)}: {column}" for column, values in columns.items())
    notes: dict[str, list[str]] = {}
    for (text, becomes), values in others.items():
        named = list(dict.fromkeys(modes[mode] for mode in values))
        everywhere = len(values) == len(found) or set(named) == set(modes.values()) or named == ["default"]
        only = "" if everywhere else f" ({', '.join(named)})"
        notes.setdefault(f": {becomes}{only}", []).append(text)
    listed = "; ".join(f"{', '.join(texts)}{note}" for note, texts in notes.items())
    return default.column, f"`{_setting(kind.sql)}` {cell}" if cell else "", listed


_TARGET = Path(__file__).parents[2] / "docs" / "formats.md"
_BEGIN = "<!-- Written by `python -m hudi_ingest_tests.support.types_page` from records of Debezium 3.3. -->\n"
_END = "<!-- End of the types. -->\n"
_PART = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_NAMES = {"postgresql": "PostgreSQL 15", "mariadb": "MariaDB 10.11, by the connector for MySQL"}


def table(database: str) -> str:
    """The table of a database."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for kind in DATABASES[database][0]:
        sqls = names.setdefault(_described(database, kind), [])
        if f"`{kind.sql}`" not in sqls:
            sqls.append(f"`{kind.sql}`")
    lines = [f"| {_NAMES[database]} | column | with other settings | values that are not what the database shows |"]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {', '.join(sqls)} | {' | '.join(_escaped(cell) for cell in cells)} |" for cells, sqls in names.items()
    ]
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", "\\n")


def render() -> str:
    """The page with the newest tables. Raises ValueError if it has no place for them."""
    page = _TARGET.read_text(encoding="utf-8")
    if _PART.search(page) is None:
        raise ValueError(f"{_TARGET} has no place for the types between its marks")
    tables = "\n".join(table(database) for database in DATABASES)
    return _PART.sub(lambda _: f"{_BEGIN}\n{tables}\n{_END}", page)


def recorded() -> str:
    """The page as it is."""
    return _TARGET.read_text(encoding="utf-8")


if __name__ == "__main__":
    _TARGET.write_text(render(), encoding="utf-8")
