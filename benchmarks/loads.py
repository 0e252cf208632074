"""Loads by name: their records, and how these are spread over a topic's partitions. Pure and deterministic."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import encoded_orders
from benchmarks.results import STREAMING

DEFAULT_LOADS = ("orders-1m", "orders-10m", "wide-1m", "large-100k", "skew-1m", "partitions-200", "tiny")
PARTITION_STRIDE = 1_000_000_000
"""The numbers of each Kafka partition's records begin at a multiple of this, so that ids are unique in the topic."""

_KAFKA_PARTITIONS = 4
_DAYS = 3
_SKEWED_SHARE = 0.9
_RECORDS_A_PARTITION = 100
_TINY = 10
_BLOCK_BYTES = 8 * 1024 * 1024
_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
_DAY_SECONDS = 86_400
_NAME = re.compile(r"(?P<kind>[a-z]+(?:-[a-z]+)?)(?:-(?P<number>[1-9][0-9]{0,8})(?P<unit>[km]?))?")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_NOTES = (
    "leave it at the door if nobody answers, the bell is broken",
    "gift wrapped, please, and without the invoice in the parcel",
    "call before delivery: the yard's gate is locked after six",
    "no substitutes; cancel what is not there and tell me by mail",
    "fragile: two boxes, keep them upright and away from the heat",
)

Values = Callable[[int, int], pa.BinaryArray]


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a load's records. `values(first, count)` returns the records with numbers first to first + count - 1."""

    ddl: str
    values: Values
    partition_by: str = "dt"
    source: Mapping[str, Any] = field(default_factory=lambda: {"format": "json"})
    """The format's keys in the pipeline's `source`."""
    files: Callable[[], Mapping[str, bytes]] = dict
    """Files that `source` names, by path relative to the pipeline file."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Contenders that cannot read these records, and why."""


@dataclass(frozen=True, slots=True)
class Load:
    """A topic's content: `counts[p]` records of the shape in Kafka partition p, with `table_partitions` values of `dt`."""

    name: str
    shape: Shape
    counts: tuple[int, ...]
    table_partitions: int
    record_bytes: int
    """Approximate length of a value."""
    transaction: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the pipeline's `transaction` in addition to the benchmark's own."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the pipeline's `table`, likewise."""

    @property
    def records(self) -> int:
        return sum(self.counts)

    @property
    def topic(self) -> str:
        return f"bench-{self.name}"

    @property
    def pipeline(self) -> str:
        """The prefix of its pipelines' names."""
        return f"bench_{self.name.replace('-', '_')}"

    def blocks(self) -> Iterator[tuple[int, pa.BinaryArray]]:
        """Yield (Kafka partition, values) block by block, alternating between partitions as a producer would."""
        for first, count in self.ranges():
            yield first // PARTITION_STRIDE, self.shape.values(first, count)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield each block's first number and count."""
        rows = _BLOCK_BYTES // self.record_bytes
        for done in range(0, max(self.counts), rows):
            for number, count in enumerate(self.counts):
                if done < count:
                    yield number * PARTITION_STRIDE + done, min(rows, count - done)


def parse_load(name: str) -> Load:
    """Parse the name of a load, such as orders-10m, partitions-200 or tiny. Raises ValueError, which says what is allowed."""
    match = _NAME.fullmatch(name.strip().lower())
    maker = _KINDS.get(match["kind"]) if match else None
    if match is None or maker is None or (match["number"] is None and match["kind"] not in _OF_A_FIXED_SIZE):
        raise ValueError(
            f"load {name!r} is not known; allowed: {', '.join(f'{kind}-<n>' for kind in _KINDS)} with n like 500, 200k or "
            f"10m (the number of Kafka partitions for `partitions`, else of records), and {' and '.join(_OF_A_FIXED_SIZE)}"
        )
    number = parse_number(match["number"], match["unit"]) if match["number"] else _TINY
    return maker(name.strip().lower(), number)


