"""Tables of a mirrored database whose columns change while it is read: each change is taken, waits for approval, or stops its own table
with a remedy; rows from before and after it are the same in hudi-rs and in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import BadRecord, SchemaNotApproved
from hudi_ingest.operations.upkeep.approvals import approve_schema_change
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest_tests.integration.test_mirror import LONG, TEXT, Columns, Mirror
from hudi_ingest_tests.lab.row_comparison import read_with_spark
from hudi_ingest_tests.support.ground import Ground, fresh_ground

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

INT = {"type": "int32"}
BIG = 2**40


def enum(*values: str) -> dict[str, Any]:
    kind = {"type": "string", "name": "io.debezium.data.Enum", "optional": True}
    return {**kind, "parameters": {"allowed": ",".join(values)}}


def time(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": f"io.debezium.time.{name}", "optional": True}


BEFORE: dict[str, Columns] = {
    "taken": {"id": LONG, "n": INT, "m": LONG, "state": enum("a", "b"), "note": {"type": "string"}},
    "log": {"id": LONG, "n": INT, "city": TEXT, "old": TEXT},
    "shed": {"id": LONG, "city": TEXT, "old": TEXT},
    "held": {"id": LONG, "n": INT},
    "times": {"id": LONG, "at": time("int32", "Time")},
    "reals": {"id": LONG, "r": {"type": "float"}},
}
AFTER: dict[str, Columns] = {
    # Wider, narrower, with one value more, nullable with a default, added with a default.
    "taken": {
        "id": LONG,
        "n": LONG,
        "m": INT,
        "state": enum("a", "b", "c"),
        "note": {**TEXT, "default": "x"},
        "extra": {**TEXT, "default": "y"},
    },
    # Wider, renamed, dropped.
    "log": {"id": LONG, "n": LONG, "town": TEXT},
    "shed": {"id": LONG, "town": TEXT},
    "held": {"id": LONG, "n": INT, "note": TEXT},
    "times": {"id": LONG, "at": time("int64", "MicroTime")},
    "reals": {"id": LONG, "r": {"type": "double"}},
}


class Changing(Mirror):
    """Each of its tables is altered once."""

    def insert(self, table: str, *values: Any) -> None:
        row = dict(zip(self.columns[table], values, strict=True))
        self.send(table, None if table == "log" else ["id"], "c", None, row)

    def alter(self, table: str) -> None:
        self.columns[table] = AFTER[table]


@pytest.fixture
def mirror(bootstrap_servers: str, tmp_path: Path) -> Iterator[Changing]:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        yield mirror_of(ground)


def own(ground: Ground, **more: Any) -> dict[str, Any]:
    """What single tables have of their own in the file."""
    tables = {"log": {"mode": "append"}, "held": {"on_schema_change": "refuse"}, **more}
    return {f"{ground.name}.{table}": settings for table, settings in tables.items()}


def mirror_of(ground: Ground) -> Changing:
    return Changing(ground, BEFORE, tables=own(ground))


def test_s10_each_change_of_a_column_ends_as_documented_and_all_rows_are_right_in_both_readers(
    mirror: Changing,
) -> None:
    # Stops: the source drops a column, and renames one.
    mirror.insert("shed", 1, "Bern", "o1")
    mirror.insert("shed", 2, "Bonn", "o2")
    assert mirror.run("shed").rows == 2
    mirror.insert("shed", 1, "Basel", "o1")
    mirror.alter("shed")
    mirror.insert("shed", 3, "Chur")
    topic = mirror.topic("shed")
    with pytest.raises(BadRecord, match=r"field city: .*would erase its value") as stopped:
        mirror.run("shed")
    assert f"{topic}:0:3" in str(stopped.value)
    assert f"`optional_fields: [city, old]` for {topic} under `tables`" in str(stopped.value)
    assert "not among the columns: town" in str(stopped.value)
    assert mirror.rows("shed", "id", "city", "old") == [(1, "Bern", "o1"), (2, "Bonn", "o2")]

    # Taken, while that table stands: all that a table can hold as it is, or by a wider column or a new one.
    for number in range(3):
        mirror.insert("taken", number, number, BIG, "a", f"n{number}")
    assert mirror.run("taken").rows == 3
    mirror.insert("taken", 1, 11, 1, "b", "m1")
    mirror.alter("taken")
    mirror.insert("taken", 2, BIG, 7, "c", None, "e2")
    mirror.insert("taken", 3, 3, 3, "a", "n3", "e3")
    receipt = mirror.run("taken")
    assert receipt.plan.schema_changes == ("column n becomes long; it was int", "column extra string is added")
    # hudi-rs reads no log files from before a column was widened.
    run_services(mirror.pipeline("taken"), compact=True, clean=False, home=mirror.ground.home)
    assert mirror.rows("taken") == [
        (0, 0, BIG, "a", "n0", None),
        (1, 11, 1, "b", "m1", None),
        (2, BIG, 7, "c", None, "e2"),
        (3, 3, 3, "a", "n3", "e3"),
    ]

    # In a table that only grows no row erases another.
    mirror.insert("log", 1, 1, "Bern", "o1")
    assert mirror.run("log").rows == 1
    mirror.insert("log", 2, 2, "Bonn", "o2")
    mirror.alter("log")
    mirror.insert("log", 3, BIG, "Chur")
    assert mirror.run("log").plan.schema_changes == (
        "column n becomes long; it was int",
        "column town string is added",
    )
    assert mirror.rows("log", "id", "n", "city", "old", "town") == [
        (1, 1, "Bern", "o1", None),
        (2, 2, "Bonn", "o2", None),
        (3, BIG, None, None, "Chur"),
    ]

    # Held for approval.
    mirror.insert("held", 1, 1)
    assert mirror.run("held").rows == 1
    mirror.alter("held")
    mirror.insert("held", 2, 2, "n2")
    with pytest.raises(SchemaNotApproved) as held:
        mirror.run("held")
    assert held.value.changes == ("column note string is added",)
    approve_schema_change(mirror.pipeline("held"), held.value.fingerprint)
    assert mirror.run("held").rows == 1
    assert mirror.rows("held") == [(1, 1, None), (2, 2, "n2")]

    # A wider type whose numbers have another unit: time(3) becomes time(6).
    mirror.insert("times", 1, 36_000_000)
    assert mirror.run("times").rows == 1
    mirror.alter("times")
    mirror.insert("times", 1, 36_000_000_000)
    with pytest.raises(
        BadRecord, match=r"field at: expected int, as in the table.*found io\.debezium\.time\.MicroTime"
    ):
        mirror.run("times")
    assert mirror.rows("times") == [(1, 36_000_000)]

    # The remedy lets go of the columns of the one table.
    mirror.write(tables=own(mirror.ground, shed={"optional_fields": ["city", "old"]}))
    assert mirror.run("shed").plan.schema_changes == ("column town string is added",)
    assert mirror.rows("shed", "id", "city", "old", "town") == [
        (1, "Basel", "o1", None),
        (2, "Bonn", "o2", None),
        (3, None, None, "Chur"),
    ]


def test_s10_a_real_that_becomes_a_double_is_the_same_for_all_readers_before_and_after_compactions(
    mirror: Changing,
) -> None:
    """As it is written, 0.1 for 0.1, from base files, log files and what compactions make of them."""
    pipeline, home = mirror.pipeline("reals"), mirror.ground.home
    mirror.insert("reals", 1, 0.1)
    mirror.insert("reals", 2, 0.33333334)
    mirror.run("reals")
    run_services(pipeline, compact=True, clean=False, home=home)
    mirror.insert("reals", 3, 3.4028235e38)
    mirror.insert("reals", 2, 16777216.0)
    mirror.run("reals")
    mirror.alter("reals")
    mirror.insert("reals", 4, 0.1)
    assert mirror.run("reals").plan.schema_changes == ("column r becomes double; it was float",)
    expected = [(1, 0.1), (2, 16777216.0), (3, 3.4028235e38), (4, 0.1)]
    path = pipeline.table.base_path
    assert sorted((row["id"], row["r"]) for row in read_with_spark(path, home)) == expected
    for _ in range(2):
        run_services(pipeline, compact=True, clean=False, home=home)
        assert mirror.rows("reals") == expected
        mirror.insert("reals", 4, 0.1)
        mirror.run("reals")
    assert mirror.rows("reals") == expected
