"""P1, P2: what a commit says of its offsets reads back as it was written, also by later versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hudi_ingest.model.accounting import Accounting, SliceAccount, contradictions
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import LossReason, OffsetLoss, TakeOver, TransactionKind

pytestmark = pytest.mark.fast

topics = st.text(min_size=1, max_size=5)
numbers = st.integers(0, 2**62)
slices = st.builds(
    lambda topic, partition, start, count: Slice(topic, partition, start, start + count),
    topics,
    numbers,
    numbers,
    numbers,
)
losses = st.builds(
    OffsetLoss, topics, numbers, numbers, st.none() | numbers, st.none() | numbers, st.sampled_from(LossReason)
)
accounts = st.builds(SliceAccount, slices, numbers, **dict.fromkeys(Counts().counts, numbers))
take_overs = st.builds(
    TakeOver, topics, topics, st.dictionaries(st.builds(TopicPartition, topics, numbers), numbers, max_size=2)
)
accountings = st.builds(
    Accounting,
    topics,
    numbers,
    st.sampled_from(TransactionKind),
    st.lists(accounts, max_size=3).map(tuple),
    st.lists(losses, max_size=2).map(tuple),
    st.booleans(),
    st.lists(topics, max_size=2).map(tuple),
    st.none() | take_overs,
)


@given(accountings)
def test_p1_p2_an_accounting_reads_back_as_it_was_written(accounting: Accounting) -> None:
    assert Accounting.from_json(accounting.to_json()) == accounting


def test_p1_the_text_is_what_tables_have_now() -> None:
    account = SliceAccount(Slice("orders", 1, 5, 25), attempt=2, rows=7, skipped=1, filtered=3, rejected=4, gaps=5)
    loss = OffsetLoss("orders", 0, 3, 7, 4, LossReason.RETENTION)
    accounting = Accounting("orders-000002-abc", 2, TransactionKind.INGEST, (account,), (loss,))
    assert accounting.to_json() == (
        '{"version":1,"transaction":"orders-000002-abc","sequence":2,"kind":"ingest","slices":[{"topic":"orders",'
        '"partition":1,"start":5,"end":25,"rows":7,"skipped":1,"filtered":3,"rejected":4,"gaps":5,"attempt":2}],'
        '"resets":[{"topic":"orders","partition":0,"committed":3,"restart":7,"lost":4,"reason":"retention"}],'
        '"schema_changes":[]}'
    )
    assert account.counted == account.slice.count
    keyed = SliceAccount(Slice("orders", 1, 5, 15), rows=10, attempt=2, deletes=3, superseded=4, moves=1)
    assert keyed.to_dict().items() >= {("deletes", 3), ("superseded", 4), ("moves", 1)}
    assert (keyed.counted, keyed.rows_in_files) == (10, 7)


def test_p1_commits_of_versions_without_kinds_losses_and_bad_records_are_read() -> None:
    oldest = {
        "version": 1,
        "transaction": "orders-000001-abc",
        "sequence": 1,
        "slices": [{"topic": "orders", "partition": 0, "start": 0, "end": 3, "rows": 2, "skipped": 1}],
    }
    accounting = Accounting.from_json(json.dumps(oldest))
    assert accounting.kind is TransactionKind.INGEST
    assert (accounting.resets, accounting.rejected, accounting.rows) == ((), 0, 2)
    assert accounting.slices[0].counted == 3


def checkpoint_of(sequence: int, offsets: dict[TopicPartition, int]) -> Checkpoint:
    return Checkpoint(sequence, f"t{sequence}", offsets)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Checkpoint, list[Accounting]]:
    """A checkpoint, and the accountings of all transactions that led to it, oldest first."""
    offsets: dict[TopicPartition, int] = {}
    accountings: list[Accounting] = []
    for sequence in range(1, draw(st.integers(1, 6)) + 1):
        kind = draw(st.sampled_from(TransactionKind))
        accounts, resets = [], []
        for number in sorted(draw(st.sets(st.integers(0, 2), min_size=1))):
            source = TopicPartition("orders", number)
            start, count = offsets.get(source, 7), draw(st.integers(0, 5))
            if kind.moves_offsets and source in offsets and draw(st.booleans()):
                restart = draw(st.none() | st.integers(0, 9))
                resets.append(OffsetLoss("orders", number, start, restart, None, LossReason.RETENTION))
                del offsets[source]
                if restart is None:
                    continue
                start = restart
            if kind.moves_offsets:
                offsets[source] = start + count
            accounts.append(SliceAccount(Slice("orders", number, start, start + count), rows=count))
        accountings.append(Accounting(f"t{sequence}", sequence, kind, tuple(accounts), tuple(resets)))
    return checkpoint_of(len(accountings), offsets), accountings


@given(histories(), st.integers(0, 6))
def test_p2_p7_a_checkpoint_agrees_with_the_accountings_it_counts(
    history: tuple[Checkpoint, list[Accounting]], archived: int
) -> None:
    checkpoint, accountings = history
    assert [*contradictions(checkpoint, reversed(accountings[archived:]))] == []


@given(histories(), st.integers(0, 2), st.sampled_from([-5, -1, 1, 5]))
def test_p2_p7_an_offset_that_was_changed_is_named_with_both_numbers(
    history: tuple[Checkpoint, list[Accounting]], number: int, change: int
) -> None:
    checkpoint, accountings = history
    assume(checkpoint.offsets)
    source = sorted(checkpoint.offsets)[number % len(checkpoint.offsets)]
    right = checkpoint.offsets[source]
    changed = checkpoint_of(checkpoint.sequence, {**checkpoint.offsets, source: right + change})
    (found,) = contradictions(changed, reversed(accountings))
    assert (found.source, found.read_to, found.committed) == (source, right, right + change)
    says = f"the checkpoint says {right + change} ({found.transaction_id} read it last)"
    assert str(found) == f"{source} was read up to {right}, but {says}"
    # A partition that is gone from the checkpoint would be read from the start.
    gone = checkpoint_of(checkpoint.sequence, {each: at for each, at in checkpoint.offsets.items() if each != source})
    assert [(each.source, each.committed) for each in contradictions(gone, reversed(accountings))] in (
        [(source, None)],
        [],
    )


def test_p7_a_partition_that_the_newest_transaction_read_may_not_be_gone() -> None:
    account = SliceAccount(Slice("orders", 0, 0, 9000), rows=9000)
    accounting = Accounting("t1", 1, TransactionKind.INGEST, (account,))
    (found,) = contradictions(checkpoint_of(1, {}), [accounting])
    assert (found.read_to, found.committed) == (9000, None)


def test_p7_nothing_is_known_behind_a_gap_in_the_numbers() -> None:
    """Archival keeps a savepoint's commit when it removes later ones."""
    account = SliceAccount(Slice("orders", 0, 0, 5), rows=5)
    old, newest = (
        Accounting("t1", 1, TransactionKind.INGEST, (account,)),
        Accounting("t3", 3, TransactionKind.REPLAY, ()),
    )
    assert [*contradictions(checkpoint_of(3, {account.slice.source: 9}), [newest, old])] == []
