"""What the terminal shows of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hudi_ingest.operations.sample import Outcome, Sample, SampledRecord
from hudi_ingest.records.convert.mismatch import printable

_MOST_COLUMNS = 8
"""A table of more columns would have cells too narrow to read; then a row is one cell."""


def sample_view(sample: Sample) -> RenderableType:
    """Each record with the row that it becomes, then the bad ones with the reason why."""
    if not sample.records:
        ranges = ", ".join(map(str, sample.looked_at))
        return Text(f"no records in {ranges}; name others by --from TOPIC:PARTITION:OFFSET")
    counts = ", ".join(f"{sample.count(each)} {each.value}" for each in Outcome)
    names = sample.columns.names
    narrow = len(names) <= _MOST_COLUMNS
    # Not the table's title, which would be wrapped to a narrow table's width.
    title = Text(f"{sample.pipeline}: {len(sample.records)} records: {counts}")
    table = Table()
    for name in ("record", "outcome", *(names if narrow else ["row"])):
        table.add_column(name, overflow="fold", no_wrap=name == "record")
    for each in sample.records:
        cells = [] if each.row is None else [f"{_value_text(value)}" for value in each.row.values()]
        if cells and not narrow:
            cells = [", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=True))]
        table.add_row(each.place, _outcome_text(each), *map(Text, cells), style=_STYLES[each.outcome])
    bad = [each for each in sample.records if each.refusal is not None]
    return Group(title, table, *([_bad_records_view(bad)] if bad else []))


_STYLES = {Outcome.ROW: None, Outcome.BAD: "red", Outcome.FILTERED: "dim", Outcome.SKIPPED: "dim"}


def _bad_records_view(records: Sequence[SampledRecord]) -> RenderableType:
    table = Table(title="bad records", title_justify="left")
    for name in ("record", "field", "expected", "found"):
        table.add_column(name, overflow="fold", no_wrap=name == "record")
    for each in records:
        if each.refusal is not None:
            table.add_row(each.place, *map(Text, (each.refusal.field, each.refusal.expected, each.refusal.found)))
    return table


def _outcome_text(record: SampledRecord) -> str:
    return f"{record.outcome.value}, tombstone" if record.is_tombstone else record.outcome.value


def _value_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    return f"{len(value)} bytes" if isinstance(value, bytes) else printable(str(value))