def parse_number(digits: str, unit: str) -> int:
    """Return the number that a load's name ends with, as 200 and k."""
    return int(digits) * _UNITS[unit]


def parse_loads(names: str) -> tuple[Load, ...]:
    """Parse a comma-separated list of loads, dropping repeated ones. Raises ValueError."""
    loads = [parse_load(name) for name in names.split(",") if name.strip()]
    if not loads:
        raise ValueError("no load is given; for example: orders-1m,tiny")
    return tuple({load.name: load for load in loads}.values())


def orders_load(name: str, counts: Sequence[int], days: int = _DAYS) -> Load:
    """Build a load of orders over any number of Kafka partitions and days; each day is a table partition."""
    return Load(name, Shape(_ORDERS_DDL, partial(order_values, days=days)), tuple(counts), days, 190)


def avro_orders_load(name: str, counts: Sequence[int]) -> Load:
    """Build a load of the same orders as Avro datums, all of one schema."""
    shape = Shape(
        _ORDERS_DDL,
        lambda first, count: encoded_orders.avro(order_columns(first, count)),
        source={"format": "avro", "avro": {"wire_format": "datum", "schema_files": ["bench_order.avsc"]}},
        files=lambda: {"bench_order.avsc": encoded_orders.AVRO_SCHEMA.encode()},
    )
    return Load(name, shape, tuple(counts), _DAYS, 125)


def protobuf_orders_load(name: str, counts: Sequence[int]) -> Load:
    """Build a load of the same orders as bare Protobuf messages."""
    source = {"descriptor_file": "bench_order.pb", "message": encoded_orders.PROTOBUF_MESSAGE}
    shape = Shape(
        _ORDERS_DDL,
        lambda first, count: encoded_orders.protobuf(order_columns(first, count)),
        source={"format": "protobuf", "protobuf": source},
        files=lambda: {"bench_order.pb": encoded_orders.protobuf_descriptors()},
        left_out={STREAMING: "its from_protobuf is in spark-protobuf, which is not among hudi-ingest's jars"},
    )
    return Load(name, shape, tuple(counts), _DAYS, 130)


def even(records: int, partitions: int) -> tuple[int, ...]:
    """Spread the records evenly over the partitions; the first ones get one more if necessary."""
    least, more = divmod(records, partitions)
    return tuple(least + (number < more) for number in range(partitions))


def skewed(records: int, partitions: int = _KAFKA_PARTITIONS) -> tuple[int, ...]:
    """Put 90 % of the records into the first partition, and spread the rest over the others."""
    most = int(records * _SKEWED_SHARE)
    return (most, *even(records - most, partitions - 1))


# ---- Orders: about 190 bytes, every field varies

_ORDERS_DDL = "id string, ts long, user string, amount double, note string, dt string"


def order_columns(first: int, count: int, days: int = _DAYS) -> pa.RecordBatch:
    """Return the demo's orders (local/samples.py) with a longer note, before encoding."""
    dice = np.random.default_rng([11, first])
    seconds = dice.integers(0, days * _DAY_SECONDS, count)
    notes = pa.array(_NOTES).take(pa.array(dice.integers(0, len(_NOTES), count)))
    users = _text(dice.integers(10_000, 60_000, count))
    amounts = np.round(dice.lognormal(3.2, 0.8, count), 2)
    pieces = _text(dice.integers(1, 30, count))
    return pa.RecordBatch.from_pydict(
        {
            "id": pc.binary_join_element_wise("o-1-", _text(np.arange(first, first + count)), ""),
            "ts": _milliseconds(seconds),
            "user": pc.binary_join_element_wise("u", users, ""),
            "amount": pa.array(amounts),
            "note": pc.binary_join_element_wise(notes, "; basket of ", pieces, " pieces", ""),
            "dt": _days(seconds, days),
        }
    )


def order_values(first: int, count: int, days: int = _DAYS) -> pa.BinaryArray:
    """Encode the orders as JSON."""
    return order_json(order_columns(first, count, days))


