"""P1, P2: what a commit says of its offsets reads back as it was written, also by later versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.accounting import Accounting, SliceAccount
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
