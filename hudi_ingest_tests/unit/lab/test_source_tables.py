"""The tables of the CDC demo: what their statements do to rows, here in a dictionary instead of a database."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from hudi_ingest_tests.lab.source_tables import (
    LEFT_OUT,
    WEIGHTS,
    DatabaseWriter,
    SourceTable,
    Statement,
    customers,
    random_tables,
)

SEEDS = (1, 7, 19)
CHANGES = 2_000
OUTSIDE = 2_100
"""Characters or bytes from which on PostgreSQL stores a value outside its row."""

ALTERS = ("add column", "widen", "drop not null")


def writer_of(tables: list[SourceTable], dice: random.Random) -> DatabaseWriter:
    # Connects only when something is executed.
    return DatabaseWriter(sa.create_engine("sqlite://"), tables, dice)


def statements(writer: DatabaseWriter, count: int) -> list[Statement]:
    found: list[Statement] = []
    while len(found) < count:
        found += writer.next_transaction()
    return found


def is_outside(value: object) -> bool:
    return isinstance(value, (str, bytes)) and len(value) > OUTSIDE


class Rows:
    """A table as a database would have it."""

    def __init__(self, table: SourceTable) -> None:
        self.table = table
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def execute(self, statement: Statement) -> None:
        values, key = dict(statement.values), self.table.key
        if statement.kind in ALTERS:
            return
        if statement.kind == "truncate":
            self.rows.clear()
        elif statement.kind == "insert":
            assert tuple(values[name] for name in key) not in self.rows
            self.rows[tuple(values[name] for name in key)] = values
        else:
            row = self.rows.pop(tuple(values.pop(f"old_{name}") for name in key))
            if statement.kind == "delete":
                return
            if statement.kind == LEFT_OUT:
                assert any(is_outside(value) for name, value in row.items() if name not in values)
            if statement.kind == "key change":
                left_out = [name for name, value in row.items() if is_outside(value) and name not in values]
                assert not left_out or self.table.place
            changed = {**row, **values}
            assert tuple(changed[name] for name in key) not in self.rows
            self.rows[tuple(changed[name] for name in key)] = changed


@pytest.mark.parametrize("seed", SEEDS)
def test_statements_name_rows_that_are_there_and_keys_that_are_free(seed: int) -> None:
    dice = random.Random(seed)
    tables = [customers(dice), *random_tables(5, dice)]
    writer, rows = writer_of(tables, dice), {table.name: Rows(table) for table in tables}
    for table in tables:
        for _ in range(30):
            rows[table.name].execute(table.insert())
    for statement in statements(writer, CHANGES):
        [name] = [table.name for table in tables if f" {table.name} " in f"{statement.text} "]
        rows[name].execute(statement)
    assert all(rows[table.name].rows for table in tables if not table.is_truncated)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_makes_the_same_statements(seed: int) -> None:
    def drawn(seed: int) -> list[Any]:
        dice = random.Random(seed)
        tables = random_tables(3, dice)
        return [*(table.create() for table in tables), *statements(writer_of(tables, dice), 500)]

    assert drawn(seed) == drawn(seed) != drawn(seed + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fifth_of_the_updates_leave_the_large_values_out_and_columns_change_meanwhile(seed: int) -> None:
    dice = random.Random(seed)
    tables = random_tables(10, dice)
    found = statements(writer_of(tables, dice), 10_000)
    counts = Counter(statement.kind for statement in found)
    assert counts.keys() == {*WEIGHTS, *ALTERS, "truncate"} - {"move"}
    assert 0.17 < counts[LEFT_OUT] / (counts[LEFT_OUT] + counts["update"]) < 0.23


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_gets_its_added_columns_and_wider_numbers_and_no_more(seed: int) -> None:
    [table] = random_tables(1, random.Random(seed))
    altered = []
    while (statement := table.alter()) is not None:
        altered.append(statement)
    assert [each.text.split()[5] for each in altered if each.kind == "add column"] == [*table.added]
    assert table.is_widened
    widened = [each.text for each in altered if each.kind == "widen"]
    assert widened
    assert all(text.endswith((" type bigint", " type double precision")) for text in widened)


def test_every_other_table_is_truncated() -> None:
    dice = random.Random(7)
    tables = random_tables(3, dice)
    found = statements(writer_of(tables, dice), 6_000)
    truncated = {statement.text for statement in found if statement.kind == "truncate"}
    assert truncated == {f"truncate table {table.name}" for table in tables[::2]}


def test_only_a_partitioned_table_sends_whole_rows_and_has_rows_that_move() -> None:
    dice = random.Random(7)
    partitioned, [plain] = customers(dice), random_tables(1, dice)
    assert "replica identity full" in partitioned.create()
    assert "replica identity" not in plain.create()
    assert "set storage external" in plain.create()
    moved = [partitioned.change().kind for _ in range(500)]
    assert "move" in moved
