"""The columns of a sample of JSON records, and what is said when there are none to be had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.json.converter import JsonConverter
from hudi_ingest.records.schema.columns import ddl
from hudi_ingest.records.schema.inference import Inferred, infer


def inferred(*records: Any) -> Inferred:
    return infer([(f"orders:0:{index}", json.dumps(each).encode()) for index, each in enumerate(records)])


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([{"a": 1}], "a long"),
        ([{"a": 1}, {"a": 1.5}], "a double"),
        ([{"a": 1.5}, {"a": 2**70}], "a double"),
        ([{"a": True}, {"a": None}], "a boolean"),
        ([{"a": "2026-01-01"}, {"a": "soon"}], "a string"),
        ([{"b": "x"}, {"a": 1, "b": "y"}], "b string, a long"),
        ([{"s": {"x": 1}}, {"s": {"y": "t"}}, {"s": None}], "s struct<x:long,y:string>"),
        ([{"l": []}, {"l": [1, None, 2.5]}], "l array<double>"),
        ([{"l": [{"a": 1}, {"b": [True]}]}], "l array<struct<a:long,b:array<boolean>>>"),
    ],
)
def test_what_a_sample_says(records: list[Any], columns: str) -> None:
    found = inferred(*records)
    assert (found.problems, found.warnings) == ((), ())
    assert ddl(found.schema) == columns


def test_what_is_null_in_the_whole_sample_is_string_and_a_warning() -> None:
    found = inferred({"a": None, "l": [], "n": 1})
    assert ddl(found.schema) == "a string, l array<string>, n long"
    assert found.warnings == (
        "column a is null in the whole sample, and assumed to be string",
        "column l.element is null in the whole sample, and assumed to be string",
    )


def test_texts_that_are_all_dates_or_times_stay_text_and_the_better_type_is_named() -> None:
    found = inferred({"day": "2026-01-31", "at": "2026-01-31T12:00:00.5Z", "mixed": "2026-01-31"}, {"mixed": "x"})
    assert ddl(found.schema) == "day string, at string, mixed string"
    assert found.warnings == (
        "column day has only texts like dates; to store them so, declare it as date in table.schema",
        "column at has only texts like timestamps; to store them so, declare it as timestamp in table.schema",
    )


def test_a_rare_value_of_another_kind_is_a_bad_record_where_those_are_allowed() -> None:
    sample = [(f"t:0:{n}", json.dumps({"a": "x" if n == 7 else n, "b": 1.5 if n else 1}).encode()) for n in range(40)]
    assert "no type holds that" in infer(sample).problems[0]
    found = infer(sample, allows_bad=True)
    assert (ddl(found.schema), found.problems) == ("a long, b double", ())
    assert found.warnings == ("column a: found whole number in t:0:0 and text in t:0:7; records with text will be bad",)
    assert infer(sample[:10], allows_bad=True).problems, "one in ten is not rare"


def test_records_that_are_no_objects_are_counted() -> None:
    found = infer([("t:0:0", b"no json"), ("t:0:1", b"[1]"), ("t:0:2", b'{"a": 1}')])
    assert ddl(found.schema) == "a long"
    assert found.warnings == ("2 of 3 records are not JSON objects, and were ignored",)
    assert infer([("t:0:0", b"1")]).problems == ("none of 1 records is a JSON object",)
    assert infer([]).problems == ("there is no record with a value",)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (
            [{"a": 1}, {"a": "x"}],
            "column a: found whole number in orders:0:0 and text in orders:0:1; no type holds that",
        ),
        ([{"a": 2**63}], "column a: found whole number beyond long in orders:0:0; no type holds that"),
        ([{"s": {}}], "column s: found only empty objects, found object in orders:0:0; a struct needs a field"),
        ([{"a-b": 1}], "column a-b: Hudi cannot store this name"),
        ([{"a": 1, "A": 1}], "column A: differs from a only in case"),
        ([{"_hoodie_x": 1}], "column _hoodie_x: names beginning with _hoodie_"),
        (
            [{"_tmp_metadata_row_index": 1}],
            "column _tmp_metadata_row_index: this name belongs to Spark's Parquet reader",
        ),
        ([{}], "the records have no fields"),
    ],
)
def test_what_no_table_can_have_is_a_problem(records: list[Any], problem: str) -> None:
    found = inferred(*records)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(problem)


_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text("xyz"),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, min_size=1)),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), _VALUES, min_size=1), min_size=1, max_size=5))
def test_records_fit_the_columns_that_are_inferred_from_them(records: list[Any]) -> None:
    found = inferred(*records)
    if found.problems:
        return
    import pyarrow as pa

    values = pa.array([json.dumps(record).encode() for record in records], pa.binary())
    assert JsonConverter(found.schema).decode(values).rejected == ()
