"""K4: the schema that is announced is the one that comes out, no row is lost, and what is masked is never said."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import TransformFailed
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.convert.json.converter import JsonConverter
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform import Transform, TransformProblems
from hudi_ingest.records.transform.casts import Cast
from hudi_ingest.records.transform.chain import HIDDEN, HIDDEN_RECORD, Chain, ChainProblems, PythonFunction, Step
from hudi_ingest.records.transform.columns import (
    OPERATORS,
    Constant,
    Drop,
    Filter,
    Flatten,
    Hash,
    InsertKafka,
    Keep,
    KeepLast,
    Mask,
    Redact,
    Rename,
)
from hudi_ingest.records.transform.sql import Sql
from hudi_ingest.records.transform.timestamps import ToTimestamp, parse_time_partition

pytestmark = pytest.mark.fast

RECORD = parse_ddl(
    "id string NOT NULL, n int, amount string, ts long, c struct<city: string, zip: struct<a: int NOT NULL>>"
)
INPUT = pa.schema([*RECORD, *KAFKA_FIELDS.values()])

rows_of_record = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=3),
            "n": st.none() | st.integers(-3, 3),
            "amount": st.none() | st.sampled_from(["1", "2.50", "-3", "x", "", "1.005"]),
            "ts": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2_000_000_000_000),
            "c": st.none()
            | st.fixed_dictionaries(
                {
                    "city": st.none() | st.text(max_size=2),
                    "zip": st.none() | st.fixed_dictionaries({"a": st.integers(0, 9)}),
                }
            ),
        }
    ),
    max_size=12,
)


def with_kafka(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kafka = {
        "_kafka_topic": "t",
        "_kafka_partition": 1,
        "_kafka_timestamp": 0,
        "_kafka_key": b"k",
        "_kafka_headers": None,
    }
    return pa.RecordBatch.from_pylist(
        [{**row, **kafka, "_kafka_offset": i} for i, row in enumerate(rows)], schema=INPUT
    )


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A user's function: refuses n = 3, gives null for n = 2."""
    values = batch["n"].to_pylist()
    if 3 in values:
        raise ValueError(f"do not like 3 in {values}")
    return pa.RecordBatch.from_arrays(
        [pa.array([None if n in (2, None) else 2 * n for n in values], pa.int32())], names=["m"]
    )


def wrong_type(batch: pa.RecordBatch) -> list[int]:
    return [batch.num_rows]


