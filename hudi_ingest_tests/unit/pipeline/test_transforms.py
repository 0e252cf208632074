"""K4 and K5: what pipeline files say of transforms and partitions by time, and what is said of wrong ones."""

from __future__ import annotations

import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.records.transform.timestamps import EventTimeLimits
from hudi_ingest_tests.support.pipeline_files import SECRET, Write, load, problem, problems

pytestmark = pytest.mark.fast

SCHEMA = "id string, ts long, amount double, user string, c struct<city:string,zip:int>"
MILLIS = {"timestamp": {"fields": ["ts"], "format": "epoch_millis"}}
PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "transforms.md"


def changes(transforms: str | list[Any], **table: Any) -> dict[str, Any]:
    steps = yaml.safe_load(transforms) if isinstance(transforms, str) else transforms
    return {"table__schema": SCHEMA, "transforms": steps, **{f"table__{key}": value for key, value in table.items()}}


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        (
            "- drop: [amuont]",
            "transforms[0].drop[0]: no field is called 'amuont' here; allowed: id, ts, amount, user, c; did you mean amount?",
        ),
        (
            "[{drop: [amount]}, {cast: {amount: long}}]",
            "transforms[1].cast.amount: no field is called 'amount' after transforms[0].drop; use it before that, or let",
        ),
        ("- dropp: [id]", "transforms[0].dropp: unknown key in line"),
        (
            "- {drop: [id], keep: [ts]}",
            "transforms[0]: found the keys drop, keep in one entry; start each with its own `-`",
        ),
        ("- drop", "transforms[0]: must be a mapping of keys; found text; allowed: a mapping with the keys drop, keep"),
        ("- drop:", "transforms[0].drop: found nothing; add a transform"),
        ("- drop: []", "transforms[0].drop: must not be empty"),
        ("- {}", "transforms[0]: found no key; allowed: one of drop, keep"),
        ("drop: [id]", "transforms: must be a list"),
        ("- drop: [id, id]", "transforms[0].drop[1]: found 'id' twice in the list; remove one"),
        ("- drop: [id, ts, amount, user, c]", "transforms[0].drop: nothing would be left; keep at least one field"),
        ("- drop: [c.city]", "transforms see whole columns, so flatten c first"),
        ("- drop: [_kafka_offset]", "_kafka_offset is a Kafka column, which transforms cannot change"),
        (
            "- mask: {fields: [user], method: redact, salt: x}",
            "transforms[0].mask.salt: not used by method redact; remove",
        ),
        (
            "- mask: {fields: [user], method: keep_last}",
            "transforms[0].mask.characters: missing; method keep_last needs it",
        ),
        (
            "- mask: {fields: [amount], method: redact, constant: x}",
            "transforms[0].mask.fields[0]: amount gets a constant that is not a value of type double; found 'x'",
        ),
        (
            "- mask: {fields: [amount], method: hash}",
            "amount has type double; a hash takes string, binary, int or long",
        ),
        (
            "- mask: {fields: [ts], method: keep_last, characters: 2}",
            "only a string has last characters, so cast it first",
        ),
        ("- cast: {ts: int NOT NULL}", "transforms[0].cast.ts: found 'int NOT NULL'; allowed: one column type"),
        ("- cast: {ts: longg}", "transforms[0].cast.ts: found 'longg', not a column type like long or decimal(10,2)"),
        (
            "- cast: {amount: float}",
            "amount has type double, which cannot be cast to float: it would round; keep double",
        ),
        ("- cast: {user: timestamp}", "use the transform `timestamp`, which says the format and the zone"),
        ("- cast: {c: int}", "flatten it first, then cast its parts"),
        (
            "- cast: {ts: date}",
            "which cannot be cast to date; allowed: int, float, double, boolean, string, decimal(p,s)",
        ),
        ("- rename: {id: user}", "transforms[0].rename.id: column user: is declared twice"),
        ("- rename: {id: 1a}", "transforms[0].rename.id: column 1a: Hudi cannot store this name"),
        ("- rename: {id: _kafka_x}", "transforms[0].rename.id: names beginning with _kafka_ belong to hudi-ingest"),
        (
            "- filter: {field: id, op: '=>', value: a}",
            "transforms[0].filter.op: not one of the allowed values; found '=>'",
        ),
        (
            "- filter: {field: amount, op: '>', value: abc}",
            "filter.value: not a value of type double, which amount has",
        ),
        ("- filter: {field: amount, op: in, value: [1, x]}", "filter.value[1]: not a value of type double"),
        ("- filter: {field: amount, op: in, value: 1}", "filter.value: found 1; allowed: a list of at least one value"),
        ("- filter: {field: amount, op: '>'}", "filter.value: missing; > needs a value"),
        ("- filter: {field: id, op: is_null, value: 1}", "filter.value: not used by is_null; remove it"),
        (
            "- filter: {field: c, op: '==', value: 1}",
            "filter.field: c has type struct<city:string,zip:int>, which has no",
        ),
        (
            "- timestamp: {fields: [user], format: epoch_millis}",
            "timestamp.fields[0]: user has type string; epoch_millis is read from int or long",
        ),
        ("- timestamp: {fields: [user], format: '%Y-%m-%q'}", "timestamp.format: %q is not known; allowed: %Y"),
        ("- timestamp: {fields: [user], format: iso}", "timestamp.format: found 'iso'; allowed: epoch_seconds"),
        (
            "- timestamp: {fields: [user], format: iso8601, zone: Europe/Berlim}",
            "timestamp.zone: unknown time zone; allowed: a name like UTC",
        ),
        ("- timestamp: {fields: [ts], format: epoch_millis, zone: Europe/Berlin}", "an epoch is always in UTC"),
        ("- flatten: [id]", "flatten[0]: id has type string; only a struct can be flattened"),
        (
            "[{rename: {user: c_city}}, {flatten: [c]}]",
            "transforms[1].flatten[0]: c_city and c.city would both be column c_city; rename one before",
        ),
        ("- constant: {column: x, type: int, value: a}", "constant.value: not a value of type int; found 'a'"),
        ("- constant: {column: id, value: a}", "constant.column: column id: is declared twice"),
        ("- insert_kafka: {}", "insert_kafka: must not be empty; found a mapping; allowed: {topic, partition"),
        ("- insert_kafka: {topic: id}", "insert_kafka.topic: column id: is declared twice"),
        ("- sql: SELECT sum(ts) AS x FROM records", "transforms[0].sql: sum() is not allowed: it sees other records"),
        (
            "- sql: SELECT amuont FROM records",
            "transforms[0].sql: no field is called 'amuont' here; allowed: id, ts, amount",
        ),
        (
            "[{drop: [ts]}, {sql: SELECT ts FROM records}]",
            "transforms[1].sql: no field is called 'ts' after transforms[0]",
        ),
        (
            "- sql: 7",
            "transforms[0].sql: must be text; found the number 7; put it in quotes; allowed: SELECT expression",
        ),
        ("- python: {function: foo, schema: a int}", "python.function: found 'foo'; allowed: package.module:function"),
        (
            "- python: {function: 'a:b', schema: a byte}",
            "python.schema: column a: found type byte: Hudi would store it as",
        ),
    ],
)
def test_k4_wrong_transforms(write: Write, transforms: str, expected: str) -> None:
    assert expected in problem(write, **changes(transforms))


