"""Renders a sample for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.operations.sample import Outcome, Sample, SampledRecord, as_json
from hudi_ingest.records.convert.converter import shortened

MOST_COLUMNS = 8
"""A wider table would have cells too narrow to read, so each row becomes one cell."""

_MOST_CHARACTERS = 200
"""The shown characters of a value; --json shows all of it."""


def sample_view(sample: Sample) -> RenderableType:
    """Render each record with its row, then the bad records with the reason."""
    if not sample.records:
        ranges = ", ".join(map(str, sample.searched))
        remedy = "produce some first" if sample.newest else "choose other offsets with --from TOPIC:PARTITION:OFFSET"
        return Text(f"no records in {ranges}; {remedy}")
    counts = ", ".join(
        counted(sample.count(outcome), outcome.value)
        if outcome in (Outcome.ROW, Outcome.DELETE)
        else f"{sample.count(outcome)} {outcome.value}"
        for outcome in Outcome
        if outcome is not Outcome.DELETE or sample.count(outcome)
    )
    names = sample.columns.names
    narrow = len(names) <= MOST_COLUMNS
    # Not the table's title, because rich would wrap it to the width of a narrow table.
    which = ", the newest, because none wait" if sample.newest else ""
    title = Text(f"{sample.pipeline}: {counted(len(sample.records), 'record')}{which}: {counts}")
    table = Table()
    for name in ("record", "outcome", *(names if narrow else ["row"])):
        table.add_column(name, overflow="fold", no_wrap=name == "record")
    for record in sample.records:
        cells = [] if record.row is None else [f"{value_text(value)}" for value in record.row.values()]
        if cells and not narrow:
            cells = [", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=True))]
        table.add_row(record.place, _outcome_text(record), *map(Text, cells), style=_STYLES[record.outcome])
    bad = [record for record in sample.records if record.refusal is not None]
    fields = [Text(sample.fields.text)] if sample.fields is not None and sample.fields.text else []
    return Group(title, table, *([_bad_records_view(bad)] if bad else []), *fields)


_STYLES = {
    Outcome.ROW: None,
    Outcome.DELETE: "yellow",
    Outcome.BAD: "red",
    Outcome.FILTERED: "dim",
    Outcome.SKIPPED: "dim",
}


def _bad_records_view(records: Sequence[SampledRecord]) -> RenderableType:
    table = Table(title="bad records", title_justify="left")
    for name in ("record", "field", "expected", "found"):
        table.add_column(name, overflow="fold", no_wrap=name == "record")
    for record in records:
        if record.refusal is not None:
            table.add_row(
                record.place, *map(Text, (record.refusal.field, record.refusal.expected, record.refusal.found))
            )
    return table


def _outcome_text(record: SampledRecord) -> str:
    if record.moved_from is not None and record.row is not None:
        changed = [name for name, value in record.moved_from.items() if value is not None and value != record.row[name]]
        before = ", ".join(f"{name} {value_text(record.moved_from[name])}" for name in changed)
        return f"{record.outcome.value}, moved from {before}"
    return f"{record.outcome.value}, tombstone" if record.is_tombstone else record.outcome.value


def value_text(value: Any) -> str:
    """Write a value for a cell, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    if isinstance(value, (dict, list)):
        value = json.dumps(as_json(value), ensure_ascii=False)
    return f"{len(value)} bytes" if isinstance(value, bytes) else shortened(str(value), _MOST_CHARACTERS)