def too_few(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(1)


def other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


HERE = __name__
ANY: list[Transform] = [
    Drop(("n", "c")),
    Keep(("ts", "id", "n", "amount")),
    Rename({"id": "n", "n": "id"}),
    Rename({"ts": "event_time"}),
    Constant.of("region", "eu", pa.string()),
    InsertKafka({"topic": "src", "partition": "p", "offset": "o", "timestamp": "t", "key": "k", "headers": "h"}),
    Cast({"amount": pa.decimal128(10, 2), "n": pa.int64()}),
    Cast({"n": pa.bool_()}),
    Mask(("id", "n"), Hash("salt")),
    Mask(("id", "c"), Redact()),
    Mask(("id",), Redact("-")),
    Mask(("amount",), KeepLast(2)),
    Flatten(("c",)),
    Filter("n", ">=", (0,)),
    Filter("_kafka_offset", "!=", (3,)),
    Filter("id", "in", ("a", "b")),
    Filter("c", "is_not_null"),
    ToTimestamp(("ts",), "epoch_millis"),
    ToTimestamp(("amount",), "iso8601", "Europe/Berlin"),
    parse_time_partition("hour(_kafka_timestamp)", "Europe/Berlin"),
    Sql("SELECT *, n * 2 AS twice FROM records"),
    Sql("SELECT id, n, CAST(amount AS decimal(10,2)) AS amount, ts * 4 AS ts FROM records WHERE 6 / n > 2"),
    PythonFunction(f"{HERE}:doubled", parse_ddl("m int")),
    PythonFunction(f"{HERE}:doubled", parse_ddl("m int NOT NULL")),
]


@given(rows_of_record, st.lists(st.sampled_from(ANY), max_size=4))
def test_k4_chains_announce_their_schema_and_account_for_every_row(
    rows: list[dict[str, Any]], transforms: list[Transform]
) -> None:
    steps = [Step(f"transforms[{i}]", each) for i, each in enumerate(transforms)]
    try:
        chain = Chain.of(RECORD, steps)
    except ChainProblems:
        return
    chain = pickle.loads(pickle.dumps(chain))
    batch = with_kafka(rows)
    done = chain.apply(batch)
    done.rows.validate(full=True)
    assert done.rows.schema == pa.schema([*chain.output, *KAFKA_FIELDS.values()])
    for field in done.rows.schema:
        assert field.nullable or not done.rows[field.name].null_count
    assert done.rows.num_rows + len(done.rejected) + done.filtered == batch.num_rows
    indexes = [*range(batch.num_rows)] if done.kept is None else done.kept.to_pylist()
    assert done.rows["_kafka_offset"].to_pylist() == indexes
    refused = [fault.index for fault in done.rejected]
    assert refused == sorted(set(refused))
    assert not set(refused) & set(indexes)
    # A row's outcome depends on no other row.
    alone = [chain.apply(batch.slice(i, 1)) for i in range(batch.num_rows)]
    assert [row for each in alone for row in each.rows.to_pylist()] == done.rows.to_pylist()
    assert [each.rejected[0].found for each in alone if each.rejected] == [fault.found for fault in done.rejected]


@pytest.mark.parametrize("transform", ANY, ids=repr)
def test_k4_each_transform_keeps_its_laws(transform: Transform) -> None:
    again = pickle.loads(pickle.dumps(transform))
    assert again == transform
    output = transform.output_schema(INPUT)
    assert {*transform.origins(INPUT)} == {*output.names}
    empty = pa.RecordBatch.from_pylist([], schema=INPUT)
    done = transform.apply(empty)
    assert (done.rows.schema, done.rows.num_rows, done.filtered, done.rejected) == (output, 0, 0, ())


def test_an_empty_chain_is_the_batch() -> None:
    batch = with_kafka([])
    chain = Chain.of(RECORD, [])
    assert chain.apply(batch).rows is batch
    assert (chain.output, chain.kafka, chain.masked) == (RECORD, frozenset(), frozenset())


# ---- Columns


def test_k4_drop_keep_and_rename() -> None:
    names = [*KAFKA_FIELDS]
    assert Drop(("n", "c")).output_schema(INPUT).names[: -len(names)] == ["id", "amount", "ts"]
    assert Keep(("ts", "id")).output_schema(INPUT).names[: -len(names)] == ["id", "ts"]
    swapped = Rename({"id": "n", "n": "id"}).apply(with_kafka([{"id": "a", "n": 1}])).rows
    assert swapped.select(["id", "n"]).to_pylist() == [{"id": 1, "n": "a"}]


def test_k4_what_kafka_says_becomes_columns() -> None:
    step = InsertKafka({"offset": "o", "key": "k", "timestamp": "t"})
    (row,) = step.apply(with_kafka([{"id": "a"}])).rows.select(["o", "k", "t"]).to_pylist()
    assert (row["o"], row["k"], row["t"].timestamp()) == (0, b"k", 0)
    assert Chain.of(RECORD, [Step("s", step), Step("f", Filter("_kafka_topic", "==", ("t",)))]).kafka == {
        "offset",
        "key",
        "timestamp",
        "topic",
    }


names = st.sampled_from(["a", "b", "c", "d"])
leaves = st.sampled_from([pa.int32(), pa.string(), pa.list_(pa.int32())])
kinds = st.recursive(
    leaves,
    lambda inner: st.lists(
        st.tuples(names, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda each: each[0]
    ).map(lambda parts: pa.struct([pa.field(name, kind, nullable) for name, kind, nullable in parts])),
    max_leaves=8,
)


def values_of(field: pa.Field) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(field.type):
        given_values: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {each.name: values_of(each) for each in field.type}
        )
    elif pa.types.is_list(field.type):
        given_values = st.lists(st.integers(0, 9), max_size=2)
    else:
        given_values = st.integers(0, 9) if field.type == pa.int32() else st.text(max_size=2)
    return st.none() | given_values if field.nullable else given_values


def flat(field: pa.Field, value: Any, name: str) -> dict[str, Any]:
    if not pa.types.is_struct(field.type):
        return {name: value}
    found: dict[str, Any] = {}
    for each in field.type:
        found |= flat(each, None if value is None else value[each.name], f"{name}_{each.name}")
    return found


@given(st.data(), kinds, st.booleans())
def test_k4_flatten_random_structs(data: st.DataObject, kind: pa.DataType, nullable: bool) -> None:
    field = pa.field("s", kind, nullable)
    schema = pa.schema([pa.field("x", pa.int32()), field, pa.field("y", pa.int32())])
    values = data.draw(st.lists(values_of(field), max_size=5))
    batch = pa.RecordBatch.from_pylist([{"x": i, "s": value, "y": -i} for i, value in enumerate(values)], schema=schema)
    step = Flatten(("s",))
    if not pa.types.is_struct(kind):
        with pytest.raises(TransformProblems, match="only a struct can be flattened"):
            step.output_schema(schema)
        return
    start = data.draw(st.integers(0, len(values)))
    rows = step.apply(batch.slice(start)).rows
    assert rows.schema == step.output_schema(schema)
    expected = [{"x": i, **flat(field, value, "s"), "y": -i} for i, value in enumerate(values)][start:]
    assert rows.to_pylist() == expected
    for field in rows.schema:
        assert field.nullable or not rows[field.name].null_count


# ---- Filters


@given(
    st.lists(st.none() | st.floats(width=32) | st.integers(-2, 2).map(float), max_size=20),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from([-1, 0.0, 1.5, 2]), min_size=1, max_size=3),
)
def test_k4_filters_are_as_in_sql(values: list[float | None], op: str, wanted: list[float]) -> None:
    """A comparison with null is not true."""
    first = wanted[0]
    truth: dict[str, Callable[[float], bool]] = {
        "==": lambda v: v == first,
        "!=": lambda v: v != first,
        "<": lambda v: v < first,
        "<=": lambda v: v <= first,
        ">": lambda v: v > first,
        ">=": lambda v: v >= first,
        "in": lambda v: any(v == each for each in wanted),
        "not_in": lambda v: not any(v == each for each in wanted),
    }
    given_values = {"in": wanted, "not_in": wanted, "is_null": [], "is_not_null": []}.get(op, wanted[:1])
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], names=["v"])
    done = Filter("v", op, tuple(given_values)).apply(batch)
    if op in truth:
        expected = [i for i, v in enumerate(values) if v is not None and truth[op](v)]
    else:
        expected = [i for i, v in enumerate(values) if (v is None) == (op == "is_null")]
    kept = [*range(len(values))] if done.kept is None else done.kept.to_pylist()
    assert kept == expected
    assert done.filtered == len(values) - len(expected)
    assert done.rows.num_rows == len(expected)


