"""Plans of each kind and their JSON, which is in open instants, in Dagster's run configs and in its op outputs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.complete_through import Mark
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import (
    BackfillPlan,
    IngestPlan,
    LossReason,
    OffsetLoss,
    ReplacedFile,
    ReplayPlan,
    RetriedFile,
    Retry,
    RetryPlan,
    TakeOver,
    TransactionPlan,
)

HEAD = (
    '{"pipeline":"orders","transaction_id":"orders-000007-ab","sequence":7,"slices":[{"topic":"orders","partition":0,'
    '"start":3,"end":9}],"topics":{"orders":{"topic_id":"id","generation":1}},'
)
LOST = '{"topic":"orders","partition":0,"committed":1,"restart":3,"lost":2,"reason":"retention"}'
GONE = '{"topic":"orders","partition":1,"committed":7,"restart":null,"lost":null,"reason":"recreated"}'
SHARED: Any = {
    "pipeline": "orders",
    "transaction_id": "orders-000007-ab",
    "sequence": 7,
    "slices": (Slice("orders", 0, 3, 9),),
    "topics": {"orders": TopicVersion("id", 1)},
}
COVERED = {TopicPartition("orders", 0): ((0, 3), (9, 12))}
FILE = ReplacedFile("dt=1/f_0_1.parquet", 5, 2, 99, "orders", 0)
LETTERS = Retry((RetriedFile("a.parquet", 4, (Slice("orders", 0, 3, 4),), ("orders:0",)),), {"orders": 1})

WRITTEN = {
    HEAD + f'"resets":[{LOST}],"stopped":[{GONE}],"kind":"ingest","schema_changes":["a is added"]}}': IngestPlan(
        **SHARED,
        resets=(OffsetLoss("orders", 0, 1, 3, 2, LossReason.RETENTION),),
        stopped=(OffsetLoss("orders", 1, 7, None, None, LossReason.RECREATED),),
        schema_changes=("a is added",),
    ),
    HEAD + '"resets":[],"stopped":[],"kind":"ingest","schema_changes":[],"take_over":{"writer":"Hudi Streamer",'
    '"instant":"1","offsets":{"orders:0":3}}}': IngestPlan(
        **SHARED, take_over=TakeOver("Hudi Streamer", "1", {TopicPartition("orders", 0): 3})
    ),
    HEAD + '"resets":[],"stopped":[],"kind":"backfill","covered":[["orders:0",[[0,3],[9,12]]]],"schema_changes":[],'
    '"request":"orders-backfill-1"}': BackfillPlan(**SHARED, covered=COVERED, request="orders-backfill-1"),
    HEAD + '"resets":[],"stopped":[],"kind":"replay","covered":[["orders:0",[[0,3],[9,12]]]],"replaces":[{"path":'
    '"dt=1/f_0_1.parquet","rows":5,"kept":2,"size_bytes":99,"topic":"orders","partition":0}],"respect_deletes":true,'
    '"schema_changes":[],"request":"orders-replay-1"}': ReplayPlan(
        **SHARED, covered=COVERED, replaces=(FILE,), respect_deletes=True, request="orders-replay-1"
    ),
    HEAD + '"resets":[],"stopped":[],"kind":"retry","retry":{"files":[{"path":"a.parquet","letters":4,"without":'
    '[{"topic":"orders","partition":0,"start":3,"end":4}],"sources":["orders:0"]}],"generations":{"orders":1}},'
    '"schema_changes":[],"request":"orders-retry-1"}': RetryPlan(**SHARED, retry=LETTERS, request="orders-retry-1"),
}


@pytest.mark.parametrize(("text", "plan"), WRITTEN.items(), ids=lambda value: type(value).__name__)
def test_a_plan_is_read_and_written_as_it_always_was(text: str, plan: TransactionPlan) -> None:
    assert TransactionPlan.from_dict(json.loads(text)) == plan
    assert json.dumps(plan.to_dict(), separators=(",", ":")) == text


def test_a_plan_of_an_older_version_is_a_live_one() -> None:
    found = TransactionPlan.from_dict(json.loads(HEAD + '"resets":[],"stopped":[]}'))
    assert found == IngestPlan(**SHARED)


def test_a_plan_with_what_its_kind_cannot_have_is_refused() -> None:
    for own in (f'"resets":[{LOST}],"stopped":[],"kind":"backfill"', '"resets":[],"stopped":[],"request":"r"'):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            TransactionPlan.from_dict(json.loads(HEAD + own + "}"))


names = st.text(st.characters(exclude_characters=":"), min_size=1, max_size=9)
numbers = st.integers(0, 2**63)
slices = st.builds(lambda topic, at, count: Slice(topic, at % 99, at, at + count), names, numbers, st.integers(0, 9))
sources = st.builds(TopicPartition, names, st.integers(0, 99))
losses = st.lists(st.builds(OffsetLoss), max_size=2).map(tuple)
covered = st.dictionaries(sources, st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple), max_size=2)
own_fields: dict[type[TransactionPlan], dict[str, st.SearchStrategy[Any]]] = {
    IngestPlan: {
        "resets": losses,
        "stopped": losses,
        "marks": st.dictionaries(sources, st.builds(Mark, numbers, numbers), max_size=2),
        "said_through": st.none() | st.integers(1, 2**63),
        "take_over": st.none() | st.builds(TakeOver, offsets=st.dictionaries(sources, numbers, max_size=2)),
    },
    BackfillPlan: {"covered": covered, "request": st.text()},
    ReplayPlan: {
        "covered": covered,
        "request": st.text(),
        "replaces": st.lists(st.builds(ReplacedFile), max_size=2).map(tuple),
        "respect_deletes": st.booleans(),
    },
    RetryPlan: {
        "request": st.text(),
        "retry": st.builds(
            Retry,
            st.lists(
                st.builds(RetriedFile, without=st.lists(slices, max_size=2).map(tuple), sources=st.tuples(names)),
                min_size=1,
                max_size=2,
            ).map(tuple),
            st.dictionaries(names, numbers, max_size=2),
        ),
    },
}
plans = st.sampled_from([*own_fields]).flatmap(
    lambda kind: st.builds(
        kind,
        slices=st.lists(slices, max_size=3).map(tuple),
        topics=st.dictionaries(names, st.builds(TopicVersion), max_size=2),
        schema_changes=st.lists(st.text(), max_size=2).map(tuple),
        **own_fields[kind],
    )
)


@given(plans)
def test_any_plan_survives_its_json(plan: TransactionPlan) -> None:
    text = json.dumps(plan.to_dict())
    read = TransactionPlan.from_dict(json.loads(text))
    assert read == plan
    assert json.dumps(read.to_dict()) == text
