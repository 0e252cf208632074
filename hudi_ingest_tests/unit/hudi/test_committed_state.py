"""Where a table stands, and which of a pipeline's commits another writer rolled back, told from what is left of the active timeline."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hudi_ingest.exceptions import OffsetsLost, TableMismatch
from hudi_ingest.hudi.timeline.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.hudi.timeline.pipeline_table import committed_state, missing_sequences
from hudi_ingest.hudi.timeline.timeline import PIPELINE_PROPERTY, CommittedInstant, instant_time
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition, TopicVersion
from hudi_ingest.model.plan import IngestPlan


@pytest.mark.parametrize(
    ("sequences", "own", "savepoints", "missing"),
    [
        ({"10": 1, "20": 2, "30": 3}, "10 20 30", "", ()),
        ({"20": 2, "30": 3}, "20 30", "", ()),
        ({"15": 0, "30": 3, "35": 3}, "30", "", ()),
        ({"10": 1, "30": 3}, "10 30", "", (2,)),
        ({"10": 1, "20": 2, "35": 3}, "10 20", "", (3,)),
        ({"10": 1, "35": 3}, "10", "", (2, 3)),
        ({"25": 2, "35": 3}, "", "", (3,)),
        ({"35": 3, "40": 3}, "", "", ()),
        ({"10": 1, "35": 3, "40": 3}, "10", "10", ()),
        ({"10": 1, "20": 2, "30": 3}, "10 20 30", "20", ()),
        ({"10": 1, "20": 2, "35": 3}, "10 20", "10", (3,)),
    ],
    ids=[
        "all are there",
        "the oldest is archived",
        "others' commits around ours",
        "one in the middle is rolled back",
        "the last is rolled back, its checkpoint is carried on",
        "the last two are",
        "the only one left is rolled back",
        "all of ours are archived",
        "all of ours but a savepointed one are archived",
        "a savepoint in the middle of what is there",
        "the last is rolled back, and one has a savepoint",
    ],
)
def test_p6_p7_a_commit_rolled_back_is_told_from_an_archived_one(
    sequences: dict[str, int], own: str, savepoints: str, missing: tuple[int, ...]
) -> None:
    checkpoint = Checkpoint(3, "t3", {}, instant="30")
    assert missing_sequences(checkpoint, sequences, set(own.split()), savepoints.split()) == missing


def test_p7_another_writers_commit_that_carries_an_older_checkpoint_does_not_take_offsets_back() -> None:
    def commit(instant: str, sequence: int, completed: str, own: bool = True) -> CommittedInstant:
        text = Checkpoint(sequence, f"t{sequence}", {}, instant=f"2026112310000{sequence}000").to_json()
        accounting = Accounting.of(IngestPlan("orders", f"t{sequence}", sequence, ()), ()).to_json()
        metadata = {"checkpoint": text, **({"transaction": accounting} if own else {})}
        return CommittedInstant(instant, metadata, instant_time(completed))

    # It began after our newest commit had begun and before that completed, and completed after it.
    others = commit("20261123100003500", 2, "20261123100009000", own=False)
    ours = [commit(f"2026112310000{number}000", number, f"2026112310000{number}900") for number in (3, 2)]
    timeline: Any = SimpleNamespace(
        base_path="/data/orders", exists=lambda: True, completed=lambda: (others, *ours), savepoints=tuple
    )
    found = committed_state(timeline, "checkpoint", "transaction")
    assert found.checkpoint is not None
    assert found.checkpoint.sequence == 3


def timeline_of(*commits: CommittedInstant, pipeline: str = "orders") -> Any:
    return SimpleNamespace(
        base_path="/data/orders",
        exists=lambda: True,
        completed=lambda: commits,
        savepoints=tuple,
        properties=lambda: {PIPELINE_PROPERTY: pipeline},
    )


CHECKPOINT_KEY, TRANSACTION_KEY = "hudi_ingest.checkpoint.orders", "hudi_ingest.transaction.orders"
SOURCE = TopicPartition("orders", 0)


def ours(number: int, began: str, completed: str) -> CommittedInstant:
    checkpoint = Checkpoint(
        number, f"t{number}", {SOURCE: 10 * number}, instant=began, topics={"orders": TopicVersion("id")}
    )
    accounting = Accounting.of(IngestPlan("orders", f"t{number}", number, ()), ())
    metadata = {CHECKPOINT_KEY: checkpoint.to_json(), TRANSACTION_KEY: accounting.to_json()}
    return CommittedInstant(began, metadata, instant_time(completed))


def others(instant: str, completed: str, metadata: dict[str, str]) -> CommittedInstant:
    return CommittedInstant(instant, metadata, instant_time(completed))


def test_p2_a_table_of_the_pipeline_that_lost_its_checkpoint_is_not_begun_anew() -> None:
    foreign = others("20261123100003500", "20261123100003900", {})
    with pytest.raises(OffsetsLost, match="none of its 1 active commits carries"):
        committed_state(timeline_of(foreign), CHECKPOINT_KEY, TRANSACTION_KEY)
    assert committed_state(timeline_of(), CHECKPOINT_KEY, TRANSACTION_KEY).checkpoint is None
    of_another = timeline_of(foreign, pipeline="payments")
    assert committed_state(of_another, CHECKPOINT_KEY, TRANSACTION_KEY).checkpoint is None


@pytest.mark.parametrize(
    ("topic", "ahead", "refused"), [("orders", 21, True), ("orders", 20, False), ("clicks", 21, False)]
)
def test_x6_another_system_that_has_read_on_stops_the_pipeline(topic: str, ahead: int, refused: bool) -> None:
    commits = (
        others("20261123100005000", "20261123100005900", {STREAMER_KEY: streamer_text(topic, {0: ahead})}),
        ours(2, "20261123100002000", "20261123100002900"),
    )
    if refused:
        with pytest.raises(TableMismatch, match="ends at orders:0 21, ahead of the committed offsets"):
            committed_state(timeline_of(*commits), CHECKPOINT_KEY, TRANSACTION_KEY)
    else:
        assert committed_state(timeline_of(*commits), CHECKPOINT_KEY, TRANSACTION_KEY).checkpoint is not None


def test_when_the_newest_transaction_began_and_when_it_was_completed_are_two_times() -> None:
    commits = (
        ours(2, "20261123100002000", "20261123100009000"),
        others("20261123100003500", "20261123100003900", {}),
        ours(1, "20261123100001000", "20261123100001500"),
    )
    state = committed_state(timeline_of(*commits), CHECKPOINT_KEY, TRANSACTION_KEY)
    assert state.last_began_at == instant_time("20261123100002000")
    assert state.last_committed_at == instant_time("20261123100009000")
    assert state.transactions == ("t1", "t2")
