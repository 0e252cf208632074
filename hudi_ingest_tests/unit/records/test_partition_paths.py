"""H4: table partition paths, and that one value is always one folder."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.hudi_keys import DEFAULT_PARTITION, UNSAFE, escape, folder_bytes, partition_path


def test_h4_hive_style_paths() -> None:
    assert partition_path([], []) == ""
    assert partition_path(["dt", "n"], [datetime.date(2026, 1, 2), 7]) == "dt=2026-01-02/n=7"
    assert partition_path(["ok"], [True]) == "ok=true"


def test_paths_of_values_alone() -> None:
    assert partition_path([], [], hive_style=False) == ""
    assert partition_path(["dt", "n"], [datetime.date(2026, 1, 2), 7], hive_style=False) == "2026-01-02/7"
    assert partition_path(["a", "b"], [None, "x=1/y"], hive_style=False) == f"{DEFAULT_PARTITION}/x%3D1%2Fy"
    assert folder_bytes("column", "grün", hive_style=False) == 5
    assert folder_bytes("column", "grün") == 12


@pytest.mark.parametrize("value", [".hoodie", "..", ".", "_hidden", "__HIVE_DEFAULT_PARTITION__x"])
def test_a_value_alone_never_names_a_folder_that_is_no_partition(value: str) -> None:
    assert partition_path(["a"], [value]) == f"a={value}"
    with pytest.raises(ValueError, match="column a: a folder cannot be called"):
        partition_path(["a"], [value], hive_style=False)


def test_x6_where_signs_are_not_escaped_a_value_with_them_has_no_folder() -> None:
    assert partition_path(["a", "n"], ["2026-01-02 x", 7], escaped=False) == "a=2026-01-02 x/n=7"
    assert partition_path(["a", "b"], [None, ""], escaped=False) == f"a={DEFAULT_PARTITION}/b={DEFAULT_PARTITION}"
    with pytest.raises(ValueError, match="column a: '2026/01/02' has signs"):
        partition_path(["a"], ["2026/01/02"], escaped=False)


def test_x6_the_expression_finds_exactly_what_is_escaped() -> None:
    signs = [chr(code) for code in range(0x500)]
    found = pc.match_substring_regex(pa.array(signs, pa.string()), UNSAFE).to_pylist()
    assert found == [escape(each) != each for each in signs]


def test_null_and_empty_share_hives_default_folder() -> None:
    assert partition_path(["a"], [None]) == partition_path(["a"], [""]) == f"a={DEFAULT_PARTITION}"


def test_unsafe_characters_are_escaped() -> None:
    assert partition_path(["a"], ["../x=1%\n"]) == "a=..%2Fx%3D1%25%0A"
    assert partition_path(["a"], ["\x00\x1f\x7f"]) == "a=%00%1F%7F"
    assert partition_path(["a"], ["grün 🙂"]) == "a=grün 🙂"


@given(st.text(), st.text())
def test_escaping_loses_nothing_and_makes_one_folder(one: str, two: str) -> None:
    assert (escape(one) == escape(two)) == (one == two)
    assert "/" not in escape(one)
    assert "=" not in escape(one)
