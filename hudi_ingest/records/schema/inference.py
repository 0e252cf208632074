"""Infer columns from a sample of JSON records. Pure.

A field's type follows from its values in the sample: whole numbers are long, numbers with fractions double, texts string,
objects struct, arrays array. Dates and times are texts in JSON and stay string, with a warning. All columns are nullable.
Values that no single type can hold, such as a text in one record and a number in another, are a problem: the user must
declare the columns, unless bad records are allowed and such values are rare.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS, column_problems

_LONG = range(-(2**63), 2**63)
_RARE = 20
"""Values of one kind are rare if they are at most this fraction, 1/20, of a field's values."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(_DATE.pattern + r"T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Inferred:
    """The columns inferred from a sample."""

    schema: pa.Schema
    """The columns in order of first appearance; those in `problems` are string."""
    problems: tuple[str, ...]
    """Why no table can have this schema, one line each."""
    warnings: tuple[str, ...]
    """Guesses that were made, one line each."""


@dataclass(slots=True)
class _Seen:
    """The values of one field in a sample."""

    places: dict[str, str] = field(default_factory=dict)
    """The first record that has each kind (boolean, whole number, …)."""
    counts: Counter[str] = field(default_factory=Counter)
    """Values of each kind."""
    texts: set[str] = field(default_factory=set)
    """The types that its texts could have, e.g. date and string."""
    fields: dict[str, _Seen] = field(default_factory=dict)
    """The fields of its objects."""
    items: _Seen | None = None
    """The items of its arrays."""


@dataclass(slots=True)
class _Findings:
    allows_bad: bool = False
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def infer(sample: Iterable[tuple[str, bytes]], *, allows_bad: bool = False) -> Inferred:
    """Infer the columns of records. Each comes with its place, such as `orders:0:17`, for messages. `allows_bad`: rare values that
    do not fit to the others make their records bad, instead of a problem."""
    seen, unread = _Seen(), 0
    records = 0
    for place, value in sample:
        records += 1
        record = json_object(value)
        if record is None:
            unread += 1
        else:
            _note_object(seen, record, place, 0)
    findings = _Findings(allows_bad)
    if unread == records:
        which = f"none of {records} records is a JSON object" if records else "there is no record with a value"
        return Inferred(pa.schema([]), (which,), ())
    if unread:
        findings.warnings.append(f"{unread} of {records} records are not JSON objects, and were ignored")
    schema = pa.schema(_fields(seen, "", findings))
    if not len(schema):
        findings.problems.append("the records have no fields")
    if _count(schema) > MAX_FIELDS:
        return Inferred(pa.schema([]), (f"the records have more than {MAX_FIELDS} fields, nested ones counted",), ())
    findings.problems += column_problems(schema)
    return Inferred(schema, tuple(findings.problems), tuple(findings.warnings))


def json_object(value: bytes) -> dict[str, Any] | None:
    """Parse a record; None if it is no JSON object."""
    try:
        record = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _note_object(seen: _Seen, fields: dict[str, Any], place: str, depth: int) -> None:
    for name, value in fields.items():
        _note(seen.fields.setdefault(name, _Seen()), value, place, depth + 1)


def _note(seen: _Seen, value: object, place: str, depth: int) -> None:
    if value is None:
        return
    kind = _kind(value) if depth <= MAX_DEPTH else "something nested too deeply"
    seen.places.setdefault(kind, place)
    seen.counts[kind] += 1
    if isinstance(value, str):
        seen.texts.add(kind_of_text(value))
    if kind == "object":
        assert isinstance(value, dict)
        _note_object(seen, value, place, depth)
    elif kind == "array":
        assert isinstance(value, list)
        seen.items = seen.items or _Seen()
        for item in value:
            _note(seen.items, item, place, depth + 1)


def kind_of_text(text: str) -> str:
    """Name the type that a text could have: date, timestamp or string."""
    return "date" if _DATE.fullmatch(text) else "timestamp" if _TIME.fullmatch(text) else "string"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole number" if value in _LONG else "whole number beyond long"
    return {float: "number", str: "text", dict: "object", list: "array"}[type(value)]


def _fields(seen: _Seen, parent: str, findings: _Findings) -> Iterator[pa.Field]:
    for name, field_seen in seen.fields.items():
        yield pa.field(name, _type(field_seen, f"{parent}{name}", findings))


_NUMBERS = {"whole number", "whole number beyond long", "number"}
_SIMPLE = {"boolean": pa.bool_(), "whole number": pa.int64(), "number": pa.float64(), "text": pa.string()}


def _type(seen: _Seen, path: str, findings: _Findings) -> pa.DataType:
    kinds = set(seen.places)
    if not kinds:
        findings.warnings.append(f"column {path} is null in the whole sample, and assumed to be string")
        return pa.string()
    if findings.allows_bad and not _have_a_type(kinds):
        rare = {kind for kind in kinds if seen.counts[kind] * _RARE <= seen.counts.total()}
        if rare and _have_a_type(kinds - rare):
            findings.warnings.append(
                f"column {path}: {_kinds_seen(seen)}; records with {' or '.join(sorted(rare))} will be bad"
            )
            kinds -= rare
    if not _have_a_type(kinds):
        findings.problems.append(f"column {path}: {_kinds_seen(seen)}; no type holds that")
        return pa.string()
    if "number" in kinds:
        return pa.float64()
    (kind,) = kinds
    if kind == "array":
        assert seen.items is not None
        return pa.list_(pa.field("element", _type(seen.items, f"{path}.element", findings)))
    if kind == "object":
        return _struct(seen, path, findings)
    if kind == "text" and seen.texts in ({"date"}, {"timestamp"}):
        (better,) = seen.texts
        findings.warnings.append(
            f"column {path} has only texts like {better}s; to store them so, declare it as {better} in table.schema"
        )
    return _SIMPLE[kind]


def _have_a_type(kinds: set[str]) -> bool:
    return ("number" in kinds and kinds <= _NUMBERS) or (len(kinds) == 1 and kinds <= {*_SIMPLE, "object", "array"})


def _struct(seen: _Seen, path: str, findings: _Findings) -> pa.DataType:
    fields = [*_fields(seen, f"{path}.", findings)]
    if not fields:
        findings.problems.append(
            f"column {path}: found only empty objects, {_kinds_seen(seen)}; a struct needs a field"
        )
        return pa.string()
    return pa.struct(fields)


def _kinds_seen(seen: _Seen) -> str:
    kinds: Sequence[str] = [f"{kind} in {place}" for kind, place in seen.places.items()]
    return f"found {' and '.join(kinds)}"


def _count(fields: Iterable[pa.Field]) -> int:
    return sum(1 + _count_within(column.type) for column in fields)


def _count_within(kind: pa.DataType) -> int:
    if pa.types.is_list(kind):
        return _count_within(kind.value_type)
    return _count(kind) if pa.types.is_struct(kind) else 0