def order_json(orders: pa.RecordBatch) -> pa.BinaryArray:
    return _joined(
        '{"id":"',
        orders["id"],
        '","ts":',
        _text(orders["ts"]),
        ',"user":"',
        orders["user"],
        '","amount":',
        _text(orders["amount"]),
        ',"note":"',
        orders["note"],
        '","dt":"',
        orders["dt"],
        '"}',
    )


# ---- Wide and large: a pool of bodies, with an id and times of each record's own

_WIDE_POOL = 8_192
_LARGE_POOL = 512
_LARGE_BYTES = 20_000
_WORDS = (
    "parcel",
    "depot",
    "route",
    "driver",
    "window",
    "street",
    "river",
    "market",
    "orange",
    "copper",
    "signal",
    "ledger",
    "harbour",
    "winter",
    "paper",
    "garden",
    "bridge",
    "letter",
    "candle",
    "mirror",
    "anchor",
    "basket",
    "ticket",
    "engine",
    "meadow",
    "silver",
)
_STRINGS, _LONGS, _DOUBLES, _FLAGS = 18, 15, 10, 5
_WIDE_DDL = ", ".join(
    [
        "id string, ts long, dt string",
        *(f"s{number:02d} string" for number in range(_STRINGS)),
        *(f"n{number:02d} long" for number in range(_LONGS)),
        *(f"x{number:02d} double" for number in range(_DOUBLES)),
        *(f"b{number:02d} boolean" for number in range(_FLAGS)),
        "customer struct<id: string, tier: string, since: long, "
        "address: struct<street: string, city: string, zip: string, country: string>>",
        "device struct<os: string, version: string, model: string>",
        "price struct<net: double, tax: double, currency: string>",
        "place struct<lat: double, lon: double>",
        "session struct<id: string, pages: array<string>>",
        "tags array<string>, scores array<double>, codes array<long>",
        "lines array<struct<sku: string, quantity: int, price: double>>",
    ]
)
_LARGE_DDL = "id string, ts long, dt string, title string, body string"


def wide_values(first: int, count: int) -> pa.BinaryArray:
    """Return records of 60 fields, including nested structs and lists; about 1,500 bytes each."""
    return _pooled(_wide_pool(), first, count)


def large_values(first: int, count: int) -> pa.BinaryArray:
    """Return records of about 20 kB, nearly all of it one text."""
    return _pooled(_large_pool(), first, count)


def _pooled(pool: pa.Array, first: int, count: int) -> pa.BinaryArray:
    dice = np.random.default_rng([13, first])
    seconds = dice.integers(0, _DAYS * _DAY_SECONDS, count)
    return _joined(
        '{"id":"r-1-',
        _text(np.arange(first, first + count)),
        '","ts":',
        _text(_milliseconds(seconds)),
        ',"dt":"',
        _days(seconds, _DAYS),
        '",',
        pool.take(pa.array(dice.integers(0, len(pool), count))),
    )


@cache
def _wide_pool() -> pa.Array:
    dice = random.Random(17)
    return pa.array([_fields(_wide_record(dice)) for _ in range(_WIDE_POOL)])


