"""The pipeline file that fits a topic: from its settings and a sample of its records to format, columns, key, mode and partitioning,
each with the reason. Pure.

What a sample cannot show, such as whether a key ever comes twice, is decided by the topic's settings, and never by chance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import counted, quoted
from hudi_ingest.operations.sampled_values import (
    FORMATS,
    KnownSchema,
    Observed,
    Values,
    decimals,
    framed,
    unit_of_times,
    values_of,
)
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, read_schema_id
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl, ddl_type
from hudi_ingest.records.schema.inference import infer, json_object
from hudi_ingest.records.schema.registered import KINDS

_FLATTENED = "__deleted"
"""Debezium's ExtractNewRecordState writes it with `delete.tombstone.handling.mode: rewrite`."""
_MOST_PARTITIONS = 31
_EPOCHS = {"microseconds": "epoch_micros", "milliseconds": "epoch_millis"}
_ENOUGH_FOR_REQUIRED = 100
"""Records of which none has a null, for a column to be NOT NULL."""
_SMALL_PARTITION = 4 * 1024 * 1024
"""Bytes of records."""


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
    values, key = values_of(seen), _key_of(seen)
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
    if values.format == "csv" and values.columns is not None and proposal.table.get("mode") == "upsert":
        # The columns of the key come from the records' own keys, and the values have those fields, too.
        proposal.source.setdefault("csv", {})["columns"] = values.columns.names
    return proposal


def _mirror(proposal: Proposal, seen: Observed, key: _Key | None, values: Values) -> None:
    """Rows of a database."""
    if values.format == "json":
        proposal.set_of_table("schema", "infer", "the columns of the events' `after`, and later ones, too")
        for name, fact in _facts(values.rows, None).items():
            proposal.reasons[f"schema.{name}"] = fact
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


def _decide_mode(proposal: Proposal, seen: Observed, key: _Key | None, values: Values) -> None:
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
        _decide_partitions(proposal, seen, values)
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


def _renamed(key: _Key, values: Values, seen: Observed) -> _Key:
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
    values: Values,
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
        whole = _never_null(columns, values.rows) | {*required, *(values.header or ())[:1]}
        own = {column: field for field, column in values.renames.items()}
        fields = [
            pa.field(own.get(each.name, each.name), pa.string() if values.header else each.type, each.name not in whole)
            for each in columns
        ]
        reason = "declared, so that a record that does not fit is noticed"
        reason += "; without those of the key" if less else ""
        reason += "; NOT NULL where the sample has no null" if whole.difference(required) else ""
        proposal.set_of_table("schema", ddl(pa.schema(fields)), reason)
        proposal.transforms += _to_columns(values, columns)
    for name, fact in facts.items():
        proposal.reasons[f"schema.{name}"] = fact