# ---- Masks


@given(st.lists(st.none() | st.text(max_size=8), max_size=10), st.text(max_size=5), st.integers(1, 4))
def test_k4_masks(values: list[str | None], salt: str, last: int) -> None:
    batch = pa.RecordBatch.from_pydict({"v": pa.array(values, pa.string())})
    hashed = Mask(("v",), Hash(salt)).apply(batch).rows["v"].to_pylist()
    salted = [None if v is None else hashlib.sha256((salt + v).encode()).hexdigest() for v in values]
    assert hashed == salted
    kept = Mask(("v",), KeepLast(last)).apply(batch).rows["v"].to_pylist()
    assert kept == [None if v is None else "****" + (v[-last:] if len(v) > last else "") for v in values]
    assert set(Mask(("v",), Redact("x")).apply(batch).rows["v"].to_pylist()) <= {"x"}
    assert set(Mask(("v",), Redact()).apply(batch).rows["v"].to_pylist()) <= {None}


def test_k4_hashes_are_sparks() -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array([42, None], pa.int64()), "b": [b"\xff", b"\xff"]})
    rows = Mask(("n", "b"), Hash()).apply(batch).rows.to_pylist()
    assert rows[0]["n"] == "73475cb40a568e8da8a045ced110137e159f890ac4da883b6b17dc651b3a8049"
    assert rows[1] == {"n": None, "b": hashlib.sha256(b"\xff").hexdigest()}


def test_a_salt_is_never_shown() -> None:
    assert "hunter2" not in repr(Step("s", Mask(("v",), Hash("hunter2"))))


SECRET = "hunter2"
PRIVATE = parse_ddl("id string, ssn string, c struct<email: string, age: string>, tags map<string,int>")
MASKING = [
    Step("transforms[0].rename", Rename({"ssn": "number"})),
    Step("transforms[1].flatten", Flatten(("c",))),
    Step("transforms[2].cast", Cast({"number": pa.int32(), "c_email": pa.int32(), "c_age": pa.int32()})),
    Step("transforms[3].mask", Mask(("number", "c_email"), Hash("s"))),
    Step("transforms[4].mask", Mask(("tags",), Redact())),
]