@cache
def _large_pool() -> pa.Array:
    dice = random.Random(19)
    return pa.array(
        [
            _fields({"title": _words(dice, 6), "body": _words(dice, _LARGE_BYTES // 4)[: _LARGE_BYTES - 100]})
            for _ in range(_LARGE_POOL)
        ]
    )


def _wide_record(dice: random.Random) -> dict[str, Any]:
    return {
        **{f"s{number:02d}": _words(dice, 1 + number % 3) for number in range(_STRINGS)},
        **{f"n{number:02d}": dice.randrange(10 ** (2 + number % 9)) for number in range(_LONGS)},
        **{f"x{number:02d}": _double(dice, 1_000) for number in range(_DOUBLES)},
        **{f"b{number:02d}": dice.random() < 0.5 for number in range(_FLAGS)},
        "customer": {
            "id": f"c{dice.randrange(100_000):06d}",
            "tier": dice.choice(("basic", "silver", "gold")),
            "since": dice.randrange(10**12),
            "address": {
                "street": f"{_words(dice, 1)} street {dice.randrange(200)}",
                "city": dice.choice(_WORDS),
                "zip": f"{dice.randrange(100_000):05d}",
                "country": dice.choice(("DE", "FR", "PL", "DK")),
            },
        },
        "device": {
            "os": dice.choice(("ios", "android")),
            "version": f"{dice.randrange(20)}.1",
            "model": _words(dice, 1),
        },
        "price": {"net": _double(dice, 500), "tax": _double(dice, 50), "currency": dice.choice(("EUR", "DKK"))},
        "place": {"lat": _double(dice, 90), "lon": _double(dice, 180)},
        "session": {"id": f"{dice.getrandbits(64):016x}", "pages": [_words(dice, 1) for _ in range(dice.randrange(5))]},
        "tags": [dice.choice(_WORDS) for _ in range(dice.randrange(5))],
        "scores": [_double(dice, 1) for _ in range(dice.randrange(4))],
        "codes": [dice.randrange(1_000) for _ in range(dice.randrange(4))],
        "lines": [
            {"sku": f"k{dice.randrange(10_000)}", "quantity": dice.randrange(1, 9), "price": _double(dice, 90)}
            for _ in range(1 + dice.randrange(3))
        ],
    }


def _words(dice: random.Random, count: int) -> str:
    return " ".join(dice.choices(_WORDS, k=count))


def _double(dice: random.Random, most: float) -> float:
    return round(dice.random() * most, 3)


def _fields(record: dict[str, Any]) -> str:
    """The record's JSON without the brace that opens it."""
    return json.dumps(record, separators=(",", ":"))[1:]


# ---- Text, a column at a time


def _joined(*pieces: object) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*pieces, "").cast(pa.binary())


def _text(numbers: Any) -> pa.Array:
    """`numbers`: of numpy or Arrow."""
    return pa.array(numbers).cast(pa.string())


def _milliseconds(seconds: Any) -> pa.Array:
    return pa.array((int(_BEGIN.timestamp()) + seconds) * 1000)


def _days(seconds: Any, days: int) -> pa.Array:
    dates = pa.array([(_BEGIN + timedelta(days=number)).strftime("%Y-%m-%d") for number in range(days)])
    return dates.take(pa.array(seconds // _DAY_SECONDS))


_WIDE = Shape(_WIDE_DDL, wide_values)
_LARGE = Shape(_LARGE_DDL, large_values)
_KINDS: dict[str, Callable[[str, int], Load]] = {
    "orders": lambda name, number: orders_load(name, even(number, _KAFKA_PARTITIONS)),
    "orders-avro": lambda name, number: avro_orders_load(name, even(number, _KAFKA_PARTITIONS)),
    "orders-protobuf": lambda name, number: protobuf_orders_load(name, even(number, _KAFKA_PARTITIONS)),
    "wide": lambda name, number: Load(name, _WIDE, even(number, _KAFKA_PARTITIONS), _DAYS, 1_500),
    "large": lambda name, number: Load(name, _LARGE, even(number, _KAFKA_PARTITIONS), _DAYS, _LARGE_BYTES),
    "skew": lambda name, number: orders_load(name, skewed(number)),
    "partitions": lambda name, number: orders_load(name, (_RECORDS_A_PARTITION,) * number),
    "tiny": lambda name, number: orders_load(name, even(number, _KAFKA_PARTITIONS)),
    "tiny-single": lambda name, number: replace(
        orders_load(name, even(number, _KAFKA_PARTITIONS)), transaction={"ops": "one"}
    ),
}
_OF_A_FIXED_SIZE = ("tiny", "tiny-single")
