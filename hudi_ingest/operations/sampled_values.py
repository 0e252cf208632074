"""How the values of a topic's sample are written: their format, and columns that read all of them. Pure.

Columns are tried on the sample by the reader of their format; a field that none of its types can hold is left out, with a note.
"""

from __future__ import annotations

import csv
import io  # files: none, lines of text
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import counted, listed, quoted
from hudi_ingest.records.convert.converter import Mismatch
from hudi_ingest.records.convert.csv import CsvOptions, CsvReader
from hudi_ingest.records.convert.json.exact import RecordReader
from hudi_ingest.records.convert.wire_format import HEADER_BYTES, read_schema_id
from hudi_ingest.records.schema.columns import TIMESTAMP, column_problems
from hudi_ingest.records.schema.inference import infer, json_object, kind_of_text
from hudi_ingest.records.schema.registered import KINDS, SchemaKind

FORMATS: Mapping[SchemaKind, str] = {kind: name for name, kind in KINDS.items()}
_DELIMITERS = (",", ";", "\t", "|")
_EVENT = {"op", "after"}
_MOST_LEFT_OUT = 100
"""Fields that no column can hold, one inside the other at worst."""


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
    count: int = 0
    """Offsets that the topic has, for its size."""


class NoProposal(ValueError):
    """No pipeline file fits these records; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Values:
    """How values are written. `columns`: as the table calls them, None if hudi-ingest finds them itself; `rows`: decoded values."""

    format: str
    reason: str
    envelope: str = "none"
    columns: pa.Schema | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    csv: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    """Names of the columns that cannot have those of their fields, by these."""
    header: tuple[str, str] | None = None
    """A column that is never null, and its text in the records that are a header; None without any. All columns are read as texts then."""


_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(?:\.(\d+))?", re.ASCII)


def decimals(texts: Sequence[Any]) -> tuple[pa.DataType, bool] | None:
    """The type of texts that are all numbers, some with a point, and whether all have as many digits after it; else None."""
    matches = [match for text in texts if isinstance(text, str) and (match := _DECIMAL.fullmatch(text))]
    scales = {len(match[2] or "") for match in matches}
    digits = max(scales, default=0) + max((len(match[1]) for match in matches), default=0)
    if len(matches) < len(texts) or not any(scales) or digits > 38:
        return None
    return pa.decimal128(18 if digits <= 14 else 38, max(scales)), len(scales) == 1


def framed(payloads: Iterable[bytes]) -> bool:
    found = [*payloads]
    return bool(found) and all(payload[:1] == b"\0" and len(payload) > HEADER_BYTES for payload in found)


def values_of(seen: Observed) -> Values:
    """Raises NoProposal."""
    values = [(record.place, record.value) for record in seen.records if record.value is not None]
    if not values:
        raise NoProposal(
            f"topic {seen.topic} has no records with a value yet, so its format is unknown. Produce some first, or write the file by hand "
            "(docs/configuration.md)."
        )
    payloads = [value for _, value in values]
    if framed(payloads):
        return _registered_values(seen, payloads)
    objects = [json_object(payload) for payload in payloads]
    rows = [row for row in objects if row is not None]
    if len(rows) * 20 >= len(payloads) * 19:
        return _json_values(values, rows, len(payloads) - len(rows))
    try:
        texts = [payload.decode() for payload in payloads]
    except UnicodeDecodeError:
        return Values(
            "bytes",
            "the values are no text, and in no format that is known here",
            columns=pa.schema([("value", pa.binary())]),
            notes=("If they are plain Avro or Protobuf, declare their schema: docs/formats.md.",),
        )
    if sum(map(_is_json, payloads)) * 20 >= len(payloads) * 19:
        return _text_values(
            texts,
            "the values are JSON, but no objects",
            "A row needs a JSON object, so each value is kept as it is: have producers send an object, or take the text apart with the "
            "transform `sql`.",
        )
    return _csv_values(texts, payloads) or _text_values(texts, "the values are text of no known structure")


def _text_values(texts: Sequence[str], reason: str, *notes: str) -> Values:
    rows = [{"value": text} for text in texts]
    return Values("string", reason, columns=pa.schema([("value", pa.string())]), rows=rows, notes=notes)


def _is_json(payload: bytes) -> bool:
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return True


def _registered_values(seen: Observed, payloads: Sequence[bytes]) -> Values:
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
    return Values(
        FORMATS[newest.kind],
        f"the values name schemas of the registry, {newest.kind.capitalize()} of id {', '.join(map(str, ids))}",
        "debezium" if events else "none",
        newest.columns,
        rows,
    )


def _json_values(values: Sequence[tuple[str, bytes]], rows: Sequence[dict[str, Any]], unread: int) -> Values:
    """Raises NoProposal."""
    notes = (
        (f"{counted(unread, 'value')} of the sample is no JSON object, and will be a bad record: see on_bad_record.",)
        if unread
        else ()
    )
    connect = [row["payload"] for row in rows if row.keys() == {"schema", "payload"}]
    inner = [row for row in (connect if len(connect) == len(rows) else rows) if isinstance(row, dict)]
    if inner and all(row.keys() >= _EVENT and ("source" in row or "before" in row) for row in inner):
        carried = "with" if connect else "without"
        after = [row["after"] for row in inner if isinstance(row["after"], dict)]
        plain = () if connect else _plain_times(after)
        reason = f"JSON objects, change events of Debezium {carried} schemas"
        return Values("json", reason, "debezium", rows=after, notes=(*notes, *plain))
    if len(connect) == len(rows):
        return Values("json", "JSON objects in Kafka Connect's schema and payload", "connect", None, inner, notes=notes)
    inferred = infer(values, allows_bad=bool(unread))
    if not len(inferred.schema):
        raise NoProposal(
            "no columns fit the records: " + "; ".join(inferred.problems) + ". Write table.schema by hand."
        )
    better = pa.schema([_better(column, [row.get(column.name) for row in rows]) for column in inferred.schema])
    columns, left_out = _readable(better, [value for _, value in values])
    renames, renamed = _renames(columns)
    columns = pa.schema([column.with_name(renames.get(column.name, column.name)) for column in columns])
    if not len(columns) or (problems := column_problems(columns)):
        found = [*left_out, *(problems if len(columns) else ())]
        raise NoProposal("no columns fit the records: " + "; ".join(found) + ". Write table.schema by hand.")
    rows = [{renames.get(name, name): value for name, value in row.items()} for row in rows]
    nothing = tuple(
        warning
        for warning in inferred.warnings
        if "null in the whole sample" in warning and warning.split()[1].split(".")[0] in columns.names
    )
    return Values(
        "json",
        "each value is a JSON object",
        "none",
        columns,
        rows,
        notes=(*notes, *left_out, *renamed, *nothing),
        renames=renames,
    )


def _readable(columns: pa.Schema, payloads: Sequence[bytes]) -> tuple[pa.Schema, list[str]]:
    """The columns with which the reader of JSON reads each object of the sample, and a sentence for each field that is left out."""
    left_out = list[str]()
    objects = [payload for payload in payloads if json_object(payload) is not None]
    for _ in range(_MOST_LEFT_OUT):
        reader, wrong = RecordReader(columns), dict[str, Mismatch]()
        for payload in objects if len(columns) else ():
            try:
                reader.read(payload)
            except Mismatch as mismatch:
                wrong.setdefault(re.sub(r"\[\d+\]", "", mismatch.field), mismatch)
        wrong.pop("", None)
        if not wrong:
            break
        for path, first in wrong.items():
            columns = pa.schema([*_without([*columns], path)])
            left_out.append(
                f"`{path}` is left out: no type holds all its values, such as {first.found} beside {first.expected}. "
                "A transform cannot read it either: have producers send one type."
            )
    unnameable = [*_unnameable([*columns], "")]
    for path in unnameable:
        columns = pa.schema([*_without([*columns], path)])
        left_out.append(
            f"`{path}` is left out: no column can have that name inside a struct. The transform `sql` could take it out of it: "
            "docs/formats.md."
        )
    return columns, left_out


def _without(fields: Sequence[pa.Field], path: str) -> Iterable[pa.Field]:
    """The fields without the one at the path; a struct that has no other goes with it."""
    for column in fields:
        if column.name == path:
            continue
        if path.startswith(f"{column.name}."):
            kind, lists = column.type, 0
            while pa.types.is_list(kind):
                kind, lists = kind.value_type, lists + 1
            kept = [*_without([*kind], path.removeprefix(f"{column.name}."))] if pa.types.is_struct(kind) else []
            if not kept:
                continue
            inner: pa.DataType = pa.struct(kept)
            for _ in range(lists):
                inner = pa.list_(pa.field("element", inner))
            column = column.with_type(inner)
        yield column


def _unnameable(fields: Sequence[pa.Field], parent: str) -> Iterable[str]:
    """Paths of fields inside structs whose names no column can have."""
    for column in fields:
        path, kind = f"{parent}{column.name}", column.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if parent and not re.fullmatch(r"[A-Za-z_]\w*", column.name, re.ASCII):
            yield path
        elif pa.types.is_struct(kind):
            yield from _unnameable([*kind], f"{path}.")


def _renames(columns: pa.Schema) -> tuple[dict[str, str], list[str]]:
    """A column's name for each field whose own name none can have, and a sentence if there are some."""
    taken = {name.lower() for name in columns.names}
    renames = dict[str, str]()
    for column in columns:
        if column_problems(pa.schema([pa.field(column.name, pa.string())])):
            stem = column_name(column.name)
            name = next(
                each for each in (stem, *(f"{stem}_{n}" for n in range(2, 10_000))) if each.lower() not in taken
            )
            renames[column.name] = name
            taken.add(name.lower())
    pairs = [f"`{old}` → {new}" for old, new in renames.items()]
    return renames, [f"Renamed, because no column can have these names: {listed(pairs, 10)}."] if pairs else []


