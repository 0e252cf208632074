"""Tables of PostgreSQL that change at random: the customers of the CDC demo, and any number with random columns.

A `SourceTable` makes SQL statements and knows the keys that they leave, without a database. A `DatabaseWriter` executes them.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import sqlalchemy as sa

SCHEMA = "public"
LEFT_OUT = "update without the large values"
"""PostgreSQL does not log them again, so Debezium sends its placeholder, unless the table has `replica identity full`."""
WEIGHTS: Mapping[str, float] = {"insert": 22, "update": 40, LEFT_OUT: 10, "move": 8, "key change": 5, "delete": 15}
_TRUNCATES = 0.1
"""The weight of a truncate, in tables that have any."""
_ALTERS = 0.02
"""The share of PostgreSQL's transactions that change a table's columns."""
_MOST_CHANGES = 8
"""In one PostgreSQL transaction."""
_HOT_ROWS = 20
"""Every other update is of one of these, so that a transaction often changes a row several times."""
_LARGE_BYTES = 3_000
"""From about 2,000 on PostgreSQL stores a value outside its row."""
_KEY_GROUPS = 5
_WORDS = ("", "Ada", "Björn", "李雷", "O'Brien", "Zoë 🚲", "\\ \" ' \t \n ✓", "null", "%s :name {topic}")


def _whole(bits: int) -> Callable[[random.Random], object]:
    return lambda dice: dice.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


def _instant(dice: random.Random, first_year: int) -> datetime:
    return datetime(first_year, 1, 1) + timedelta(microseconds=dice.randrange(120 * 365 * 86_400 * 10**6))


_VALUES: Mapping[str, Callable[[random.Random], object]] = {
    "smallint": _whole(16),
    "integer": _whole(32),
    "bigint": _whole(64),
    "real": lambda dice: dice.randrange(-(2**20), 2**20) / 16,
    "double precision": lambda dice: dice.choice([0.0, dice.random(), dice.gauss(0, 1e300)]),
    "numeric(12,2)": lambda dice: Decimal(dice.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
    "numeric(8,3)": lambda dice: Decimal(dice.randrange(10**8)).scaleb(-3),
    "boolean": lambda dice: dice.random() < 0.5,
    "date": lambda dice: date(1900, 1, 1) + timedelta(days=dice.randrange(200 * 365)),
    "timestamp": lambda dice: _instant(dice, 1900),
    "timestamptz": lambda dice: _instant(dice, 1970).replace(tzinfo=timezone.utc),
    "bytea": lambda dice: dice.randbytes(dice.randrange(40)),
    "text": lambda dice: f"{dice.choice(_WORDS)} {dice.randrange(10_000)}",
    "uuid": lambda dice: str(uuid.UUID(int=dice.getrandbits(128))),
}
_LARGE: Mapping[str, Callable[[random.Random], object]] = {
    "text": lambda dice: dice.randbytes(_LARGE_BYTES // 2).hex(),
    "bytea": lambda dice: dice.randbytes(_LARGE_BYTES),
}
_WIDER: Mapping[str, str] = {"smallint": "bigint", "integer": "double precision"}
"""Not real to double precision: PostgreSQL makes 0.10000000149011612 of 0.1, and Hudi 0.1."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column in PostgreSQL. `choices`: its only values; `large`: whether most values are stored outside the row."""

    name: str
    type: str
    required: bool = False
    large: bool = False
    choices: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        return f"{self.name} {self.type}{' not null' if self.required else ''}"

    def value(self, dice: random.Random) -> object:
        if self.choices:
            return dice.choice(self.choices)
        if not self.required and dice.random() < 0.1:
            return None
        return (_LARGE if self.large and dice.random() < 0.8 else _VALUES)[self.type](dice)


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of a table, in SQL with `:name` for its values."""

    kind: str
    text: str
    values: Mapping[str, object]


class SourceTable:
    """A table, and the rows that its statements leave if all are executed, in their order. The same dice make the same ones.

    A row's key is made of its number. `added`: columns that it gets in the course of time. `place`: the column by which the Hudi table
    is partitioned; a row that moves must be deleted where it was, so the table sends whole rows (`replica identity full`).
    `is_truncated`: whether a change may be a truncate.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[Column],
        columns: Sequence[Column],
        dice: random.Random,
        *,
        added: Sequence[Column] = (),
        place: str = "",
        is_truncated: bool = False,
    ) -> None:
        self.name, self.place = f"{SCHEMA}.{name}", place
        self.key = tuple(column.name for column in keys)
        self.added = tuple(column.name for column in added)
        self.is_truncated, self.is_widened = is_truncated, False
        self._keys, self._columns, self._waiting = keys, list(columns), list(added)
        self._dice = dice
        self._rows: list[int] = []
        self._with_large: set[int] = set()
        """The rows with a value outside."""
        self._deleted: list[int] = []
        self._next = 1

    @property
    def columns(self) -> Sequence[Column]:
        """Return the columns beyond the key, as they are now."""
        return tuple(self._columns)

    def create(self) -> str:
        """Return the statements that make the empty table."""
        columns = [*(replace(key, required=True) for key in self._keys), *self._columns]
        definitions = ", ".join(column.sql for column in columns)
        lines = [f"create table {self.name} ({definitions}, primary key ({', '.join(self.key)}))"]
        # Not compressed, so that the length alone decides what is stored outside.
        lines += [f"alter table {self.name} alter {each.name} set storage external" for each in self._large()]
        lines += [f"alter table {self.name} replica identity full"] if self.place else []
        return ";\n".join(lines)

    def insert(self) -> Statement:
        number = self._new_number()
        values = {**self._key_of(number), **self._made(self._columns, number)}
        self._rows.append(number)
        places = ", ".join(f":{name}" for name in values)
        return Statement("insert", f"insert into {self.name} ({', '.join(values)}) values ({places})", values)

    def change(self) -> Statement:
        """Return the next change of rows."""
        if not self._rows:
            return self.insert()
        possible = {"move": bool(self.place), LEFT_OUT: bool(self._with_large)}
        weights = {kind: weight for kind, weight in WEIGHTS.items() if possible.get(kind, True)}
        if self.is_truncated:
            weights["truncate"] = _TRUNCATES
        [kind] = self._dice.choices([*weights], [*weights.values()])
        makers = {
            "insert": self.insert,
            "update": self._update,
            LEFT_OUT: self._update_small,
            "move": self._move,
            "key change": self._change_key,
            "delete": self._delete,
            "truncate": self._truncate,
        }
        return makers[kind]()

    def alter(self) -> Statement | None:
        """Return the next change of columns; None if all are made."""
        possible: list[Callable[[], Statement]] = [self._add] if self._waiting else []
        possible += [partial(self._widen, place) for place, each in enumerate(self._columns) if each.type in _WIDER]
        possible += [partial(self._loosen, place) for place, each in enumerate(self._columns) if each.required]
        return self._dice.choice(possible)() if possible else None

    def _update(self) -> Statement:
        # Never the place: that would be a move.
        return self._set("update", self._some_row(), [*self._some_small(), *self._large()])

    def _update_small(self) -> Statement:
        hot = [row for row in self._rows[:_HOT_ROWS] if row in self._with_large]
        row = self._dice.choice(hot if hot and self._dice.random() < 0.5 else sorted(self._with_large))
        return self._set(LEFT_OUT, row, self._some_small())

    def _move(self) -> Statement:
        return self._set("move", self._some_row(), [column for column in self._columns if column.name == self.place])

    def _change_key(self) -> Statement:
        """All large values are set: one that is left out is in the row of the old key, whose delete may be in another transaction or
        Kafka partition, and then the insert of the new key is a bad record."""
        position = self._dice.randrange(len(self._rows))
        old, new = self._rows[position], self._new_number()
        if old in self._with_large:
            self._with_large.add(new)
        values = {**self._key_of(new), **self._made(() if self.place else self._large(), new)}
        self._rows[position] = new
        self._forget(old)
        return self._updating("key change", old, values)

    def _delete(self) -> Statement:
        position = self._dice.randrange(len(self._rows))
        self._rows[position], self._rows[-1] = self._rows[-1], self._rows[position]
        number = self._rows.pop()
        self._forget(number)
        where, values = self._where(number)
        return Statement("delete", f"delete from {self.name} where {where}", values)

    def _truncate(self) -> Statement:
        for number in self._rows:
            self._forget(number)
        self._rows.clear()
        return Statement("truncate", f"truncate table {self.name}", {})

    def _add(self) -> Statement:
        column = self._waiting.pop(0)
        self._columns.append(column)
        return Statement("add column", f"alter table {self.name} add column {column.sql}", {})

    def _widen(self, position: int) -> Statement:
        column = self._columns[position]
        wider = replace(column, type=_WIDER[column.type])
        self._columns[position] = wider
        self.is_widened = True
        return Statement("widen", f"alter table {self.name} alter column {wider.name} type {wider.type}", {})

    def _loosen(self, position: int) -> Statement:
        column = replace(self._columns[position], required=False)
        self._columns[position] = column
        return Statement("drop not null", f"alter table {self.name} alter column {column.name} drop not null", {})

    def _set(self, kind: str, number: int, columns: Sequence[Column]) -> Statement:
        return self._updating(kind, number, self._made(columns, number))

    def _updating(self, kind: str, number: int, values: Mapping[str, object]) -> Statement:
        where, key = self._where(number)
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        return Statement(kind, f"update {self.name} set {assignments} where {where}", {**values, **key})

    def _made(self, columns: Sequence[Column], number: int) -> dict[str, object]:
        """Make values for the row, and note whether it has one outside."""
        values = {column.name: column.value(self._dice) for column in columns}
        large = [values[column.name] for column in columns if column.large]
        if any(isinstance(value, (str, bytes)) and len(value) >= _LARGE_BYTES for value in large):
            self._with_large.add(number)
        elif large:
            self._with_large.discard(number)
        return values

    def _where(self, number: int) -> tuple[str, dict[str, object]]:
        """The condition for the row, and its values, which have names of their own beside those of new ones."""
        key = self._key_of(number)
        return " and ".join(f"{name} = :old_{name}" for name in key), {f"old_{name}": key[name] for name in key}

    def _key_of(self, number: int) -> dict[str, object]:
        # Of two columns, the first may stay when the key changes.
        numbers = [number] if len(self._keys) == 1 else [number % _KEY_GROUPS, number // _KEY_GROUPS]
        return {column.name: _key_value(column.type, each) for column, each in zip(self._keys, numbers, strict=True)}

    def _some_row(self) -> int:
        return self._dice.choice(self._rows[:_HOT_ROWS] if self._dice.random() < 0.5 else self._rows)

    def _some_small(self) -> list[Column]:
        small = [column for column in self._columns if not column.large and column.name != self.place]
        return self._dice.sample(small, min(len(small), self._dice.randint(1, 3)))

    def _large(self) -> list[Column]:
        return [column for column in self._columns if column.large]

    def _new_number(self) -> int:
        """Return a number that no row has now, sometimes one that a deleted row had."""
        if self._deleted and self._dice.random() < 0.3:
            return self._deleted.pop(self._dice.randrange(len(self._deleted)))
        self._next += 1
        return self._next - 1

    def _forget(self, number: int) -> None:
        self._with_large.discard(number)
        self._deleted.append(number)


def _key_value(kind: str, number: int) -> object:
    if kind == "uuid":
        return str(uuid.UUID(int=number))
    return number if kind in ("integer", "bigint") else f"k{number}"


def customers(dice: random.Random) -> SourceTable:
    """Return the table of the CDC demo."""
    return SourceTable(
        "customers",
        (Column("id", "bigint"),),
        (
            Column("country", "text", required=True, choices=("at", "de", "fr", "jp")),
            Column("name", "text", required=True),
            Column("email", "text"),
            Column("balance", "numeric(12,2)"),
            Column("visits", "integer"),
            Column("rating", "double precision"),
            Column("vip", "boolean"),
            Column("born", "date"),
            Column("seen", "timestamp"),
            Column("updated", "timestamptz", required=True),
            Column("photo", "bytea"),
            Column("notes", "text", large=True),
        ),
        dice,
        added=(Column("points", "numeric(8,3)"),),
        place="country",
    )


def random_tables(count: int, dice: random.Random) -> list[SourceTable]:
    """Return tables with keys of one or two columns, columns of three to eight types, at least one of which can be widened, and one or
    two large ones. Every other table is truncated at times."""
    return [_random_table(f"table_{number + 1:02}", dice, number % 2 == 0) for number in range(count)]


def _random_table(name: str, dice: random.Random, is_truncated: bool) -> SourceTable:
    keys = dice.choice([("bigint",), ("integer",), ("text",), ("uuid",), ("text", "bigint"), ("integer", "uuid")])
    types = dice.sample([*_VALUES], dice.randint(2, 7))
    types.append(dice.choice([*_WIDER]))
    small = [Column(f"column_{place}", kind, required=dice.random() < 0.2) for place, kind in enumerate(types)]
    large = [Column(f"large_{kind}", kind, large=True) for kind in dice.sample([*_LARGE], dice.randint(1, 2))]
    columns = [*small, *large]
    dice.shuffle(columns)
    return SourceTable(
        name,
        [Column(f"key_{place}", kind) for place, kind in enumerate(keys)],
        columns,
        dice,
        # PostgreSQL's log has no values of them for the rows that are there, so they may be null.
        added=[Column(f"added_{place}", kind) for place, kind in enumerate(dice.sample([*_VALUES], 2))],
        is_truncated=is_truncated,
    )


class DatabaseWriter:
    """Executes the tables' statements. Nothing else may change the tables."""

    def __init__(self, database: sa.Engine, tables: Sequence[SourceTable], dice: random.Random) -> None:
        self.tables = tables
        self.counts: Counter[str] = Counter()
        """How many changes of each kind were committed."""
        self._database, self._dice = database, dice

    def create(self, rows: int) -> None:
        """Create the tables, each with its first rows."""
        for table in self.tables:
            with self._database.begin() as connection:
                connection.execute(sa.text(table.create()))
                _execute(connection, (table.insert() for _ in range(rows)))

    def keep_changing(self, per_second: int, stopping: threading.Event) -> None:
        """Make about so many changes a second until `stopping`."""
        with self._database.connect() as connection:
            while True:
                statements = self.next_transaction()
                if stopping.wait(len(statements) / per_second):
                    return
                with connection.begin():
                    _execute(connection, statements)
                self.counts.update(statement.kind for statement in statements)

    def next_transaction(self) -> list[Statement]:
        """Return the changes of PostgreSQL's next transaction: of columns alone, or of the rows of any tables."""
        if self._dice.random() < _ALTERS and (altered := self._dice.choice(self.tables).alter()) is not None:
            return [altered]
        tables = self._dice.choices(self.tables, k=self._dice.randint(1, _MOST_CHANGES))
        return [table.change() for table in tables]

    def finish(self) -> int:
        """Make the last change. Returns the position in PostgreSQL's log from which on there is only this one."""
        with self._database.begin() as connection:
            position = connection.execute(sa.text("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).scalar_one()
        with self._database.begin() as connection:
            _execute(connection, [self.tables[0].insert()])
        self.counts.update(["insert"])
        return int(position)

    def rows(self, table: SourceTable) -> list[dict[str, Any]]:
        """Select all rows, as Python values. A timestamp without time zone counts as UTC, as Debezium has it."""
        with self._database.connect() as connection:
            rows = connection.execute(sa.text(f"select * from {table.name}")).mappings()
            # PostgreSQL shows as few digits as tell them apart: -49894.188 for -49894.1875.
            single = {column.name for column in table.columns if column.type == "real"}
            return [
                {name: _single(value) if name in single else _plain(value) for name, value in row.items()}
                for row in rows
            ]


def _execute(connection: sa.Connection, statements: Sequence[Statement] | Iterator[Statement]) -> None:
    for statement in statements:
        connection.execute(sa.text(statement.text), dict(statement.values))


def _single(value: float | None) -> float | None:
    return None if value is None else float(np.float32(value))


def _plain(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    if isinstance(value, uuid.UUID):
        return str(value)
    return bytes(value) if isinstance(value, memoryview) else value