def test_k4_a_masked_value_is_not_in_messages_of_transforms() -> None:
    chain = Chain.of(PRIVATE, MASKING)
    assert chain.masked == {"ssn", "c.email", "tags"}
    batch = pa.RecordBatch.from_pylist(
        [
            {"id": "1", "ssn": SECRET, "c": {"email": "5", "age": "1"}},
            {"id": "2", "ssn": "5", "c": {"email": SECRET, "age": "1"}},
            {"id": "3", "ssn": "5", "c": {"email": "6", "age": "old"}},
        ],
        schema=PRIVATE,
    )
    rejected = chain.apply(batch).rejected
    assert [(each.field, each.found) for each in rejected] == [
        ("number", HIDDEN),
        ("c_email", HIDDEN),
        ("c_age", '"old"'),
    ]
    assert rejected[0].expected == "a value that int holds exactly, by transforms[2].cast"


@pytest.mark.parametrize(
    ("value", "field", "found"),
    [
        (f'{{"ssn": ["{SECRET}"]}}', "ssn", HIDDEN),
        (f'{{"ssn": {len(SECRET)}}}', "ssn", HIDDEN),
        (f'{{"c": {{"email": {{"{SECRET}": 1}}}}}}', "c.email", HIDDEN),
        (f'{{"c": "{SECRET}"}}', "c", HIDDEN),
        (f'{{"tags": {{"{SECRET}": "x"}}}}', "tags", HIDDEN),
        (f'"{SECRET}"', "", HIDDEN_RECORD),
        ('{"c": {"age": 7}}', "c.age", "7"),
        ('{"id": 7}', "id", "7"),
    ],
)
def test_k4_a_masked_value_is_not_in_messages_of_the_converter(value: str, field: str, found: str) -> None:
    chain = Chain.of(PRIVATE, MASKING)
    (rejected,) = JsonConverter(PRIVATE).decode(pa.array([value.encode()], pa.binary())).rejected
    told = chain.redact(rejected)
    assert (told.index, told.field, told.found) == (0, field, found)
    assert SECRET not in repr(told)
    assert Chain.of(PRIVATE, []).redact(rejected) == rejected


def test_k4_what_a_function_makes_of_a_masked_field_is_hidden_too() -> None:
    schema = parse_ddl("both string")
    steps = [Step("p", PythonFunction("m:f", schema)), Step("m", Mask(("both",), Hash()))]
    chain = Chain.of(PRIVATE, steps)
    assert chain.masked == {"id", "ssn", "c", "tags"}
    assert chain.redact(Rejected(0, "id", "string", "7")).found == HIDDEN


# ---- A function of the user's


def test_k4_only_the_rows_that_a_function_refuses_are_rejected() -> None:
    batch = with_kafka([{"id": "a", "n": n} for n in (1, 3, 2, 0, 3)])
    done = PythonFunction(f"{HERE}:doubled", parse_ddl("m int NOT NULL")).apply(batch)
    assert done.rows["m"].to_pylist() == [2, 0]
    assert [(fault.index, fault.field, fault.found) for fault in done.rejected] == [
        (1, "", "it raised ValueError"),
        (2, "m", "null"),
        (4, "", "it raised ValueError"),
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("no_such_module_anywhere:f", "cannot be imported in a Spark worker: ModuleNotFoundError"),
        (f"{HERE}:no_such_function", "cannot be imported in a Spark worker: AttributeError"),
        (f"{HERE}:HERE", "is not a function"),
        (f"{HERE}:wrong_type", "returned a list; it must return a pyarrow.RecordBatch"),
        (f"{HERE}:too_few", "returned 1 rows for 2; it must return one for each"),
        (f"{HERE}:other_columns", "returned columns (id string, n int32"),
    ],
)
def test_k4_a_function_that_is_wrong_stops_the_transaction(function: str, expected: str) -> None:
    step = PythonFunction(function, parse_ddl("m int"))
    with pytest.raises(TransformFailed, match=re.escape(expected)):
        step.apply(with_kafka([{"id": "a", "n": 1}, {"id": "b", "n": 1}]))


# ---- Problems


def test_problems_name_the_step_and_what_took_a_field_away() -> None:
    steps = [Step("one", Keep(("id",))), Step("two", Constant.of("x", 1, pa.int32())), Step("three", Drop(("n",)))]
    with pytest.raises(ChainProblems) as raised:
        Chain.of(RECORD, steps)
    assert raised.value.step == 2
    assert str(raised.value) == "no field is called 'n' after one; use it before that, or let that keep it"
    assert pickle.loads(pickle.dumps(raised.value)).problems == raised.value.problems
