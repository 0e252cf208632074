"""What a comparison of rows finds, and says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hudi_ingest_tests.lab.row_comparison import RowComparison, compare_rows

EXPECTED: list[dict[str, Any]] = [{"id": 1, "name": "a", "balance": Decimal("1.50")}, {"id": 2, "name": None}]


def test_equal_rows_in_any_order() -> None:
    comparison = compare_rows(EXPECTED, reversed(EXPECTED), "id")
    assert comparison.equal
    assert (comparison.rows, comparison.examples) == (2, ())


def test_each_difference_is_counted_and_named() -> None:
    found = [{"id": 1, "name": "b", "balance": Decimal("1.50")}, {"id": 3, "name": "c"}, {"id": 3, "name": "c"}]
    comparison = compare_rows(EXPECTED, found, "id")
    counts = (comparison.missing, comparison.extra, comparison.duplicate, comparison.different)
    assert counts == (1, 1, 1, 1)
    assert not comparison.equal
    assert comparison.examples == (
        "id 1: name is 'b' instead of 'a'",
        "id 2 is missing",
        "id 3 should not be there",
        "id 3 is there 2 times",
    )


def test_a_column_that_is_not_there_is_not_a_null() -> None:
    comparison = compare_rows(EXPECTED, [EXPECTED[0], {"id": 2}], "id")
    assert comparison.examples == ("id 2: name is no column instead of None",)


def test_true_is_not_one() -> None:
    assert compare_rows([{"id": 1, "vip": True}], [{"id": 1, "vip": 1}], "id").different == 1


def test_long_values_that_differ_at_their_end_are_different() -> None:
    comparison = compare_rows([{"id": 1, "notes": "x" * 99 + "a"}], [{"id": 1, "notes": "x" * 99 + "b"}], "id")
    assert (comparison.different, len(comparison.examples)) == (1, 1)


def test_a_key_of_two_columns_is_named_whole() -> None:
    expected = [{"shop": "a", "number": 1, "paid": 5}, {"shop": "a", "number": 2, "paid": 6}]
    found = [{"shop": "a", "number": 1, "paid": 7}, {"shop": "b", "number": 2, "paid": 6}]
    comparison = compare_rows(expected, found, "shop", "number")
    assert comparison.examples == (
        "shop a, number 1: paid is 7 instead of 5",
        "shop a, number 2 is missing",
        "shop b, number 2 should not be there",
    )


def test_the_total_has_every_difference() -> None:
    one = compare_rows(EXPECTED, EXPECTED[:1], "id")
    other = compare_rows(EXPECTED, [*EXPECTED, {"id": 3}], "id")
    total = RowComparison.total([one, other])
    assert (total.rows, total.missing, total.extra, total.examples) == (4, 1, 1, (*one.examples, *other.examples))
    assert not total.equal
