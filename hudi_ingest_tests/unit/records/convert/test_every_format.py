"""Whatever the bytes: no converter raises, every value is accounted for, and none depends on its neighbours."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest_tests.support.every_format import mutated, subjects
from hudi_ingest_tests.support.judges import judged, same
from hudi_ingest_tests.support.outcomes import comparable, outcome, outcomes

LARGE = 10_000_000
RELAXED = settings(max_examples=25, suppress_health_check=list(HealthCheck))
every = pytest.mark.parametrize("name", [*subjects()])


def kinds(found: list[tuple[str, Any]]) -> list[str]:
    return [kind for kind, _ in found]


@every
def test_good_records_are_rows_and_bad_ones_are_rejected_whatever_stands_beside_them(name: str) -> None:
    subject = subjects()[name]
    batch = [each for pair in zip(subject.bad, subject.good * len(subject.bad), strict=False) for each in pair]
    found = kinds(outcomes(subject.converter, subject.schema, [*batch, *subject.good]))
    assert found == ["rejected", "row"] * len(subject.bad) + ["row"] * len(subject.good)


@every
@RELAXED
@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_changed_records_have_one_outcome(name: str, chance: Random, count: int) -> None:
    subject = subjects()[name]
    records = [*subject.good, *subject.bad]
    outcomes(subject.converter, subject.schema, [mutated(chance, records) for _ in range(count)])


def test_every_format_has_its_judge() -> None:
    assert judged().keys() == subjects().keys()


@every
@settings(RELAXED, max_examples=10)
@given(st.data())
def test_rows_are_those_of_another_library_however_a_batch_is_cut_and_whatever_stands_beside_them(
    name: str, data: st.DataObject
) -> None:
    subject, judge = subjects()[name], judged()[name]
    written = [*map(judge.write, data.draw(st.lists(judge.rows, min_size=1, max_size=5)))]
    chance = data.draw(st.randoms(use_true_random=False))
    others = [mutated(chance, [*written, *subject.bad]) for _ in range(4)]
    batch = chance.sample([*written, *others], len(written) + len(others))
    whole = outcomes(subject.converter, subject.schema, batch)
    for value, (kind, found) in zip(batch, whole, strict=True):
        assert kind == "row" or value not in written, found
        if kind == "row" and (right := judge.read(value)) is not None:
            row = found.to_pylist()[0]
            assert same({column: row[column] for column in right}, right), (row, right)

    values = pa.array(batch, pa.binary())
    cuts = sorted({0, len(batch), *data.draw(st.lists(st.integers(1, len(batch)), max_size=3))})
    pieces = [values.slice(start, end - start) for start, end in pairwise(cuts)]
    in_pieces = [outcome(subject.converter.decode(piece), len(piece), subject.schema) for piece in pieces]
    assert comparable([each for piece in in_pieces for each in piece]) == comparable(whole)

    # So many that they are cut by the converter itself, between bad ones.
    beside = pa.array([*subject.bad, *batch * 30, *subject.bad], pa.binary())
    found = comparable(outcome(subject.converter.decode(beside), len(beside), subject.schema))
    assert found[len(subject.bad) :][: 30 * len(batch)] == comparable(whole) * 30


@every
def test_a_long_record_and_a_deep_one_spoil_no_other(name: str) -> None:
    subject = subjects()[name]
    first = subject.good[0]
    # Longer inside, and longer behind.
    long = [first[: len(first) // 2] + b"x" * LARGE + first[len(first) // 2 :], first + b"\0" * LARGE, b"\xff" * LARGE]
    batch = [first, *long, *([subject.nested] if subject.nested else []), first]
    found = subject.converter.decode(pa.array(batch, pa.binary()))
    rows = list(range(len(batch))) if found.kept is None else found.kept.to_pylist()
    assert rows[0] == 0 and rows[-1] == len(batch) - 1
    assert sorted([*rows, *(fault.index for fault in found.rejected)]) == list(range(len(batch)))
