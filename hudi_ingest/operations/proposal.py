"""The pipeline file that fits a topic: from its settings and a sample of its records to format, columns, key, mode and partitioning,
each with the reason. Pure.

What a sample cannot show, such as whether a key ever comes twice, is decided by the topic's settings, and never by chance.
"""

from __future__ import annotations

import csv
import io  # files: none, lines of text
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import counted, quoted
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, read_schema_id
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl, ddl_type
from hudi_ingest.records.schema.inference import infer, json_object, kind_of_text
from hudi_ingest.records.schema.registered import KINDS, SchemaKind

_FORMATS: Mapping[SchemaKind, str] = {kind: name for name, kind in KINDS.items()}
_DELIMITERS = (",", ";", "\t", "|")
_FLATTENED = "__deleted"
"""Debezium's ExtractNewRecordState writes it with `delete.tombstone.handling.mode: rewrite`."""
_MOST_PARTITIONS = 31
_EVENT = {"op", "after"}


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record of the sample. `place`: `topic:partition:offset`."""

    place: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema that records of the sample name. `columns`: None if no table can have them; of events, those of `after`."""

    kind: SchemaKind
    columns: pa.Schema | None
    is_event: bool = False
    rows: Sequence[Mapping[str, Any]] = ()
    """The sampled values that name it, decoded."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of a topic. `schemas`: by id, those that values and keys name; None if no registry was given."""

    topic: str
    partitions: int
    records: Sequence[SeenRecord]
    cleanup_policy: str = "delete"
    schemas: Mapping[int, KnownSchema] | None = None
    """A schema that is no record has one column without a name."""


@dataclass(slots=True)
class Proposal:
    """Settings of a pipeline file that differ from the defaults, and the reason of each decision by the setting's name."""

    source: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    transforms: list[dict[str, Any]] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)
    """Top-level settings."""
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a person should know or decide."""

    def set_of_table(self, name: str, value: Any, reason: str) -> None:
        self.table[name], self.reasons[name] = value, reason


class NoProposal(ValueError):
    """No pipeline file fits these records; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class _Values:
    """How values are written. `columns`: None if hudi-ingest finds them itself; `rows`: decoded values."""

    format: str
    reason: str
    envelope: str = "none"
    columns: pa.Schema | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    csv: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Key:
    """How keys are written. `columns`: what they become."""

    format: str
    columns: pa.Schema
    values: Sequence[Mapping[str, Any]]
    named: bool
    """Whether its columns have names of their own."""


def propose(seen: Observed) -> Proposal:
    """Raises NoProposal."""
    proposal = Proposal()
    values, key = _values_of(seen), _key_of(seen)
    records = counted(len(seen.records), "record")
    if values.format != "json":
        proposal.source["format"] = values.format
    proposal.reasons["format"] = f"{values.format}: {values.reason} ({records} sampled)"
    if values.envelope != "none":
        proposal.source["envelope"] = values.envelope
    if values.csv:
        proposal.source["csv"] = dict(values.csv)
    proposal.notes += values.notes
    if values.envelope == "debezium":
        _mirror(proposal, seen, key, values)
    else:
        _decide_mode(proposal, seen, key, values)
    return proposal


def _mirror(proposal: Proposal, seen: Observed, key: _Key | None, values: _Values) -> None:
    """Rows of a database."""
    if values.format == "json":
        proposal.set_of_table("schema", "infer", "the columns of the events' `after`, and later ones, too")
    if key is None or not key.named:
        proposal.set_of_table("mode", "append", "the events have no key, as of a source table without a primary key")
        proposal.notes.append(
            "A row that is updated or deleted is a bad record. If that happens, set mode: upsert and list the columns that identify a "
            "row as key."
        )
        return
    proposal.set_of_table("mode", "upsert", "changes of a database (Debezium): one row for each of its rows")
    names = ", ".join(key.columns.names)
    proposal.set_of_table(
        "key", "kafka_key", f"the fields of the records' own keys ({names}), the source's primary key"
    )


