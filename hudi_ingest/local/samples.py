"""The input of the demos: orders produced to Kafka, and customers that change in PostgreSQL."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from confluent_kafka import KafkaException, Message, Producer

from hudi_ingest.exceptions import KafkaUnreachable

TOPIC = "orders"
PARTITIONS = 4
_FLUSH_SECONDS = 60
_NOTES = ("leave at the door", "gift wrapped, please", "call before delivery", "no substitutes", "fragile: two boxes")
_DAYS = 3


def orders(seed: int, now: datetime) -> Iterator[dict[str, object]]:
    """Yield orders of the last three days, endlessly; the same seed and time yield the same orders."""
    rng = random.Random(seed)
    number = 0
    while True:
        at = now - timedelta(seconds=rng.randrange(_DAYS * 86_400))
        yield {
            "id": f"o-{seed}-{number:09d}",
            "ts": int(at.timestamp() * 1000),
            "user": f"u{rng.randrange(50_000):05d}",
            "amount": round(rng.lognormvariate(3.2, 0.8), 2),
            "note": f"{rng.choice(_NOTES)}; basket of {rng.randrange(1, 30)}",
            "dt": at.strftime("%Y-%m-%d"),
        }
        number += 1


class OrderProducer:
    """Produces orders to the demo's topic, keyed by user, and remembers each acknowledged offset and its order's id."""

    def __init__(self, bootstrap_servers: str, seed: int) -> None:
        self.acknowledged: dict[tuple[int, int], str] = {}
        """(partition, offset) → id of the order that the broker keeps there; filled by `produce` only."""
        self.count = 0
        self._failed: list[str] = []
        self._orders = orders(seed, datetime.now(timezone.utc))
        self._bootstrap_servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 50,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )

    def produce(self, count: int) -> None:
        """Produce `count` orders and return when all are acknowledged. Raises KafkaUnreachable."""
        for order in (next(self._orders) for _ in range(count)):
            identifier = str(order["id"])

            def delivered(error: object, message: Message, identifier: str = identifier) -> None:
                if error is not None:
                    self._failed.append(str(error))
                else:
                    self.acknowledged[message.partition(), message.offset()] = identifier

            self._send(order, delivered)
        self._flush()

    def keep_producing(self, per_second: int, stopping: threading.Event) -> None:
        """Produce about `per_second` orders a second until `stopping`, without remembering them. Raises KafkaUnreachable."""
        while not stopping.wait(0.1):
            for _ in range(max(1, per_second // 10)):
                self._send(next(self._orders), self._noted)
        self._flush()

    def _noted(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _send(self, order: dict[str, object], delivered: object) -> None:
        value = json.dumps(order, separators=(",", ":")).encode()
        try:
            while True:
                try:
                    self._producer.produce(TOPIC, value, key=str(order["user"]).encode(), on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.5)
        except KafkaException as error:
            raise KafkaUnreachable(
                f"cannot produce to {TOPIC} at {self._bootstrap_servers}: {error}",
                servers=self._bootstrap_servers,
                topic=TOPIC,
            ) from error
        self.count += 1
        self._producer.poll(0)

    def _flush(self) -> None:
        remaining = self._producer.flush(_FLUSH_SECONDS)
        if remaining or self._failed:
            reason = self._failed[0] if self._failed else f"{remaining} were not acknowledged within {_FLUSH_SECONDS} s"
            raise KafkaUnreachable(
                f"producing orders to {TOPIC} at {self._bootstrap_servers} failed: {reason}",
                servers=self._bootstrap_servers,
                topic=TOPIC,
            )


TABLE = "public.customers"
SCHEMA = (
    "id long not null, country string not null, name string not null, email string, balance decimal(12,2), visits int, "
    "rating double, vip boolean, born date, seen timestamp, updated timestamp, photo binary, notes string"
)
"""The table's columns in Spark's words."""
NEW_COLUMN = "points decimal(8,3)"
"""The one that `add_column` adds, likewise."""
KEY, PARTITION = "id", "country"

_CREATE = f"""
create table {TABLE} (
  id bigint primary key, country text not null, name text not null, email text, balance numeric(12,2), visits integer,
  rating double precision, vip boolean, born date, seen timestamp, updated timestamptz not null, photo bytea, notes text
);
-- Stored outside the row: an update that leaves the notes alone does not write them to PostgreSQL's log again.
alter table {TABLE} alter notes set storage external;
-- A row that moves to another country is deleted in the one where it was, so its old values must be known.
alter table {TABLE} replica identity full
"""
_COUNTRIES = ("at", "de", "fr", "jp")
_NAMES = ("Ada", "Björn", "Chloë", "Daiki", "Émile", "Fatma", "李雷", "O'Brien", "Zoë 🚲")
_NOTES_BYTES = 3_000
_MOST_CHANGES = 8
"""In one PostgreSQL transaction."""
_WEIGHTS = {"insert": 22, "update": 50, "move": 8, "key change": 5, "delete": 15}
_HOT_ROWS = 20
"""Every other update is of one of these, so that a transaction often changes a row several times."""


class CustomerWriter:
    """Changes the table at random; the same seed makes the same choices. Only its own writer may change the table."""

    def __init__(self, database: sa.Engine, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        """How many changes of each kind were committed."""
        self._database = database
        self._dice = random.Random(seed)
        self._ids: list[int] = []
        self._deleted: list[int] = []
        self._next_id = 1
        self._has_points = threading.Event()
        self._changes: dict[str, Callable[[sa.Connection], None]] = {
            "insert": self._insert,
            "update": self._update,
            "move": self._move,
            "key change": self._change_key,
            "delete": self._delete,
        }

    def create(self, rows: int) -> None:
        """Create the table with its first rows."""
        with self._database.begin() as connection:
            connection.execute(sa.text(_CREATE))
            for _ in range(rows):
                self._insert(connection)

    def add_column(self) -> None:
        """Add NEW_COLUMN, which later changes fill."""
        with self._database.begin() as connection:
            connection.execute(sa.text(f"alter table {TABLE} add column points numeric(8,3)"))
        self._has_points.set()

    def keep_changing(self, per_second: int, stopping: threading.Event) -> None:
        """Make about so many changes a second until `stopping`."""
        with self._database.connect() as connection:
            while True:
                kinds = self._dice.choices(
                    list(_WEIGHTS), list(_WEIGHTS.values()), k=self._dice.randint(1, _MOST_CHANGES)
                )
                if stopping.wait(len(kinds) / per_second):
                    return
                with connection.begin():
                    for kind in kinds:
                        self._changes[kind](connection)
                self.counts.update(kinds)

    def finish(self) -> int:
        """Make the last change. Returns the position in PostgreSQL's log from which on there is only this one."""
        with self._database.begin() as connection:
            position = connection.execute(sa.text("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).scalar_one()
        with self._database.begin() as connection:
            self._insert(connection)
        self.counts.update(["insert"])
        return int(position)

    def rows(self) -> list[dict[str, Any]]:
        """Select all rows, as Python values. A timestamp without time zone counts as UTC, as Debezium has it."""
        with self._database.connect() as connection:
            rows = connection.execute(sa.text(f"select * from {TABLE}")).mappings()
            return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def _insert(self, connection: sa.Connection) -> None:
        identifier = self._new_id()
        values = {"id": identifier, **{name: self._value(name) for name in self._columns()}}
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        connection.execute(sa.text(f"insert into {TABLE} ({names}) values ({places})"), values)
        self._ids.append(identifier)

    def _update(self, connection: sa.Connection) -> None:
        # Never the country: that would be a move.
        names = [name for name in self._columns() if name not in (PARTITION, "updated")]
        self._set(connection, self._some_id(), *self._dice.sample(names, self._dice.randint(1, 3)))

    def _move(self, connection: sa.Connection) -> None:
        self._set(connection, self._some_id(), PARTITION)

    def _change_key(self, connection: sa.Connection) -> None:
        place = self._dice.randrange(len(self._ids))
        old, new = self._ids[place], self._new_id()
        connection.execute(sa.text(f"update {TABLE} set id = :new where id = :old"), {"new": new, "old": old})
        self._ids[place] = new
        self._deleted.append(old)

    def _delete(self, connection: sa.Connection) -> None:
        place = self._dice.randrange(len(self._ids))
        self._ids[place], self._ids[-1] = self._ids[-1], self._ids[place]
        identifier = self._ids.pop()
        connection.execute(sa.text(f"delete from {TABLE} where id = :id"), {"id": identifier})
        self._deleted.append(identifier)

    def _set(self, connection: sa.Connection, identifier: int, *names: str) -> None:
        values = {name: self._value(name) for name in (*names, "updated")}
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(sa.text(f"update {TABLE} set {assignments} where id = :id"), {**values, "id": identifier})

    def _some_id(self) -> int:
        hot = self._ids[:_HOT_ROWS] if self._dice.random() < 0.5 else self._ids
        return self._dice.choice(hot)

    def _new_id(self) -> int:
        """Return a number that no row has now, sometimes one that a deleted row had."""
        if self._deleted and self._dice.random() < 0.3:
            return self._deleted.pop(self._dice.randrange(len(self._deleted)))
        self._next_id += 1
        return self._next_id - 1

    def _columns(self) -> list[str]:
        names = [column.split()[0] for column in SCHEMA.split(", ") if not column.startswith(f"{KEY} ")]
        return [*names, "points"] if self._has_points.is_set() else names

    def _value(self, name: str) -> object:
        dice = self._dice
        if name == "country":
            return dice.choice(_COUNTRIES)
        if name == "name":
            return f"{dice.choice(_NAMES)} {dice.randrange(10_000)}"
        if name == "updated":
            return datetime.now(timezone.utc)
        if dice.random() < 0.1:
            return None
        values: dict[str, Callable[[], object]] = {
            "email": lambda: f"{dice.randrange(10**6)}@example.org",
            "balance": lambda: Decimal(dice.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
            "visits": lambda: dice.randrange(-(2**31), 2**31),
            "rating": lambda: dice.choice([0.0, dice.random(), dice.gauss(0, 1e300)]),
            "vip": lambda: dice.random() < 0.5,
            "born": lambda: date(1900, 1, 1) + timedelta(days=dice.randrange(200 * 365)),
            "seen": lambda: datetime(1900, 1, 1) + timedelta(microseconds=dice.randrange(200 * 365 * 86_400 * 10**6)),
            "photo": lambda: dice.randbytes(dice.randrange(40)),
            "notes": lambda: dice.choice(["", "\\ \" ' \t \n ✓", dice.randbytes(_NOTES_BYTES // 2).hex()]),
            "points": lambda: Decimal(dice.randrange(10**8)).scaleb(-3),
        }
        return values[name]()


def _plain(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return bytes(value) if isinstance(value, memoryview) else value