def test_k4_problems_of_several_transforms_and_of_the_rest_come_at_once(write: Write) -> None:
    told = problems(write, name="1", **changes("[{cast: {ts: x}}, {timestamp: {fields: [id], format: x}}]"))
    assert [each.partition(":")[0] for each in told] == [
        "name",
        "transforms[0].cast.ts",
        "transforms[1].timestamp.format",
    ]


def test_k4_an_error_in_sql_is_told_beside_whatever_else_is_wrong(write: Write) -> None:
    sql = "transforms[0].sql: no field is called 'amuont' here"
    wrong: list[dict[str, Any]] = [
        {"name": "a b"},
        {"table__compression": "lz4"},
        {"table__base_path": "gs://lake/orders"},
        {"table__colour": "red"},
        {"source__topics": []},
        {"source__bootstrap_servers": "${NOT_SET}"},
        {"transaction__max_records": 0},
    ]
    for changes in wrong:
        found = problems(write, transforms=[{"sql": "SELECT amuont FROM records"}], **changes)
        assert len(found) == 2 and any(each.startswith(sql) for each in found), found
    unknown = problems(write, transforms=[{"sql": "SELECT amuont FROM records"}], table__schema="id strung")
    assert len(unknown) == 1, "without a schema there is nothing to judge it by"