def _decide_mode(proposal: Proposal, seen: Observed, key: _Key | None, values: _Values) -> None:
    columns = values.columns
    tombstones = sum(record.value is None for record in seen.records)
    deletes = columns is not None and _FLATTENED in columns.names
    why = (
        "the topic is compacted: Kafka itself keeps the last record of each key"
        if "compact" in seen.cleanup_policy
        else f"{counted(tombstones, 'record')} without a value, which deletes its key"
        if tombstones
        else f"{_FLATTENED} marks deleted rows (Debezium, flattened)"
        if deletes
        else ""
    )
    if why and (key is None or any(record.key is None for record in seen.records)):
        proposal.notes.append(
            f"{why[0].upper()}{why[1:]}. But records have no key that a table could have, so each adds a row."
        )
        why = ""
    if not why:
        own = "" if key is None else "; keys are not read, and an insert_kafka transform would keep them"
        proposal.reasons["mode"] = (
            f"append, each record adds a row: the topic is not compacted and has no tombstones{own}"
        )
        _set_columns(proposal, values, columns)
        _decide_partitions(proposal, values)
        return
    assert key is not None
    proposal.set_of_table("mode", "upsert", why)
    in_values = columns is not None and {*key.columns.names} <= {*columns.names}
    if deletes and in_values:
        assert columns is not None
        names = tuple(key.columns.names)
        _set_columns(proposal, values, columns, required=names)
        proposal.transforms.append({"cast": {_FLATTENED: "boolean"}})
        proposal.set_of_table("delete_field", _FLATTENED, "it is true where the source's row was deleted")
        proposal.other["on_tombstone"] = "skip"
        proposal.reasons["on_tombstone"] = "they follow deletes that have been applied"
    else:
        key = _renamed(key, values, seen)
        fields = pa.schema([column.with_nullable(False) for column in key.columns])
        declared: dict[str, Any] = {**({"format": key.format} if key.format != "string" else {}), "schema": ddl(fields)}
        # So that records without a value delete their rows.
        proposal.source["key"] = declared
        rest = (
            pa.schema([column for column in columns if column.name not in fields.names])
            if columns is not None
            else None
        )
        names = tuple(fields.names)
        _set_columns(proposal, values, rest, less=columns is not None and len(rest or ()) < len(columns))
    distinct = len({json.dumps(row, default=str, sort_keys=True) for row in key.values})
    proposal.set_of_table(
        "key",
        [*names],
        f"the records' keys; {counted(distinct, 'distinct one')} in {counted(len(key.values), 'record')}",
    )
    if seen.partitions > 1:
        proposal.notes.append(
            "Of two records of a key the one with the later offset wins: producers must send a key to one partition."
        )
    proposal.reasons["partition_by"] = "none: a key's row would be twice in the table if its partition changed"


def _renamed(key: _Key, values: _Values, seen: Observed) -> _Key:
    """A key that is one value, with the name of the column that always equals it, if there is one."""
    if key.named:
        return key
    names = values.columns.names if values.columns is not None else []
    (own,) = key.columns.names
    with_value = [row for row, record in zip(key.values, seen.records, strict=False) if record.value is not None]
    paired = [*zip(with_value, values.rows, strict=False)] if len(with_value) == len(values.rows) else []
    same = [name for name in names if paired and all(str(each[own]) == str(row.get(name)) for each, row in paired)]
    name = next(iter(same), next(n for n in ("key", "record_key", "kafka_record_key") if n not in names))
    kind = key.columns.field(own).type
    if same and values.columns is not None and key.format == "string" and values.columns.field(name).type == pa.int64():
        return _Key("json", pa.schema([(name, pa.int64())]), key.values, False)
    return _Key(key.format, pa.schema([(name, kind)]), key.values, False)


def _set_columns(
    proposal: Proposal,
    values: _Values,
    columns: pa.Schema | None,
    required: tuple[str, ...] = (),
    less: bool = False,
) -> None:
    facts = _facts(values.rows, columns)
    if values.format in KINDS and not (less or required):
        proposal.reasons["schema"] = "columns: those of the registry's latest version, new ones as they come"
    elif values.envelope == "connect":
        proposal.set_of_table("schema", "infer", "columns: those of the schemas in the records, new ones as they come")
    else:
        assert columns is not None
        fields = [column.with_nullable(column.name not in required) for column in columns]
        reason = "declared, so that a record that does not fit is noticed"
        proposal.set_of_table(
            "schema", ddl(pa.schema(fields)), f"{reason}; without those of the key" if less else reason
        )
    for name, fact in facts.items():
        proposal.reasons[f"schema.{name}"] = fact


