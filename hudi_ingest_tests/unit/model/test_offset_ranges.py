"""Ranges of offsets are sets of offsets: whatever is done to them, it is what the sets would give."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.replaced_files import runs, within
from hudi_ingest.model.offsets import Ranges, difference, from_bounds, intersection, length, ranges, to_bounds, union

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def offsets(found: Ranges) -> set[int]:
    return {each for start, end in found for each in range(start, end)}


@given(pairs, pairs)
def test_ranges_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = ranges(one), ranges(other)
    assert offsets(a) == {each for start, end in one for each in range(start, end)}
    assert offsets(union(a, b)) == offsets(a) | offsets(b)
    assert offsets(intersection(a, b)) == offsets(a) & offsets(b)
    assert offsets(difference(a, b)) == offsets(a) - offsets(b)
    assert length(a) == len(offsets(a))
    # Equal sets are equal ranges.
    assert union(difference(a, b), intersection(a, b)) == a


@given(pairs, st.integers(0, 40))
def test_bounds_come_back(given_pairs: list[tuple[int, int]], end: int) -> None:
    found = ranges(given_pairs)
    assert from_bounds(to_bounds(found, end), end) == found
    assert to_bounds(ranges([(3, end + 4)]), end + 4) == [3]


@given(st.lists(st.integers(0, 60)), pairs)
def test_runs_and_membership(numbers: list[int], given_pairs: list[tuple[int, int]]) -> None:
    assert offsets(runs(numbers)) == set(numbers)
    assert runs(numbers) == ranges(runs(numbers))
    found = ranges(given_pairs)
    inside = within(pa.array(numbers, pa.int64()), found).to_pylist()
    assert inside == [each in offsets(found) for each in numbers]