def column_name(text: str) -> str:
    """The nearest name that a column can have."""
    stem = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    for prefix in ("hoodie_", "kafka_"):
        stem = f"source_{stem}" if text.lower().startswith(f"_{prefix}") else stem
    return stem if stem[:1].isalpha() else f"c_{stem}" if stem else "c"


_MICROS = range(100_000_000_000_000, 10_000_000_000_000_000)
"""Microseconds since 1970, of the years 1973 to 2286; milliseconds are a thousandth."""
_DAYS = range(-25_567, 60_000)
"""Days since 1970, of the years 1900 to 2134, if the field's name speaks of one."""
_DAY_NAME = re.compile(r"date|day|birth|dob|since|until", re.IGNORECASE)


def unit_of_times(name: str, values: Sequence[Any]) -> str:
    """Name the unit since 1970 that whole numbers could count: microseconds, milliseconds, days; "" if they look like none."""
    if not values or not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return ""
    if all(value in _MICROS for value in values):
        return "microseconds"
    if all(value * 1000 in _MICROS for value in values):
        return "milliseconds"
    return "days" if _DAY_NAME.search(name) and all(value in _DAYS for value in values) else ""


def _plain_times(after: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Warn of times that Debezium writes as plain numbers, if its events do not carry their schemas."""
    found = []
    for name in dict.fromkeys(name for row in after for name in row):
        unit = unit_of_times(name, [value for row in after if (value := row.get(name)) is not None])
        found += [f"{name} ({unit})"] if unit else []
    if not found:
        return ()
    return (
        f"Events without schemas have times and days as plain numbers since 1970, and their columns stay long: {listed(found, 10)}. Set "
        "value.converter.schemas.enable=true at the connector before the table is made, or convert times with the transform `timestamp`.",
    )


def _better(column: pa.Field, values: Sequence[Any]) -> pa.Field:
    """Texts that are all days, times or decimals with as many digits after the point, as such; those inside structs and lists, too."""
    return column.with_type(_better_type(column.type, [value for value in values if value is not None]))


def _better_type(kind: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    if pa.types.is_struct(kind):
        rows = [value for value in values if isinstance(value, dict)]
        return pa.struct([_better(each, [row.get(each.name) for row in rows]) for each in kind])
    if pa.types.is_list(kind):
        items = [item for value in values if isinstance(value, list) for item in value if item is not None]
        return pa.list_(pa.field("element", _better_type(kind.value_type, items)))
    if kind != pa.string():
        return kind
    found = decimals(values)
    return found[0] if found is not None and found[1] else _kind_of_texts(values) or kind


def _kind_of_texts(texts: Sequence[Any]) -> pa.DataType | None:
    kinds = {kind_of_text(text) if isinstance(text, str) else "" for text in texts}
    return {"date": pa.date32(), "timestamp": TIMESTAMP}.get(*kinds) if len(kinds) == 1 else None


def _csv_values(texts: Sequence[str], payloads: Sequence[bytes]) -> Values | None:
    """With the delimiter that gives the most fields of those with which the reader of CSV reads each record; None if there is none."""
    found = [each for delimiter in _DELIMITERS if (each := _lines(texts, payloads, delimiter)) is not None]
    if not found:
        return None
    delimiter, lines = max(found, key=lambda each: len(each[1][0]))
    header = _header_of(lines)
    body = [line for line in lines if line != header]
    names = [column_name(name or "") for name in header] if header else [f"c{n + 1}" for n in range(len(lines[0]))]
    rows = [dict(zip(names, (cell or None for cell in line), strict=True)) for line in body]
    columns = pa.schema([(name, _kind_of_cells([row[name] for row in rows])) for name in names])
    note = (
        f"The header ({listed(header, 5)}) is a record, too, which the transform `filter` leaves out. So fields are read as texts, and cast."
        if header
        else "CSV has no column names: rename c1, c2, …"
    )
    return Values(
        "csv",
        f"each value is a line with {len(names)} fields, separated by {quoted(delimiter)}",
        "none",
        columns,
        rows,
        {} if delimiter == "," else {"delimiter": delimiter},
        (note,),
        header=next(
            (name, text or "")
            for name, text in zip(names, header, strict=True)
            if all(row[name] is not None for row in rows)
        )
        if header
        else None,
    )


def _lines(
    texts: Sequence[str], payloads: Sequence[bytes], delimiter: str
) -> tuple[str, list[tuple[str | None, ...]]] | None:
    """The delimiter with the fields of each record; None if they are not records of as many fields, but prose."""
    width = len(next(csv.reader(io.StringIO(texts[0]), delimiter=delimiter), []))
    if width < 2 or any("\n" in text.strip("\r\n") for text in texts):
        return None
    names = [f"c{number}" for number in range(1, width + 1)]
    reader = CsvReader(pa.schema([(name, pa.string()) for name in names]), CsvOptions(delimiter=delimiter))
    lines = list[tuple[str | None, ...]]()
    for payload in payloads:
        try:
            row = reader.read(payload)
        except Mismatch:
            return None
        lines.append(tuple(None if row[name] is None else str(row[name]) for name in names))
    return None if _are_prose(lines, texts, delimiter) else (delimiter, lines)


def _are_prose(lines: Sequence[Sequence[str | None]], texts: Sequence[str], delimiter: str) -> bool:
    """Whether the delimiter is punctuation of sentences, or of a log line's time."""
    if delimiter == "," and all(map(_LOG_TIME.search, texts)):
        return True
    cells = [cell for line in lines for cell in line[1:] if cell]
    if sum(cell[0] == " " for cell in cells) * 2 > len(cells):
        return True
    wordy = sum(any(len((cell or "").split()) > 3 for cell in line) for line in lines)
    return len(lines[0]) == 2 and wordy * 2 > len(lines)


_LOG_TIME = re.compile(r"\d\d:\d\d:\d\d,\d{3}[ \])]")
_NAME_OF_COLUMN = re.compile(r"[A-Za-z_][\w .-]*", re.ASCII)


def _header_of(lines: Sequence[tuple[str | None, ...]]) -> tuple[str | None, ...]:
    """The first line, if it names columns, one of which is never null and one no text in the others; else nothing."""
    first = lines[0]
    names = [column_name(cell or "").lower() for cell in first]
    others = [line for line in lines if line != first]
    if len(set(names)) < len(names) or not all(_NAME_OF_COLUMN.fullmatch(cell or "") for cell in first) or not others:
        return ()
    columns = [[line[at] or None for line in others] for at in range(len(first))]
    is_named = any(_kind_of_cells(cells) != pa.string() for cells in columns)
    return first if is_named and any(all(cell is not None for cell in cells) for cells in columns) else ()


def _kind_of_cells(cells: Sequence[str | None]) -> pa.DataType:
    some = [cell for cell in cells if cell is not None]
    for kind, reads in ((pa.int64(), int), (pa.float64(), float)):
        try:
            numbers = [reads(cell) for cell in some]
        except ValueError:
            continue
        # A zero at the beginning is of a code, such as a postal one.
        if some and all(map(math.isfinite, numbers)) and not any(re.match(r"-?0\d", cell) for cell in some):
            return kind
    return _kind_of_texts(some) or pa.string()