def _decide_partitions(proposal: Proposal, values: _Values) -> None:
    days = [
        column.name
        for column in values.columns or ()
        if pa.types.is_date(column.type)
        and 0 < len({row.get(column.name) for row in values.rows} - {None}) <= _MOST_PARTITIONS
    ]
    complete = [name for name in days if all(row.get(name) is not None for row in values.rows)]
    if len(complete) == 1:
        count = len({row[complete[0]] for row in values.rows})
        proposal.set_of_table("partition_by", complete, f"the only day; {counted(count, 'distinct one')} in the sample")
    else:
        which = (
            f"several days ({', '.join(complete)}): choose one, if queries name it"
            if complete
            else "no column is a day"
        )
        proposal.reasons["partition_by"] = f"none: {which}"


def _facts(rows: Sequence[Mapping[str, Any]], columns: pa.Schema | None) -> dict[str, str]:
    """What the sample shows of each field: nulls, range, distinct values; and of decimals in texts, what else they could be."""
    facts = {}
    types = {column.name: column.type for column in columns or ()}
    for name in dict.fromkeys(name for row in rows for name in row):
        found = [row.get(name) for row in rows]
        some = [value for value in found if value is not None]
        nulls = len(found) - len(some)
        parts = [counted(nulls, "null")] if nulls else []
        simple = [value for value in some if isinstance(value, (str, int, float)) and not isinstance(value, bool)]
        if simple and len(simple) == len(some) and len({isinstance(value, str) for value in simple}) == 1:
            kind, decimals = types.get(name, pa.string()), _decimals(simple)
            is_number = decimals is not None or pa.types.is_integer(kind) or pa.types.is_floating(kind)
            ordered = sorted({*simple}, key=float if is_number else None)
            shown = [text if len(text := str(value)) <= 30 else f"{text[:29]}…" for value in (ordered[0], ordered[-1])]
            if kind == pa.string() and isinstance(ordered[0], str):
                shown = [*map(quoted, shown)]
            parts.append(f"{len(ordered)} distinct, {' to '.join(dict.fromkeys(shown))}")
            if decimals is not None and name in types:
                parts += _of_decimals(name, kind, *decimals)
        facts[str(name)] = ", ".join(parts)
    return {name: fact for name, fact in facts.items() if fact}


def _of_decimals(name: str, kind: pa.DataType, decimal: pa.DataType, uniform: bool) -> list[str]:
    """What to change in the columns, and why."""
    own = f"`{name} {ddl_type(decimal)}`"
    if kind == decimal:
        return [
            f"decimals in texts: one with more digits after the point would be a bad record, unless it is `{name} string`"
        ]
    if kind == pa.string():
        return [
            f"decimals in texts, with more or fewer digits after the point: {own} instead would store them as numbers"
        ]
    return [f"{own} instead would not round"] if uniform else []


_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(?:\.(\d+))?", re.ASCII)


def _decimals(texts: Sequence[Any]) -> tuple[pa.DataType, bool] | None:
    """The type of texts that are all numbers, some with a point, and whether all have as many digits after it; else None."""
    matches = [match for text in texts if isinstance(text, str) and (match := _DECIMAL.fullmatch(text))]
    scales = {len(match[2] or "") for match in matches}
    digits = max(scales, default=0) + max((len(match[1]) for match in matches), default=0)
    if len(matches) < len(texts) or not any(scales) or digits > 38:
        return None
    return pa.decimal128(18 if digits <= 14 else 38, max(scales)), len(scales) == 1


def _framed(payloads: Iterable[bytes]) -> bool:
    found = [*payloads]
    return bool(found) and all(payload[:1] == b"\0" and len(payload) > HEADER_BYTES for payload in found)