def _never_null(columns: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """The columns that are never null in a sample that is large enough to say so, and the one that shows which record is a header."""
    if len(rows) < _ENOUGH_FOR_REQUIRED:
        return set()
    return {name for name in columns.names if all(row.get(name) is not None for row in rows)}


def _to_columns(values: Values, columns: pa.Schema) -> list[dict[str, Any]]:
    """The transforms that make the table's columns of what records are read as."""
    steps: list[dict[str, Any]] = []
    renames = {field: column for field, column in values.renames.items() if column in columns.names}
    if renames:
        steps.append({"rename": renames})
    if values.header is not None and values.header[0] in columns.names:
        steps.append({"filter": {"field": values.header[0], "op": "!=", "value": values.header[1]}})
    if values.header is not None:
        times = [column.name for column in columns if column.type == TIMESTAMP]
        casts = {each.name: ddl_type(each.type) for each in columns if each.type not in (pa.string(), TIMESTAMP)}
        steps += [{"cast": casts}] if casts else []
        steps += [{"timestamp": {"fields": times, "format": "iso8601"}}] if times else []
    return steps


def _decide_partitions(proposal: Proposal, seen: Observed, values: Values) -> None:
    days = {
        column.name: found
        for column in values.columns or ()
        if (pa.types.is_date(column.type) or column.type == TIMESTAMP)
        and 0 < len(found := {str(row.get(column.name))[:10] for row in values.rows}) <= _MOST_PARTITIONS
    }
    complete = [name for name in days if all(row.get(name) is not None for row in values.rows)]
    dates = [name for name in complete if pa.types.is_date(values.columns.field(name).type)] if values.columns else []
    chosen = dates or complete
    if len(chosen) == 1:
        (name,) = chosen
        found, kind = days[name], "day" if dates else "time"
        proposal.set_of_table(
            "partition_by",
            [name if dates else f"day({name})"],
            f"the only {kind}; {counted(len(found), 'distinct day')} in the sample",
        )
        size = sum(len(record.value or b"") for record in seen.records) // max(1, len(seen.records))
        each = seen.count * size // (1 + (max(map(_day, found)) - min(map(_day, found))).days)
        if len(found) > 1 and 0 < each < _SMALL_PARTITION:
            proposal.notes.append(
                f"A partition would have about {max(1, each // 1000):,} kB of records: many small files. Leave partition_by out unless "
                f"the topic grows, or queries read single days{'' if dates else f'; month({name}) makes fewer'}."
            )
    else:
        kind = "days" if dates else "times"
        which = (
            f"several {kind} ({', '.join(chosen)}): choose one, if queries name it" if chosen else "no column is a day"
        )
        proposal.reasons["partition_by"] = f"none: {which}"


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min


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
            kind, found_decimals = types.get(name, pa.string()), decimals(simple)
            is_number = found_decimals is not None or pa.types.is_integer(kind) or pa.types.is_floating(kind)
            ordered = sorted({*simple}, key=float if is_number else None)
            shown = [text if len(text := str(value)) <= 30 else f"{text[:29]}…" for value in (ordered[0], ordered[-1])]
            if kind == pa.string() and isinstance(ordered[0], str):
                shown = [*map(quoted, shown)]
            parts.append(f"{len(ordered)} distinct, {' to '.join(dict.fromkeys(shown))}")
            if found_decimals is not None and name in types:
                parts += _of_decimals(name, kind, *found_decimals)
            unit = unit_of_times(name, simple) if name in types else ""
            if unit in _EPOCHS:
                parts.append(
                    f"{unit} since 1970? `timestamp: {{fields: [{name}], format: {_EPOCHS[unit]}}}` makes it a time"
                )
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


def _key_of(seen: Observed) -> _Key | None:
    """None if there are no keys, or none that a table could have."""
    keys = [record.key for record in seen.records if record.key is not None]
    if not keys:
        return None
    if framed(keys) and seen.schemas is not None and len(keys[0]) != 8:
        return _registered_key(seen.schemas.get(read_schema_id(keys[-1][:HEADER_BYTES])))
    objects = [found for key in keys if (found := json_object(key)) is not None]
    return _json_key(objects) if len(objects) == len(keys) else _plain_key(keys)


def _registered_key(known: KnownSchema | None) -> _Key | None:
    """The key as its schema in the registry has it; None if that has no columns."""
    if known is None or known.columns is None or not len(known.columns):
        return None
    named = known.columns.names != [""]
    columns = known.columns if named else pa.schema([("key", known.columns.field(0).type)])
    return _Key(FORMATS[known.kind], columns, known.rows, named)


def _json_key(objects: Sequence[Mapping[str, Any]]) -> _Key | None:
    """A key of JSON objects, Connect's envelope around them left out; None if their fields cannot be a table's key."""
    fields = [each["payload"] if each.keys() == {"schema", "payload"} else each for each in objects]
    if all(isinstance(each, dict) for each in fields):
        inferred = infer([("", json.dumps(each).encode()) for each in fields])
        fits = not inferred.problems and all(column.type in (pa.string(), pa.int64()) for column in inferred.schema)
        return _Key("json", inferred.schema, fields, True) if fits else None
    kinds = {type(each) for each in fields}
    if not kinds <= {int, str}:
        return None
    columns = pa.schema([("key", pa.int64() if kinds == {int} else pa.string())])
    return _Key("json", columns, [{"key": each} for each in fields], False)


def _plain_key(keys: Sequence[bytes]) -> _Key | None:
    """A key of printable texts, or of numbers in eight or four bytes; None if it is neither."""
    try:
        texts = [key.decode() for key in keys]
    except UnicodeDecodeError:
        texts = []
    if texts and all(text.isprintable() for text in texts):
        return _Key("string", pa.schema([("key", pa.string())]), [{"key": text} for text in texts], False)
    for width, number in ((8, pa.int64()), (4, pa.int32())):
        if all(len(key) == width for key in keys):
            found_numbers = [{"key": int.from_bytes(key, "big", signed=True)} for key in keys]
            return _Key("bytes", pa.schema([("key", number)]), found_numbers, False)
    return None
