"""Expectations: which rows violate a condition, and what becomes of them, whatever is beside them."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.changes import DELETED, KeyedRows
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.row_maker import TRANSFORMING, RowMaker
from hudi_ingest.records.schema.columns import table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform import Transformed
from hudi_ingest.records.transform.chain import HIDDEN, Chain, ChainProblems, Step
from hudi_ingest.records.transform.columns import KeepLast, Mask
from hudi_ingest.records.transform.sql import Expect
from hudi_ingest_tests.support.change_images import SOURCE
from hudi_ingest_tests.support.change_images import batch as kafka_batch

pytestmark = pytest.mark.fast

RECORD = parse_ddl("id string, n long, paid boolean, gone boolean")
INPUT = pa.schema([*RECORD, *KAFKA_FIELDS.values()])
POSITIVE = Expect("positive", "n > 0", rejects=True)


def run(expect: Expect, *rows: dict[str, Any]) -> Transformed:
    step = pickle.loads(pickle.dumps(expect))
    assert step.output_schema(INPUT) == INPUT
    done: Transformed = step.apply(pa.RecordBatch.from_pylist([*rows], schema=INPUT))
    assert done.rows.num_rows + len(done.rejected) == len(rows)
    return done


def test_a_row_that_violates_a_condition_is_rejected_with_its_name_and_null_passes() -> None:
    done = run(POSITIVE, {"n": 1}, {"n": -1}, {"n": None}, {"n": 0})
    assert done.rows["n"].to_pylist() == [1, None]
    assert [(bad.index, bad.field, bad.expected, bad.found, bad.rule) for bad in done.rejected] == [
        (1, "n", "positive: n > 0", "-1", "positive"),
        (3, "n", "positive: n > 0", "0", "positive"),
    ]
    assert done.violations == {"positive": 2}
    several = run(Expect("settled", "paid OR n = 0", rejects=True), {"n": 1, "paid": False})
    assert [(bad.field, bad.found) for bad in several.rejected] == [("", "other values of n, paid")]


def test_a_warning_only_counts() -> None:
    done = run(Expect("positive", "n > 0", rejects=False), {"n": 1}, {"n": -1})
    assert (done.rows.num_rows, done.rejected, done.violations) == (2, (), {"positive": 1})
    assert run(Expect("positive", "n > 0", rejects=False), {"n": 1}).violations == {}


def test_a_row_of_which_the_condition_cannot_be_computed_violates_it() -> None:
    done = run(Expect("numbers", "CAST(id AS bigint) > 0", rejects=False), {"id": "1"}, {"id": "x"}, {"id": None})
    assert done.violations == {"numbers": 1}


def test_kafkas_columns_can_be_judged_and_are_read_for_it() -> None:
    step = Step("expectations[0].condition", Expect("named", "_kafka_key IS NOT NULL", rejects=True))
    assert Chain.of(RECORD, [step]).kafka == {"key"}


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("n >", "DuckDB rejects it"),
        ("m > 0", "no field is called 'm'"),
        ("n", "is a BIGINT; allowed: a BOOLEAN"),
        ("n > 0 ORDER BY n", "ORDER BY is not allowed"),
        ("n > random()", "it returns something else each time"),
        ("n > 0; SELECT 1", "more than one statement"),
        ("n > (SELECT 1)", "SELECT is not allowed"),
        ("sum(n) > 0", "it sees other records"),
    ],
)
def test_what_is_no_condition_of_a_row_is_refused(condition: str, problem: str) -> None:
    with pytest.raises(ChainProblems) as refused:
        Chain.of(RECORD, [Step("e", Expect("e", condition, rejects=True))])
    assert problem in str(refused.value)


def test_masked_values_are_not_shown() -> None:
    steps = [Step("transforms[0].mask", Mask(("id",), KeepLast(1))), Step("e", Expect("x", "id = 'a'", rejects=True))]
    record = pa.RecordBatch.from_pylist([{"id": "secret"}], schema=INPUT)
    (bad,) = Chain.of(RECORD, steps).apply(record).rejected
    assert (bad.found, bad.expected) == (HIDDEN, "x: id = 'a', by e")


def test_later_expectations_do_not_judge_what_an_earlier_one_rejects() -> None:
    steps = [Step("e", POSITIVE), Step("f", Expect("large", "n > 10", rejects=False))]
    rows = pa.RecordBatch.from_pylist([{"n": -1}, {"n": 5}, {"n": 11}], schema=INPUT)
    done = Chain.of(RECORD, steps).apply(rows)
    assert done.violations == {"positive": 1, "large": 1}


ROWS = st.lists(
    st.tuples(st.none() | st.integers(-2, 2), st.none() | st.booleans(), st.none() | st.booleans()), min_size=1
)


@given(ROWS, st.data(), st.booleans())
def test_each_row_is_judged_by_itself(
    rows: list[tuple[int | None, bool | None, bool | None]], data: st.DataObject, rejects: bool
) -> None:
    expect = Expect("paid", "n > 0 OR paid", rejects, deletes="gone")
    given_rows = [{"n": n, "paid": paid, "gone": gone} for n, paid, gone in rows]
    violated = [
        index
        for index, (n, paid, gone) in enumerate(rows)
        # False only if both sides are: null otherwise passes.
        if not gone and n is not None and n <= 0 and paid is False
    ]
    whole = run(expect, *given_rows)
    assert [bad.index for bad in whole.rejected] == (violated if rejects else [])
    assert whole.violations == ({"paid": len(violated)} if violated else {})
    cut = data.draw(st.integers(0, len(rows)))
    parts = [run(expect, *part) for part in (given_rows[:cut], given_rows[cut:]) if part]
    assert sum(part.violations.get("paid", 0) for part in parts) == len(violated)
    assert sum(part.rows.num_rows for part in parts) == whole.rows.num_rows


def test_deletes_of_a_keyed_table_are_not_judged() -> None:
    key = parse_ddl("id long")
    value = parse_ddl("n long, gone boolean")
    expect = Expect("positive", "n IS NOT NULL AND n > 0", rejects=True, deletes="gone")
    chain = Chain.of(pa.schema([*value, *key]), [Step("expectations[0].condition", expect)])
    columns = table_schema(parse_ddl("n long, id long"), ()).columns
    maker = RowMaker(
        converter_for("json", value),
        chain,
        columns,
        keyed=KeyedRows(("id",), delete_field="gone"),
        on_tombstone="delete",
        key_converter=converter_for("json", key),
        key_columns=key,
    )
    values: list[dict[str, Any] | None] = [{"n": 1}, None, {"gone": True}, {"n": -4}, {}]
    outcome = maker.make(SOURCE, kafka_batch([({"id": place}, value) for place, value in enumerate(values, 1)]))
    assert outcome.rows.select(["id", DELETED]).to_pylist() == [
        {"id": 1, DELETED: False},
        {"id": 2, DELETED: True},
        {"id": 3, DELETED: True},
    ]
    assert [(bad.index, bad.stage, bad.rule) for bad in outcome.bad] == [
        (3, TRANSFORMING, "positive"),
        (4, TRANSFORMING, "positive"),
    ]
    assert outcome.violations == {"positive": 2}