def _values_of(seen: Observed) -> _Values:
    """Raises NoProposal."""
    values = [(record.place, record.value) for record in seen.records if record.value is not None]
    if not values:
        raise NoProposal(
            f"topic {seen.topic} has no records with a value yet, so its format is unknown. Produce some first, or write the file by hand "
            "(docs/configuration.md)."
        )
    payloads = [value for _, value in values]
    if _framed(payloads):
        return _registered_values(seen, payloads)
    objects = [json_object(payload) for payload in payloads]
    rows = [row for row in objects if row is not None]
    if len(rows) * 20 >= len(payloads) * 19:
        return _json_values(values, rows, len(payloads) - len(rows))
    try:
        texts = [payload.decode() for payload in payloads]
    except UnicodeDecodeError:
        return _Values(
            "bytes",
            "the values are no text, and in no format that is known here",
            columns=pa.schema([("value", pa.binary())]),
            notes=("If they are plain Avro or Protobuf, declare their schema: docs/formats.md.",),
        )
    for delimiter in _DELIMITERS:
        lines = [next(csv.reader(io.StringIO(text), delimiter=delimiter), []) for text in texts]
        widths = Counter(map(len, lines))
        ((width, often),) = widths.most_common(1)
        if width > 1 and often == len(lines) and not any("\n" in text.strip("\n") for text in texts):
            return _csv_values(lines, delimiter, width)
    rows_of_text = [{"value": text} for text in texts]
    return _Values(
        "string",
        "the values are text of no known structure",
        columns=pa.schema([("value", pa.string())]),
        rows=rows_of_text,
    )


def _registered_values(seen: Observed, payloads: Sequence[bytes]) -> _Values:
    ids = [*dict.fromkeys(read_schema_id(payload[:HEADER_BYTES]) for payload in payloads)]
    if seen.schemas is None:
        raise NoProposal(
            f"the records of {seen.topic} name schemas of a registry (Confluent's wire format, id {ids[0]}): give its address with "
            "--schema-registry."
        )
    known = [schema for each in ids if (schema := seen.schemas.get(each)) is not None]
    if len(known) < len(ids):
        missing = ", ".join(str(each) for each in ids if each not in seen.schemas)
        raise NoProposal(
            f"the registry does not have the schemas that records of {seen.topic} name (id {missing}): give the right one."
        )
    kinds = {schema.kind for schema in known}
    if len(kinds) > 1:
        raise NoProposal(
            f"the records of {seen.topic} are of several formats: {', '.join(sorted(kinds))}. One pipeline reads one."
        )
    newest = known[-1]
    events = newest.is_event and newest.kind == "AVRO"
    rows = [row for schema in known for row in schema.rows]
    return _Values(
        _FORMATS[newest.kind],
        f"the values name schemas of the registry, {newest.kind.capitalize()} of id {', '.join(map(str, ids))}",
        "debezium" if events else "none",
        newest.columns,
        rows,
    )


def _json_values(values: Sequence[tuple[str, bytes]], rows: Sequence[dict[str, Any]], unread: int) -> _Values:
    notes = (
        (f"{counted(unread, 'value')} of the sample is no JSON object, and will be a bad record: see on_bad_record.",)
        if unread
        else ()
    )
    connect = [row["payload"] for row in rows if row.keys() == {"schema", "payload"}]
    inner = [row for row in (connect if len(connect) == len(rows) else rows) if isinstance(row, dict)]
    if inner and all(row.keys() >= _EVENT and ("source" in row or "before" in row) for row in inner):
        carried = "with" if connect else "without"
        return _Values("json", f"JSON objects, change events of Debezium {carried} schemas", "debezium", notes=notes)
    if len(connect) == len(rows):
        return _Values(
            "json", "JSON objects in Kafka Connect's schema and payload", "connect", None, inner, notes=notes
        )
    inferred = infer(values, allows_bad=bool(unread))
    if inferred.problems:
        raise NoProposal(
            "no columns fit the records: " + "; ".join(inferred.problems) + ". Write table.schema by hand."
        )
    columns = pa.schema([_better(column, rows) for column in inferred.schema])
    nothing = tuple(warning for warning in inferred.warnings if "null in the whole sample" in warning)
    return _Values("json", "each value is a JSON object", "none", columns, rows, notes=(*notes, *nothing))


