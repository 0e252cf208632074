"""The dictionary that keyed tables are compared with: what it says must be what docs/keyed-tables.md says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest_tests.support.changing_rows import ChangingRows, Form
from hudi_ingest_tests.support.keyed_model import Change, KeyedModel

FORMS: tuple[Form, ...] = ("debezium", "mirror", "fields")


def change(offset: int, row: str | None, ordering: int | None = None, at: str = "d1") -> Change:
    return Change(at, "k", 0, offset, None if row is None else {"note": row}, ordering)


def notes(*changes: Change, compacted_before: int = -1) -> list[str]:
    model = KeyedModel()
    for one in changes:
        if one.offset == compacted_before:
            model.compact()
        model.apply([one])
    return [str(row["note"]) for row in model.rows().values()]


def test_p8_the_greatest_ordering_wins_and_the_later_offset_among_equals() -> None:
    assert notes(change(0, "a", 5), change(1, "b", 4)) == ["a"]
    assert notes(change(0, "a", 5), change(1, "b", 5)) == ["b"]
    assert notes(change(1, "b", 5), change(0, "a", 5)) == ["b"]
    assert notes(change(0, "a"), change(1, "b")) == ["b"]


def test_p8_a_deleted_key_stays_deleted_against_late_changes_until_a_compaction() -> None:
    assert notes(change(0, "a", 5), change(1, None, 6), change(2, "b", 5)) == []
    assert notes(change(0, "a", 5), change(1, None, 6), change(2, "b", 6)) == ["b"]
    assert notes(change(0, "a", 5), change(1, None, 6), change(2, "b", 5), compacted_before=2) == ["b"]


def test_p8_a_key_that_moves_leaves_no_second_row() -> None:
    assert notes(change(0, "a"), change(1, None), change(1, "b", at="d2")) == ["b"]


def test_p8_a_delete_of_all_keys_spares_what_comes_after_it() -> None:
    truncate = Change("", "", 0, 5, None)
    model = KeyedModel()
    model.apply([change(0, "a"), change(1, "b", at="d2")])
    model.apply([change(7, "c", at="d3"), truncate, change(4, "d", at="d4")])
    assert [*model.rows()] == [("d3", "k")]
    model.compact()
    model.apply([change(2, "e"), truncate, change(7, "c", at="d3")])
    assert [*model.rows()] == [("d3", "k")]


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 2**32), start=st.integers(0, 59), parts=st.integers(1, 60))
def test_p8_rows_depend_neither_on_how_changes_are_parted_nor_on_a_replay_to_the_end(
    form: Form, seed: int, start: int, parts: int
) -> None:
    changes = [one for record in ChangingRows(form).records(random.Random(seed), 60) for one in record.changes]
    at_once, parted = KeyedModel(), KeyedModel()
    at_once.apply(changes)
    for first in range(0, len(changes), parts):
        parted.apply(changes[first : first + parts])
    assert parted.rows() == at_once.rows()
    parted.compact()
    # A late change of a key that was deleted before `start` would come back, once its delete is forgotten.
    parted.apply(changes[0 if form == "fields" else start :])
    assert parted.rows() == at_once.rows()
    moved = [key for _, key in at_once.rows()]
    assert len(moved) == len(set(moved))
