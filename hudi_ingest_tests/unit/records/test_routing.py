"""One topic's records to several tables: every record is dealt with in exactly one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.row_maker import BatchOutcome, RowMaker
from hudi_ingest.transaction.columns.decoding import converter_of, route_converter_of
from hudi_ingest_tests.support.pipeline_files import load_pipelines

pytestmark = pytest.mark.fast

SOURCE = TopicPartition("events", 0)


def load(folder: Path, others: str, **changes: Any) -> tuple[Pipeline, ...]:
    folder.mkdir(exist_ok=True)
    settings = {
        "name": "shop_{route}",
        "source": {"bootstrap_servers": "localhost:9092", "topics": ["events"]},
        "route": {
            "field": "about.type",
            "tables": {"order": {"schema": "id string not null, amount double"}, "refund-2": {}},
            "others": others,
        },
        "table": {"base_path": "/lake/shop/{route}", "schema": "id string"},
        "on_bad_record": "skip",
        **changes,
    }
    (folder / "events.yaml").write_text(yaml.safe_dump(settings))
    return load_pipelines(folder, {})


def made(pipeline: Pipeline, values: Sequence[bytes | None], tombstones: str = "skip") -> BatchOutcome:
    maker = RowMaker(
        converter_of(pipeline),
        pipeline.chain,
        pipeline.table.record,
        on_tombstone=tombstones,  # type: ignore[arg-type]
        routing=pipeline.routing,
        route_converter=route_converter_of(pipeline),
    )
    offsets, times = pa.array(range(len(values)), pa.int64()), pa.array([0] * len(values), pa.timestamp("ms"))
    batch = pa.RecordBatch.from_arrays(
        [offsets, times, pa.array(values, pa.binary())], names=["offset", "timestamp", "value"]
    )
    return maker.make(SOURCE, batch)


def places(outcome: BatchOutcome, count: int) -> list[int]:
    """The records that are rows or bad here."""
    rows = range(count) if outcome.kept is None else outcome.kept.to_pylist()
    return [*rows, *(refusal.index for refusal in outcome.bad)]


types = st.one_of(
    st.sampled_from(["order", "refund-2", "others", "order ", "ORDER", ""]),
    st.none(),
    st.integers(),
    st.text(max_size=3),
)
records = st.one_of(
    st.builds(
        lambda kind, rest: json.dumps({"about": {"type": kind}, **rest}).encode(),
        types,
        st.dictionaries(
            st.sampled_from(["id", "amount", "x"]), st.sampled_from(["1", 1.5, None, [], True]), max_size=3
        ),
    ),
    st.sampled_from(
        [
            None,
            b"",
            b"{}",
            b'{"about": 3}',
            b'{"about": {"type": "order"',
            b'{"about": null}',
            b"[]",
            b"\xff",
            b'{"about": {"type": "order", "type": "refund-2"}}',
            b'{"about": {"type": "order"}, "id": "a", "id": "b"}',
        ]
    ),
)


@pytest.mark.parametrize("others", ["fail", "skip", "table"])
@given(values=st.lists(records, max_size=12), tombstones=st.sampled_from(["skip", "fail"]))
def test_p1_p2_every_record_is_dealt_with_in_exactly_one_table(
    others: str, tombstones: str, values: list[bytes | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    pipelines = _loaded(others, tmp_path_factory)
    outcomes = [made(pipeline, values, tombstones) for pipeline in pipelines]
    for outcome in outcomes:
        assert outcome.rows.num_rows + len(outcome.bad) + outcome.skipped + outcome.filtered == len(values)
    dealt = [place for outcome in outcomes for place in places(outcome, len(values))]
    assert len(dealt) == len(set(dealt)), "in two tables"
    assert sum(outcome.skipped for outcome in outcomes) == (values.count(None) if tombstones == "skip" else 0)
    left_out = len(values) - len(dealt) - sum(outcome.skipped for outcome in outcomes)
    assert left_out == 0 or others == "skip", "in none"
    if others == "skip":
        assert left_out == sum(_is_of_another(value) for value in values)


def _is_of_another(value: bytes | None) -> bool:
    """Whether it says a type that no table claims."""
    try:
        said = json.loads(
            value or b"", object_pairs_hook=lambda pairs: {**dict(pairs), "twice": len(pairs) > len(dict(pairs))}
        )
        kind = said["about"]["type"]
    except (ValueError, TypeError, KeyError):
        return False
    return isinstance(kind, str) and not said["about"]["twice"] and kind not in ("order", "refund-2")


_LOADED: dict[str, tuple[Pipeline, ...]] = {}


def _loaded(others: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, ...]:
    if others not in _LOADED:
        _LOADED[others] = load(tmp_path_factory.mktemp("routes"), others)
    return _LOADED[others]


def event(kind: object, **fields: object) -> bytes:
    return json.dumps({"about": {"type": kind}, **fields}).encode()


def test_each_value_has_a_table_with_columns_of_its_own(tmp_path: Path) -> None:
    order, refund = load(tmp_path / "files", "fail")
    assert [(pipeline.name, pipeline.table.base_path) for pipeline in (order, refund)] == [
        ("shop_order", "/lake/shop/order"),
        ("shop_refund_2", "/lake/shop/refund-2"),
    ]
    assert order.rows_digest != refund.rows_digest
    values = [event("order", id="a", amount=1.5), event("refund-2", id=None), event("order", amount=1.5), event(3)]
    rows = made(order, values)
    assert rows.rows.to_pylist() == [{"id": "a", "amount": 1.5}]
    assert [(refusal.index, refusal.field, refusal.found) for refusal in rows.bad] == [
        (2, "id", "no such field"),
        (3, "about.type", "no text"),
    ]
    assert made(refund, values).rows.to_pylist() == [{"id": None}]


def test_others_have_a_table_if_they_are_given_one(tmp_path: Path) -> None:
    *_, rest = load(tmp_path / "files", "table")
    assert (rest.name, rest.table.base_path) == ("shop_others", "/lake/shop/others")
    outcome = made(rest, [event("order", id="a"), event("unknown", id="b"), b'{"id": "c"}', b"no JSON"])
    assert (outcome.rows["id"].to_pylist(), outcome.kept.to_pylist() if outcome.kept else None) == (["b", "c"], [1, 2])
    assert [refusal.index for refusal in outcome.bad] == [3]


def test_what_cannot_be_routed_is_refused(tmp_path: Path) -> None:
    def said(**changes: Any) -> str:
        with pytest.raises(Exception) as raised:
            load(tmp_path / "files", **{"others": "fail", **changes})
        return str(raised.value)

    keyed = {"base_path": "/lake/{route}", "schema": "id string not null", "mode": "upsert", "key": ["id"]}
    assert "needs `table.mode: append`" in said(table=keyed)
    assert "needs `source.format: json`" in said(
        source={"bootstrap_servers": "a:1", "topics": ["t"], "format": "string"},
        table={"base_path": "/l/{route}", "schema": "v string"},
    )
    assert "{route} must be in `name` and in `table.base_path`" in said(name="shop")
    assert "route.tables.others: others is the table of the rest" in said(
        route={"field": "type", "tables": {"others": {}}}
    )
    assert "would both have the pipeline shop_a_b" in said(route={"field": "type", "tables": {"a-b": {}, "a_b": {}}})
    assert "route a: table.compression" in said(
        route={"field": "type", "tables": {"a": {"compression": "lz4"}, "b": {}}}
    )