def _better(column: pa.Field, rows: Sequence[Mapping[str, Any]]) -> pa.Field:
    """Texts that are all days, times or decimals with as many digits after the point, as such."""
    values = [value for row in rows if (value := row.get(column.name)) is not None]
    kind, decimals = _kind_of_texts(values) if column.type == pa.string() else None, _decimals(values)
    if decimals is not None and decimals[1]:
        kind = decimals[0]
    return column.with_type(kind) if kind is not None else column


def _kind_of_texts(texts: Sequence[Any]) -> pa.DataType | None:
    kinds = {kind_of_text(text) if isinstance(text, str) else "" for text in texts}
    return {"date": pa.date32(), "timestamp": TIMESTAMP}.get(*kinds) if len(kinds) == 1 else None


def _csv_values(lines: Sequence[Sequence[str]], delimiter: str, width: int) -> _Values:
    names = [f"c{number}" for number in range(1, width + 1)]
    rows = [{name: cell or None for name, cell in zip(names, line, strict=True)} for line in lines]
    columns = pa.schema([(name, _kind_of_cells([row[name] for row in rows])) for name in names])
    return _Values(
        "csv",
        f"each value is a line with {width} fields, separated by {quoted(delimiter)}",
        "none",
        columns,
        rows,
        {} if delimiter == "," else {"delimiter": delimiter},
        ("CSV has no names: give c1, c2 … those that they should have.",),
    )


def _kind_of_cells(cells: Sequence[str | None]) -> pa.DataType:
    some = [cell for cell in cells if cell is not None]
    for kind, reads in ((pa.int64(), int), (pa.float64(), float)):
        try:
            numbers = [reads(cell) for cell in some]
        except ValueError:
            continue
        # A zero at the beginning is of a code, such as a postal one.
        if (
            some
            and all(map(math.isfinite, numbers))
            and not any(cell.lstrip("-")[:2].isdigit() and cell.lstrip("-")[0] == "0" for cell in some)
        ):
            return kind
    return _kind_of_texts(some) or pa.string()


def _key_of(seen: Observed) -> _Key | None:
    """None if there are no keys, or none that a table could have."""
    keys = [record.key for record in seen.records if record.key is not None]
    if not keys:
        return None
    if _framed(keys) and seen.schemas is not None and len(keys[0]) != 8:
        known = seen.schemas.get(read_schema_id(keys[-1][:HEADER_BYTES]))
        if known is None or known.columns is None or not len(known.columns):
            return None
        named = known.columns.names != [""]
        return _Key(
            _FORMATS[known.kind],
            known.columns if named else pa.schema([("key", known.columns.field(0).type)]),
            known.rows,
            named,
        )
    objects = [json_object(key) for key in keys]
    if all(found is not None for found in objects):
        fields = [
            found["payload"] if found.keys() == {"schema", "payload"} else found
            for found in objects
            if found is not None
        ]
        if all(isinstance(each, dict) for each in fields):
            inferred = infer([("", json.dumps(each).encode()) for each in fields])
            fits = not inferred.problems and all(column.type in (pa.string(), pa.int64()) for column in inferred.schema)
            return _Key("json", inferred.schema, fields, True) if fits else None
        kinds = {type(each) for each in fields}
        kind = pa.int64() if kinds == {int} else pa.string()
        return (
            _Key("json", pa.schema([("key", kind)]), [{"key": each} for each in fields], False)
            if kinds <= {int, str}
            else None
        )
    try:
        texts = [key.decode() for key in keys]
        printable = all(text.isprintable() for text in texts)
    except UnicodeDecodeError:
        printable = False
    if printable:
        return _Key("string", pa.schema([("key", pa.string())]), [{"key": text} for text in texts], False)
    for width, number in ((8, pa.int64()), (4, pa.int32())):
        if all(len(key) == width for key in keys):
            found_numbers = [{"key": int.from_bytes(key, "big", signed=True)} for key in keys]
            return _Key("bytes", pa.schema([("key", number)]), found_numbers, False)
    return None
