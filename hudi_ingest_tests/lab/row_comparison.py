"""Reads a table back with hudi-rs or with Spark, and compares its rows with those of its source, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

from hudi_ingest.home.folder import Home
from hudi_ingest.spark.session import current_session

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class RowComparison:
    """How rows differ from those that are expected. `examples`: a sentence each."""

    rows: int
    """Rows found."""
    missing: int
    extra: int
    duplicate: int
    """Rows beyond the first of their key."""
    different: int
    """Rows with another value in at least one column, or with other columns."""
    examples: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.duplicate or self.different)

    @classmethod
    def total(cls, comparisons: Iterable[RowComparison]) -> RowComparison:
        """Return the sums over several tables, with the first examples."""
        rows = tuple(comparisons)
        return cls(
            rows=sum(each.rows for each in rows),
            missing=sum(each.missing for each in rows),
            extra=sum(each.extra for each in rows),
            duplicate=sum(each.duplicate for each in rows),
            different=sum(each.different for each in rows),
            examples=tuple(example for each in rows for example in each.examples)[:_MOST_EXAMPLES],
        )


def compare_rows(expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]], *key: str) -> RowComparison:
    """Compare rows by their key, in any order. Each key is expected once."""

    def shown(identifier: tuple[Any, ...]) -> str:
        return ", ".join(f"{name} {value}" for name, value in zip(key, identifier, strict=True))

    wanted = {tuple(row[name] for name in key): row for row in expected}
    seen: Counter[tuple[Any, ...]] = Counter()
    different, examples = set(), []
    for row in found:
        identifier = tuple(row[name] for name in key)
        seen[identifier] += 1
        if identifier not in wanted:
            continue
        other = wanted[identifier]
        names = [name for name in {**other, **row} if not _same(row, other, name)]
        if names:
            different.add(identifier)
        examples += [
            f"{shown(identifier)}: {name} is {_shown(row, name)} instead of {_shown(other, name)}" for name in names
        ]
    missing = [identifier for identifier in wanted if identifier not in seen]
    extra = [identifier for identifier in seen if identifier not in wanted]
    duplicate = [identifier for identifier, count in seen.items() if count > 1]
    examples += [f"{shown(identifier)} is missing" for identifier in missing]
    examples += [f"{shown(identifier)} should not be there" for identifier in extra]
    examples += [f"{shown(identifier)} is there {seen[identifier]} times" for identifier in duplicate]
    return RowComparison(
        rows=sum(seen.values()),
        missing=len(missing),
        extra=len(extra),
        duplicate=sum(seen.values()) - len(seen),
        different=len(different),
        examples=tuple(examples[:_MOST_EXAMPLES]),
    )


def _same(row: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    """Whether both have the value. `True == 1` in Python, hence the types."""
    if name not in row or name not in other:
        return False
    return type(row[name]) is type(other[name]) and bool(row[name] == other[name])


def _shown(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "no column"
    text = repr(row[name])
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


Row = dict[str, Any]
ADDED = ("_hoodie_", "_kafka_")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def column_names(base_path: str) -> list[str]:
    """Return the table's columns that came from its source."""
    return _of_the_source(HudiTable(base_path).get_schema().names)


def read_with_hudi_rs(base_path: str) -> list[Row]:
    columns = HudiReadOptions().with_projection(column_names(base_path))
    rows: list[Row] = pa.Table.from_batches(HudiTable(base_path).read(columns)).to_pylist()
    return rows


def read_with_spark(base_path: str, home: Home) -> list[Row]:
    """Read with the home's engine."""
    frame = current_session(home).read.format("hudi").load(base_path)
    times = {name for name, kind in frame.dtypes if kind == "timestamp"}
    # As numbers, because PySpark makes local times of timestamps.
    columns = [f"unix_micros({name}) as {name}" if name in times else name for name in _of_the_source(frame.columns)]
    rows = []
    for row in frame.selectExpr(*columns).collect():
        values = row.asDict()
        for name in times & values.keys():
            if values[name] is not None:
                values[name] = _EPOCH + timedelta(microseconds=values[name])
        rows.append({name: bytes(value) if isinstance(value, bytearray) else value for name, value in values.items()})
    return rows


def _of_the_source(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(ADDED)]
