"""K4: `sql` makes at most one row of a record, the same one whatever is beside it, and says which records it cannot compute."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.schema.columns import TIMESTAMP
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform import Transformed, TransformProblems, sql_session
from hudi_ingest.records.transform.chain import HIDDEN, Chain, ChainProblems, Step
from hudi_ingest.records.transform.columns import Drop, Hash, Mask
from hudi_ingest.records.transform.sql import Sql
from hudi_ingest.records.transform.sql_statement import AllFields, NotAllowed, Selected, parse

pytestmark = pytest.mark.fast

RECORD = parse_ddl(
    "id string NOT NULL, n long, i int, price decimal(10,2), ts timestamp, c struct<city: string>, tags array<string>, "
    "m map<string, int>, createdAt string, offset long"
)
INPUT = pa.schema([*RECORD, *KAFKA_FIELDS.values()])
NOON = datetime(2026, 1, 1, 12, 30, tzinfo=timezone.utc)


def batch(*rows: Mapping[str, Any]) -> pa.RecordBatch:
    kafka = {"_kafka_topic": "t", "_kafka_partition": 1, "_kafka_timestamp": NOON, "_kafka_key": b"k"}
    return pa.RecordBatch.from_pylist(
        [{"id": "a", **kafka, "_kafka_offset": place, **row} for place, row in enumerate(rows)], schema=INPUT
    )


def run(text: str, *rows: Mapping[str, Any]) -> Transformed:
    step = pickle.loads(pickle.dumps(Sql(text)))
    given_rows = batch(*rows)
    done: Transformed = step.apply(given_rows)
    done.rows.validate(full=True)
    assert done.rows.schema == step.output_schema(INPUT)
    assert {*step.origins(INPUT)} == {*done.rows.schema.names}
    assert done.rows.num_rows + done.filtered + len(done.rejected) == given_rows.num_rows
    return done


def values(text: str, *rows: Mapping[str, Any]) -> list[Any]:
    """What column x is."""
    done = run(f"SELECT id, {text} AS x FROM records", *rows)
    assert not done.rejected, done.rejected
    return list(done.rows["x"].to_pylist())


def columns(text: str) -> dict[str, pa.Field]:
    output = Sql(text).output_schema(INPUT)
    assert output.names[-len(KAFKA_FIELDS) :] == [field.name for field in KAFKA_FIELDS.values()]
    return {field.name: field for field in output if not field.name.startswith("_kafka_")}


def test_fields_that_are_only_named_are_handed_through_untouched() -> None:
    found = columns("SELECT *, n + 1 AS next FROM records")
    assert list(found) == [*RECORD.names, "next"]
    assert [found[name] for name in RECORD.names] == list(RECORD)
    assert found["next"] == pa.field("next", pa.int64())
    some = columns('SELECT createdat, records.id, n AS "N2", _kafka_offset AS place, _kafka_topic FROM records')
    assert list(some) == ["createdAt", "id", "N2", "place"]
    assert not some["id"].nullable and not some["place"].nullable
    assert list(columns("select * exclude (m, TAGS) from records")) == [
        n for n in RECORD.names if n not in ("m", "tags")
    ]
    row = {"c": {"city": "B"}, "tags": ["x", None], "m": [("k", 1)], "ts": NOON}
    done = run("SELECT * FROM records WHERE n IS NULL", row, {"n": 1})
    assert {name: done.rows[name][0].as_py() for name in row} == row
    assert done.kept is not None and (done.kept.to_pylist(), done.filtered) == ([0], 1)


@pytest.mark.parametrize(
    ("expression", "row", "expected", "kind"),
    [
        ("5 / 2", {}, 2.5, pa.float64()),
        ("n * 2", {"n": 4}, 8, pa.int64()),
        ("price * 3", {"price": 1}, 3, pa.decimal128(18, 2)),
        ("c.city", {"c": None}, None, pa.string()),
        ("upper(c.city) || '!'", {"c": {"city": "b"}}, "B!", pa.string()),
        ("date_trunc('hour', ts)", {"ts": NOON}, NOON.replace(minute=0), TIMESTAMP),
        ("(ts AT TIME ZONE 'Europe/Berlin')::date::varchar", {"ts": NOON.replace(hour=23)}, "2026-01-02", pa.string()),
        ("len(tags)", {"tags": ["a", "b"]}, 2, pa.int64()),
        (
            "list_transform(tags, lambda t: upper(t))",
            {"tags": ["a"]},
            ["A"],
            pa.list_(pa.field("element", pa.string())),
        ),
        ("m['k']", {"m": [("k", 7)]}, 7, pa.int32()),
        ("{'a': n}", {"n": 1}, {"a": 1}, pa.struct([("a", pa.int64())])),
        ("map {'a': i}", {"i": 1}, [("a", 1)], pa.map_(pa.string(), pa.field("value", pa.int32()))),
        ("nullif(i, 1)", {"i": 1}, None, pa.int32()),
        ("try_cast(id AS integer)", {"id": "x"}, None, pa.int32()),
        ("_kafka_offset + 1", {}, 1, pa.int64()),
        ('"offset" + 1', {"offset": 1}, 2, pa.int64()),
        ("CASE WHEN n > 1 THEN 'many' -- a comment\n END", {"n": 2}, "many", pa.string()),
        ("1::tinyint", {}, 1, pa.int32()),
        ("'WHERE FROM (''x'''", {}, "WHERE FROM ('x'", pa.string()),
        ("extract(year FROM ts)", {"ts": NOON}, 2026, pa.int64()),
        ("n IS DISTINCT FROM 1", {"n": None}, True, pa.bool_()),
    ],
)
def test_what_expressions_make(expression: str, row: dict[str, Any], expected: object, kind: pa.DataType) -> None:
    assert values(expression, row) == [expected]
    assert columns(f"SELECT {expression} AS x FROM records")["x"] == pa.field("x", kind)


NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TEXTS = st.sampled_from(["1", "7", "x", "", "99999999999999999999"])


@given(st.lists(st.tuples(NUMBERS, TEXTS), max_size=10))
def test_p1_overflows_and_casts_that_fail_are_bad_records_and_no_other_record_is(
    rows: list[tuple[int | None, str]],
) -> None:
    text = "SELECT n * 2 AS twice, CAST(id AS bigint) AS number, 1 / n AS part FROM records WHERE n <> 1 OR n IS NULL"
    done = run(text, *({"n": n, "id": word} for n, word in rows))
    expected: list[dict[str, Any]] = []
    bad = {}
    for place, (n, word) in enumerate(rows):
        if n == 1:
            continue
        if n is not None and not -(2**63) <= 2 * n < 2**63:
            bad[place] = "n"
        elif word not in ("1", "7"):
            bad[place] = "id"
        else:
            part = 1 / n if n else None  # as in Spark, and not infinity
            expected.append({"twice": None if n is None else 2 * n, "number": int(word), "part": part})
    assert done.rows.select(["twice", "number", "part"]).to_pylist() == expected
    assert {fault.index: fault.field for fault in done.rejected} == bad


HUGE = 600_000_000


def test_p1_what_takes_too_much_memory_is_a_bad_record_and_its_neighbours_are_rows() -> None:
    text = "SELECT upper(id) AS up, repeat(id, n) AS many FROM records WHERE n > 0"
    rows = [{"n": HUGE if place in (3, 17, 40) else place} for place in range(50)]
    done = run(text, *rows)
    expected = "what column many can be computed of in 512 MB of memory"
    assert done.rejected == tuple(Rejected(at, "", expected, "other values of id, n") for at in (3, 17, 40))
    assert done.rows["many"].to_pylist() == ["a" * at for at in range(1, 50) if at not in (3, 17, 40)]
    alone = run(text, {"n": HUGE})
    assert [fault.expected for fault in alone.rejected] == [expected]
    both = run("SELECT repeat('x', n) AS many, id || '!' AS more FROM records", {"n": 3}, {"n": HUGE}, {"n": 1})
    assert both.rejected == (Rejected(1, "n", expected, str(HUGE)),)
    assert both.rows["many"].to_pylist() == ["xxx", "x"]


def test_records_that_are_too_large_only_together_are_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sql_session._SETTINGS, "memory_limit", "32 MB")
    sql_session._session.cache_clear()
    sizes = range(4_000_000, 5_000_000, 100_000)
    done = run("SELECT repeat(id, n) AS x FROM records", *({"n": size} for size in sizes))
    sql_session._session.cache_clear()
    assert [len(row) for row in done.rows["x"].to_pylist()] == list(sizes)


def test_a_session_puts_nothing_on_a_disk() -> None:
    session = sql_session._session(0, 0)
    text = (
        "SELECT value FROM duckdb_settings() WHERE name IN ('temp_directory', 'enable_external_access') ORDER BY name"
    )
    assert session.sql(text).fetchall() == [("false",), ("",)]


def test_a_condition_that_cannot_be_computed_makes_a_bad_record_whatever_is_beside_it() -> None:
    """As a filter, DuckDB would not compute the right side where the left one is false, unless another record made it."""
    text = "SELECT id FROM records WHERE regexp_matches(id, '^[0-9]+$') AND CAST(id AS integer) > 3"
    rejected = Rejected(0, "id", "what the condition of WHERE can be computed of", '"x"')
    for more in ([], [{"id": "5"}], [{"id": "99999999999"}]):
        assert run(text, {"id": "x"}, *more).rejected[0] == rejected
    guarded = "SELECT id FROM records WHERE CASE WHEN regexp_matches(id, '^[0-9]+$') THEN CAST(id AS integer) > 3 END"
    done = run(guarded, {"id": "x"}, {"id": "5"})
    assert (done.rows["id"].to_pylist(), done.filtered, done.rejected) == (["5"], 1, ())


def test_d3_what_several_fields_make_is_told_without_their_values() -> None:
    (rejected,) = run("SELECT n * i AS x FROM records", {"n": 2**62, "i": 4711}).rejected
    assert rejected == Rejected(0, "", "what column x can be computed of", "other values of i, n")
    (beyond,) = run("SELECT ts + n * INTERVAL 1 YEAR AS x FROM records", {"ts": NOON, "n": 9000}).rejected
    assert beyond.found == "other values of n, ts"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "found ''; allowed: SELECT expression AS name, … FROM records WHERE condition"),
        ("DELETE FROM records", "found 'DELETE FROM records'; allowed: SELECT"),
        ("SELECT 1 AS x", "it must select FROM records, which are the records"),
        ("SELECT id FROM orders", "it must select FROM records"),
        ("SELECT id FROM records r", "found 'r' after FROM records"),
        ("SELECT id FROM records; SELECT 1", "found more than one statement"),
        ("SELECT id || 'x FROM records", "a quote or a comment in it is not closed"),
        ("SELECT (id FROM records", "its parentheses do not match"),
        ("SELECT id) FROM records", "its parentheses do not match"),
        ("SELECT n + 1 FROM records", "found 'n + 1' in the list; give it a name, like n + 1 AS name"),
        ("SELECT n + 1 m FROM records", "found 'n + 1 m' in the list; give it a name"),
        ("SELECT id, FROM records", "found '' in the list"),
        ("SELECT id FROM records WHERE", "there is nothing in WHERE"),
        ("SELECT DISTINCT id FROM records", "DISTINCT is not allowed: whether a record stays would depend on others"),
        ("SELECT id FROM records ORDER BY n", "ORDER BY is not allowed: rows stay in the order of their offsets"),
        ("SELECT id FROM records GROUP BY id", "GROUP BY is not allowed: an aggregate makes one row of several"),
        ("SELECT id FROM records JOIN t ON 1", "JOIN is not allowed: a join makes several rows of one"),
        (
            "SELECT offset + 1 AS x FROM records",
            "OFFSET is not allowed: whether a record stays would depend on others; a",
        ),
        ("SELECT (SELECT 1) AS x FROM records", "SELECT is not allowed: a subquery sees other records"),
        ("SELECT n IN (FROM records) AS x FROM records", "a subquery is not allowed: it sees other records"),
        ("SELECT row_number() OVER () AS x FROM records", "OVER is not allowed: a window sees other records"),
        ("SELECT unnest(tags) AS x FROM records", "UNNEST is not allowed: it makes several rows of one"),
        ("SELECT sum(n) AS x FROM records", "sum() is not allowed: it sees other records"),
        ("SELECT geomean(n) AS x FROM records", "geomean() is not allowed: it sees other records"),
        ("SELECT count(*) AS x FROM records", "count(*) is not allowed: an aggregate makes one row of several"),
        (
            "SELECT n FROM records WHERE COUNT ( * ) > 1",
            "count(*) is not allowed: an aggregate makes one row of several",
        ),
        ("SELECT sum(*) AS x FROM records", "* stands alone in the list, for all fields"),
        (f"SELECT {'[' * 500 + ']' * 500} AS x FROM records", "column x has DuckDB's type"),
        ("SELECT COLUMNS('.*') AS x FROM records", "an entry of the list makes several columns"),
        ("SELECT records AS x FROM records", "records means all fields at once"),
        ("SELECT * REPLACE (1 AS n) FROM records", "found a * with more after it; allowed: * or * EXCLUDE (name, …)"),
        ("SELECT * EXCLUDE (nn) FROM records", "no field is called 'nn' here"),
        (
            "SELECT now() AS x FROM records",
            "now() is not allowed: it returns something else each time; another attempt would",
        ),
        ("SELECT random() AS x FROM records", "random() is not allowed: it returns something else each time"),
        ("SELECT id.uuid() AS x FROM records", "uuid() is not allowed: it returns something else each time"),
        ("SELECT current_date AS x FROM records", "current_date is not allowed: it returns something else each time"),
        ("SELECT read_text('/etc/passwd') AS x FROM records", "read_text() is not allowed"),
        ("SELECT amuont * 2 AS x, n FROM records", "no field is called 'amuont' here"),
        ("SELECT nn, id FROM records", "no field is called 'nn' here"),
        ("SELECT upper(n) AS x FROM records", "DuckDB rejects it: Binder Error: No function matches"),
        ("SELECT n + AS x FROM records", "DuckDB rejects it: Parser Error: syntax error"),
        ("SELECT id FROM records WHERE n", "the condition of WHERE is a BIGINT; allowed: a BOOLEAN"),
        (
            "SELECT ts::timestamp AS x FROM records",
            "column x has DuckDB's type TIMESTAMP, which tables cannot have; cast it; write",
        ),
        (
            "SELECT INTERVAL 1 DAY AS x FROM records",
            "column x has DuckDB's type INTERVAL, which tables cannot have; cast it",
        ),
        (
            "SELECT n::hugeint AS x FROM records",
            "column x has DuckDB's type HUGEINT, which tables cannot have; cast it",
        ),
        ("SELECT n AS id, id FROM records", "column id: is declared twice"),
        ("SELECT n AS _kafka_offset FROM records", "names beginning with _kafka_ belong to hudi-ingest"),
        ("SELECT _kafka_offset FROM records", "nothing would be left; select at least one field"),
    ],
)
def test_k4_what_is_not_allowed_is_told_with_what_is(text: str, told: str) -> None:
    with pytest.raises(TransformProblems) as raised:
        Sql(text).output_schema(INPUT)
    assert told in str(raised.value)


def test_a_statement_is_taken_apart_as_it_was_written() -> None:
    found = parse("select *, records.n as m, f(a, 'x,y') AS \"From\" from records where a [1] > 'AS' ;")
    assert found.entries[0] == AllFields(())
    assert isinstance(found.entries[1], Selected) and isinstance(found.entries[2], Selected)
    assert (found.entries[1].name, found.entries[1].column) == ("m", "n")
    assert (found.entries[2].name, found.entries[2].value.text) == ("From", "f(a, 'x,y')")
    assert found.entries[2].value.calls == ("f",)
    assert found.where is not None and found.where.text == "a [1] > 'AS'"
    with pytest.raises(NotAllowed):
        parse("WITH x AS (SELECT 1) SELECT id FROM records")


def test_k4_a_chain_knows_what_a_statement_reads_and_hides_what_is_masked() -> None:
    record = parse_ddl("id string, card string")
    steps = [
        Step(
            "transforms[0].sql", Sql("SELECT *, CAST(card AS bigint) AS number FROM records WHERE _kafka_key IS NULL")
        ),
        Step("transforms[1].mask", Mask(("number",), Hash())),
    ]
    chain = Chain.of(record, steps)
    assert chain.kafka == {"key"}
    assert chain.masked == {"card"}
    assert chain.output == pa.schema([("id", pa.string()), ("card", pa.string()), ("number", pa.string())])
    rows = pa.RecordBatch.from_pylist(
        [{"id": "a", "card": "secret", "_kafka_key": None}], schema=pa.schema([*record, KAFKA_FIELDS["key"]])
    )
    (rejected,) = chain.apply(rows).rejected
    assert rejected == Rejected(0, "card", "what column number can be computed of, by transforms[0].sql", HIDDEN)


def test_a_field_that_an_earlier_step_took_away_is_told_so() -> None:
    steps = [Step("transforms[0].drop", Drop(("n",))), Step("transforms[1].sql", Sql("SELECT n + 1 AS x FROM records"))]
    with pytest.raises(ChainProblems, match="no field is called 'n' after transforms"):
        Chain.of(RECORD, steps)


def test_a_statement_that_takes_too_long_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with monkeypatch.context() as impatient:
        impatient.setattr(sql_session, "SECONDS", 0.5)
        with pytest.raises(sql_session.StatementFault, match=r"longer than 0\.5 s for 1 record;"):
            sql_session.run(pa.table({"a": [1]}), endless)
    assert len(sql_session.run(pa.table({"a": [1]}), "SELECT 1")) == 1