def test_k4_a_salt_is_in_no_message(write: Write) -> None:
    told = problems(
        write, **changes([{"mask": {"fields": ["user"], "method": "redact", "salt": SECRET, "slat": SECRET}}])
    )
    assert len(told) == 2
    assert SECRET not in "".join(told)
    found = load(write, **changes([{"mask": {"fields": ["user"], "method": "hash", "salt": SECRET}}]))
    assert SECRET not in repr(found)
    assert SECRET not in repr(found.chain)


def test_k4_the_table_has_what_the_transforms_give(write: Write) -> None:
    steps = [
        MILLIS,
        {"flatten": ["c"]},
        {"drop": ["user"]},
        {"filter": {"field": "amount", "op": ">", "value": 0}},
    ]
    found = load(write, **changes(steps, partition_by=["day(ts)", "hour=hour(_kafka_timestamp)", "c_city"]))
    assert found.table_schema.record == found.table.record
    assert found.table_schema.columns.names == [
        *("id", "ts", "amount", "c_city", "c_zip", "ts_day", "hour"),
        *("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"),
    ]
    assert found.table.partition_columns == ("ts_day", "hour", "c_city")
    assert [step.name for step in found.chain.steps][-2:] == ["table.partition_by[0]", "table.partition_by[1]"]
    assert found.chain.kafka == {"timestamp"}
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.chain == found.chain
    plain = load(write)
    assert (plain.table_schema, plain.chain.steps) == (plain.table.table_schema, ())


def test_k4_a_digest_tells_pipelines_apart_that_make_other_rows(write: Write) -> None:
    def digest(*steps: Any, **table: Any) -> str:
        return load(write, **changes([*steps], **table)).rows_digest

    mask = {"fields": ["user"], "method": "hash"}
    digests = [
        digest(),
        digest({"mask": mask}),
        digest({"mask": {**mask, "salt": "a"}}),
        digest({"mask": {**mask, "salt": "b"}}),
        digest(MILLIS, partition_by=["day(ts)"]),
        digest(MILLIS, partition_by=["day(ts)"], partition_zone="Europe/Berlin"),
        digest(MILLIS, partition_by=["day(ts)"], hive_style=False),
        load(write, **changes([]), on_tombstone="row").rows_digest,
    ]
    assert len(set(digests)) == len(digests)
    assert digest({"mask": mask}) == digests[1]


@pytest.mark.parametrize(
    ("partition_by", "expected"),
    [
        (["dya(ts)"], "table.partition_by[0]: dya() is not known; allowed: year(column)"),
        (["day(ts"], "table.partition_by[0]: not a column and not a time expression"),
        (["day(amount)"], "table.partition_by[0]: amount has type double; day() takes a timestamp or date"),
        (["day(tss)"], "table.partition_by[0]: no field is called 'tss' here; allowed: id, ts, amount"),
        (["id=day(ts)"], "table.partition_by[0]: column id: is declared twice"),
        (
            ["user"],
            "table.partition_by[0]: found 'user'; allowed: a column from the transforms (id, ts, amount, c)",
        ),
        (["ts_day", "day(ts)"], "table.partition_by[1]: adds the column ts_day a second time; give it another name"),
    ],
)
def test_k5_wrong_partitions(write: Write, partition_by: list[str], expected: str) -> None:
    assert expected in problem(write, **changes([MILLIS, {"drop": ["user"]}], partition_by=partition_by))


def test_k5_a_number_needs_to_become_a_time_first(write: Write) -> None:
    told = problem(write, **changes([], partition_by=["day(ts)"]))
    assert told.endswith("ts has type long; day() takes a timestamp or date; convert it with `timestamp`")


def test_k5_limits(write: Write) -> None:
    limits = {"field": "ts", "late_after_seconds": 3600, "action": "route"}
    found = load(write, **changes([MILLIS], partition_by=["day(ts)", "id"], event_time=limits))
    assert found.chain.steps[-1].transform == EventTimeLimits("ts", timedelta(hours=1), None, True, route=("ts_day",))
    ahead = {"field": "ts", "future_after_seconds": 60, "relative_to": "transaction"}
    found = load(write, **changes([MILLIS], partition_by=["id"], event_time=ahead))
    assert found.chain.steps[-1].transform == EventTimeLimits("ts", None, timedelta(minutes=1), False)
    told = problem(write, **changes([MILLIS], partition_by=["id"], event_time=limits))
    assert told == "table.event_time.action: `route` needs a time expression of ts in table.partition_by, like day(ts)"
    told = problem(write, **changes([MILLIS], event_time={"field": "tss", "late_after_seconds": 1}))
    assert told.startswith("table.event_time.field: no field is called 'tss' here")
    told = problem(write, **changes([MILLIS], event_time={"field": "ts"}))
    assert told.startswith("table.event_time.future_after_seconds: neither it nor `late_after_seconds` is set")
    assert problem(write, **changes([], event_time={"field": "ts", "late_after_seconds": 1})).startswith(
        "table.event_time.field: ts has type long; allowed: a timestamp"
    )


