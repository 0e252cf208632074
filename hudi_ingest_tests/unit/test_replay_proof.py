"""The judge of `make replay-proof` finds what it is there to find; the real run is e2e/test_replay_proof.py."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hudi_ingest_tests.replay_proof import reader
from hudi_ingest_tests.replay_proof.judge import Transaction, Turn, judge_polls, turns
from hudi_ingest_tests.replay_proof.poll import Poll, Run

pytestmark = pytest.mark.fast

ASKED = {0: 100, 1: 100}
FIRST, SECOND = (
    Transaction(f"t-{name}", name, "replay", 0, 0, {0: slice, 1: slice}, 2)
    for name, slice in (("r1", (0, 60)), ("r2", (60, 100)))
)


def poll(*runs: Run) -> Poll:
    return Poll(
        0, 1, sum(each.end - each.start for each in runs), 0, tuple(sorted(runs, key=lambda r: (r.partition, r.start)))
    )


def both(*runs: tuple[int, int, int, str]) -> list[Run]:
    return [Run(partition, *run) for partition in (0, 1) for run in runs]


OLD = poll(*both((0, 100, 1, "a"), (100, 130, 1, "b")))
HALF = poll(*both((0, 60, 2, "r1"), (60, 100, 1, "a"), (100, 130, 1, "b"), (130, 140, 2, "c")))
NEW = poll(*both((0, 60, 2, "r1"), (60, 100, 2, "r2"), (100, 130, 1, "b"), (130, 140, 2, "c")))


def found(*polls: Poll) -> set[str]:
    return set(judge_polls(polls, ASKED, [FIRST, SECOND]).findings)


def test_each_replay_switches_all_its_rows_at_once_while_live_rows_come() -> None:
    verdict = judge_polls([OLD, OLD, HALF, NEW], ASKED, [FIRST, SECOND])
    assert verdict.findings.total() == 0, verdict.first
    assert verdict.states == {(200, 0, 0): 2, (80, 120, 0): 1, (0, 200, 0): 1}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("duplicate", poll(*both((0, 41, 1, "a"), (40, 100, 1, "a")))),
        ("duplicate", poll(*both((0, 100, 1, "a"), (99, 130, 1, "b")))),
        ("hole", poll(*both((0, 50, 1, "a"), (51, 100, 1, "a")))),
        ("hole", poll(*both((0, 100, 1, "a"), (101, 130, 1, "b")))),
        ("hole", poll(*both((1, 100, 1, "a")))),
        ("hole", poll(*both((0, 99, 1, "a")))),
        ("hole", poll(Run(0, 0, 100, 1, "a"))),
        ("foreign", poll(*both((0, 100, 1, "a")), Run(2, 0, 1, 1, "a"))),
        ("foreign", Poll(0, 1, 200, 3, tuple(both((0, 100, 1, "a"))))),
        ("torn", poll(Run(0, 0, 60, 2, "r1"), Run(0, 60, 100, 1, "a"), Run(1, 0, 100, 1, "a"))),
        ("wrong value", poll(*both((0, 60, 1, "r1"), (60, 100, 1, "a")))),
        ("wrong value", poll(*both((0, 100, 2, "a")))),
        ("wrong value", poll(*both((0, 100, 1, "a"), (100, 110, 0, "b")))),
        ("unreadable", Poll(0, 0, error="no such file")),
    ],
)
def test_a_poll_that_may_not_be_is_found(kind: str, wrong: Poll) -> None:
    assert found(wrong) == {kind}


def test_what_was_seen_stays() -> None:
    assert found(NEW, HALF) == {"undone"}
    gone = poll(*both((0, 100, 1, "a"), (100, 120, 1, "b")))
    assert found(OLD, gone) == {"live rows changed"}
    again = poll(*both((0, 100, 1, "a"), (100, 130, 1, "c")))
    assert found(OLD, again) == {"live rows changed"}


def test_a_live_transaction_that_is_due_is_overtaken_once_at_most() -> None:
    def one(kind: str, began: float) -> Transaction:
        return Transaction(f"{kind}-{began:g}", str(began), kind, began, began + 4, {})

    fair = [one("ingest", 0), one("replay", 4), one("replay", 6), one("ingest", 11), one("ingest", 16)]
    assert turns(fair, 4) == [Turn("ingest-11", 7, 1)]
    unfair = [one("ingest", 0), one("replay", 6), one("replay", 11), one("ingest", 16)]
    assert turns(unfair, 4) == [Turn("ingest-16", 12, 2)]


def test_the_reader_tells_the_rows_by_their_borders() -> None:
    rows = pa.table(
        {
            "_hoodie_commit_time": ["a", "b", "a", "a", "b", "a"],
            "_kafka_partition": pa.array([0, 1, 0, 0, 1, 0], pa.int32()),
            "_kafka_offset": pa.array([1, 0, 0, 1, 2, 2]),
            "n": pa.array([1, 0, 0, 1, 2, 7]),
            "cents": pa.array([150, 99, 150, 150, 99, 150]),
            "amount": pa.array([150.0, 0.99, 150.0, 150.0, 0.5, 0.15]),
        }
    )
    told = reader.told(rows)
    assert told["foreign"] == 1
    assert told["runs"] == [
        [0, 0, 2, 1, "a"],
        [0, 1, 2, 1, "a"],
        [0, 2, 3, 2, "a"],
        [1, 0, 1, 3, "b"],
        [1, 2, 3, 0, "b"],
    ]