def test_tombstones_as_rows_need_columns_that_may_be_null(write: Write) -> None:
    assert load(write).on_tombstone == "skip"
    assert load(write, on_tombstone="row").on_tombstone == "row"
    assert load(write, table__schema="id string NOT NULL", on_tombstone="fail").on_tombstone == "fail"
    schema = "id string NOT NULL, ts long, dt string NOT NULL"
    told = problem(write, table__schema=schema, on_tombstone="row")
    assert told == (
        "on_tombstone: row makes every field of such a record null, but id, dt must not be null: remove their NOT NULL, or set it "
        "to skip or fail"
    )
    told = problem(write, on_bad_record="skip", on_tombstone="fail")
    assert told.startswith("on_tombstone: fail needs `on_bad_record: fail`, and that is skip: a record without a value")
    told = problem(write, on_tombstone="drop")
    assert told == "on_tombstone: not one of the allowed values; found 'drop'; allowed: skip, fail, row or delete"


def test_tombstones_delete_only_from_keyed_tables(write: Write) -> None:
    keyed: dict[str, Any] = {"table__mode": "upsert", "table__key": ["id"]}
    key = {"schema": "key_id string"}
    assert load(write, **keyed).on_tombstone == "delete"
    assert load(write, **keyed, on_tombstone="skip").on_tombstone == "skip"
    assert load(write, **keyed, source__key=key, on_tombstone="delete").on_tombstone == "delete"
    told = problem(write, **keyed, on_tombstone="delete")
    assert told.startswith("on_tombstone: delete needs `source.key`, from which")
    assert problem(write, **keyed, on_tombstone="row").startswith(
        "on_tombstone: row adds a row, and `table.mode: upsert`"
    )
    assert problem(write, on_tombstone="delete").startswith("on_tombstone: delete needs `table.mode: upsert`")


def test_hive_style_is_true_or_false(write: Write) -> None:
    assert load(write).table.hive_style
    told = problem(write, table__hive_style="maybe")
    assert told == "table.hive_style: must be true or false; found 'maybe'; allowed: true or false"


def test_the_examples_of_the_page_are_right(write: Write) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 13
    kinds = set()
    for text in examples:
        data = yaml.safe_load(text)
        table = {"base_path": "/data/orders", **data.pop("table")}
        source = {"bootstrap_servers": "b:9092", "topics": ["orders"]}
        path = write(yaml.safe_dump({"name": "orders", "source": source, "table": table, **data}))
        found = load_pipeline(path, {"SALT": "x"})
        kinds |= {each.kind for each in found.transforms}
        assert isinstance(found.chain.output, pa.Schema)
    assert kinds == {
        *(
            "drop",
            "keep",
            "rename",
            "cast",
            "mask",
            "insert_kafka",
            "flatten",
            "filter",
            "timestamp",
            "constant",
            "sql",
            "python",
        )
    }


def test_expectations_are_validated_where_they_stand_and_are_part_of_what_rows_become(write: Write) -> None:
    rule = {"name": "paid", "condition": "amount > 0"}
    pipeline = load(write, expectations=[rule])
    assert pipeline.chain.output == load(write).chain.output
    assert pipeline.rows_digest != load(write).rows_digest
    assert pipeline.fatal_expectations == frozenset()
    assert load(write, expectations=[{**rule, "severity": "fail"}]).fatal_expectations == {"paid"}
    found = problem(write, expectations=[rule, {"name": "x", "condition": "amuont > 0"}])
    assert found.startswith("expectations[1].condition: no field is called 'amuont' here")
    assert problem(write, expectations=[rule, dict(rule)]).startswith(
        "expectations[1].name: found 'paid' twice; rename one"
    )
    assert problem(write, expectations=[{**rule, "name": "Paid!"}]).startswith("expectations[0].name: ")
    assert problem(write, expectations=[{**rule, "severity": "dead_letter"}]).startswith("expectations[0].severity: ")
