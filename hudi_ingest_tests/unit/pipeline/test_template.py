"""Templates: `{topic}` in table.base_path and name makes a pipeline for each topic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.ledger import Ledger
from hudi_ingest.pipeline.file import load_pipeline, pipeline_from
from hudi_ingest.pipeline.folder import (
    find_pipeline,
    find_template,
    find_with_file,
    load_each,
    load_file_alone,
    load_folder,
)
from hudi_ingest.pipeline.sections.source import StartingTimestamp
from hudi_ingest_tests.support.pipeline_files import Write, document, load_pipelines

pytestmark = pytest.mark.fast

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
Remember = Callable[..., None]


def template(**changes: Any) -> dict[str, Any]:
    settings = {
        "name": "shop_{topic}",
        "table__base_path": "/lake/{topic}",
        "source__topics": ["shop.orders", "shop.a-b"],
    }
    return document(**{**settings, **changes})


def pattern(**changes: Any) -> dict[str, Any]:
    return template(**{"source__topics": None, "source__topics_pattern": r"shop\..+", **changes})


@pytest.fixture
def folder(write: Write) -> Callable[..., Path]:
    def write_files(**files: dict[str, Any]) -> Path:
        return [write(yaml.safe_dump(content), f"{name}.yaml") for name, content in files.items()][-1].parent

    return write_files


@pytest.fixture
def remember(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remember:
    """As ticks of the topics' sensor do, an hour apart."""
    url = f"sqlite:///{tmp_path / 'ledger' / 'ledger.db'}"
    monkeypatch.setenv(LEDGER_VARIABLE, url)

    def tick(*topics: str, hour: int = 0) -> None:
        Ledger.open(url).topics.remember("shop_{topic}", topics, NOW + timedelta(hours=hour))

    return tick


def test_k1_a_list_of_topics_makes_a_pipeline_for_each(folder: Callable[..., Path]) -> None:
    files = folder(
        shop=template(
            asset={"description": "Rows of {topic}", "group": "of_{topic}"},
            on_bad_record="dead_letter",
            dead_letters={"topic": "{topic}.dead"},
            source__starting_offsets={"shop.a-b": {0: 7}},
        )
    )
    orders, other = load_pipelines(files, {})
    assert (orders.name, orders.source.topics, orders.table.base_path) == (
        "shop_shop_orders",
        ("shop.orders",),
        "/lake/shop.orders",
    )
    assert (other.name, other.table.base_path, other.group_id) == (
        "shop_shop_a_b",
        "/lake/shop.a-b",
        "hudi-ingest.shop_shop_a_b",
    )
    assert (orders.asset.description, orders.asset.group) == ("Rows of shop.orders", "of_shop_orders")
    assert orders.dead_letters.topic == "shop.orders.dead"
    assert (orders.source.starting_offsets, other.source.starting_offsets) == ("earliest", {"shop.a-b": {0: 7}})
    assert find_pipeline(files, "shop_shop_a_b", {}) == other
    assert load_file_alone(files / "shop.yaml", {}).pipelines == (orders, other)


def test_k1_the_topics_of_a_pattern_are_those_that_have_been_seen(
    folder: Callable[..., Path], remember: Remember
) -> None:
    files = folder(shop=pattern(source__starting_offsets="latest"))
    assert load_pipelines(files, {}) == ()
    assert not (files / "ledger").exists(), "nothing is left behind where nothing runs"
    remember()
    remember("shop.orders", "unrelated", hour=1)
    remember("shop.orders", "shop.late", hour=2)
    pipelines = load_pipelines(files, {})
    assert [pipeline.name for pipeline in pipelines] == ["shop_shop_orders", "shop_shop_late"]
    (found,) = load_folder(files, {}).templates
    assert (found.name, found.pipeline_name) == ("shop", "shop_{topic}")
    assert find_template(files, "shop", {}) == found
    # The broker is not asked: one that disappeared keeps its pipeline.
    remember(hour=3)
    assert load_pipelines(files, {}) == pipelines


@pytest.mark.parametrize("starts", ["latest", {"timestamp": "2026-01-01T00:00:00Z"}])
def test_k1_a_topic_that_appears_later_is_read_from_its_first_offset(
    folder: Callable[..., Path], remember: Remember, starts: object
) -> None:
    remember("shop.orders")
    remember("shop.orders", "shop.late", hour=2)
    orders, late = load_pipelines(folder(shop=pattern(source__starting_offsets=starts)), {})
    assert orders.source.starting_offsets == starts or isinstance(orders.source.starting_offsets, StartingTimestamp)
    assert late.source.starting_offsets == "earliest"


def test_two_topics_of_one_name_are_refused_and_one_that_appears_stops_nothing(
    folder: Callable[..., Path], remember: Remember
) -> None:
    listed = folder(shop=template(source__topics=["shop.a-b", "shop.orders", "shop.a_b"]))
    pipelines, (broken,) = load_each(listed, {})
    assert pipelines == (), "its author made it wrong"
    assert "topic shop.a-b and topic shop.a_b would both have the pipeline shop_shop_a_b" in broken.problems[0]
    remember("shop.a_b", "shop.orders")
    remember("shop.a-b", hour=1)
    pipelines, (broken,) = load_each(folder(shop=pattern()), {})
    assert [pipeline.source.topics[0] for pipeline in pipelines] == ["shop.a_b", "shop.orders"]
    assert "topic shop.a-b: topic shop.a_b and topic shop.a-b would both" in broken.problems[0]
    assert find_pipeline(folder(shop=pattern()), "shop_shop_a_b", {}) == pipelines[0], "by its name, too"
    assert find_pipeline(folder(shop=pattern()), "shop_shop_orders", {}) == pipelines[1]


def test_a_topic_that_appears_gives_way_to_pipelines_that_were_there(
    folder: Callable[..., Path], remember: Remember
) -> None:
    remember("shop.orders", "shop.more")
    special = document(name="shop_shop_orders", table__base_path="/lake/special")
    inside = document(name="inside", table__base_path="/lake/shop.more/x")
    pipelines, broken = load_each(folder(shop=pattern(), special=special, within=inside), {})
    assert [pipeline.name for pipeline in pipelines] == ["shop_shop_orders", "inside"]
    assert pipelines[0].table.base_path == "/lake/special"
    assert [file.problems[0].partition(": ")[0] for file in broken] == [
        "shop.yaml (topic shop.more) and within.yaml",
        "shop.yaml (topic shop.orders) and special.yaml",
    ]
    assert find_pipeline(folder(shop=pattern()), "shop_shop_orders", {}).table.base_path == "/lake/special"


def test_problems_are_said_once_or_with_their_topics(folder: Callable[..., Path], remember: Remember) -> None:
    def problems(file: dict[str, Any]) -> list[str]:
        return [problem for broken in load_each(folder(shop=file), {})[1] for problem in broken.problems]

    (said,) = problems(template(table__compression="lz4"))
    assert said.startswith("table.compression: ")
    (said,) = problems(pattern(table__compression="lz4"))
    assert said.startswith("table.compression: "), "although no topic is known yet"
    (said,) = problems(pattern(source__topics_pattern="shop("))
    assert said.startswith("source.topics_pattern: not a regular expression")
    (said,) = problems(template(name="shop"))
    assert said.startswith("{topic} must be in `name` and in `table.base_path`")
    remember("shop.orders", f"shop.{'x' * 80}")
    (said,) = problems(pattern())
    assert "topic shop.xxx" in said
    assert "name: " in said
    assert "shop_shop_orders" in [pipeline.name for pipeline in load_each(folder(shop=pattern()), {})[0]]


def test_where_one_pipeline_is_expected_a_template_names_its_own(folder: Callable[..., Path]) -> None:
    files = folder(shop=template())
    for name in ("shop", "shop_{topic}"):
        with pytest.raises(ConfigError, match="name one of its pipelines: shop_shop_orders, shop_shop_a_b"):
            find_pipeline(files, name, {})
    with pytest.raises(ConfigError, match=r"`hudi-ingest validate .*shop\.yaml` lists them"):
        load_pipeline(files / "shop.yaml", {})
    with pytest.raises(ConfigError, match="only one can be"):
        pipeline_from(template(), files, "defs.yaml", {})
    with pytest.raises(ConfigError, match="no template is called 'shops'; known: shop; did you mean shop"):
        find_template(files, "shops", {})


def test_one_pipeline_of_a_template_is_loaded_without_the_others(
    folder: Callable[..., Path], remember: Remember
) -> None:
    remember("shop.a", "shop.b")
    loaded = load_folder(folder(shop=pattern()), {}, only="shop_shop_b")
    assert [pipeline.name for pipeline in loaded.pipelines] == ["shop_shop_b"]


@pytest.mark.parametrize("topic", ["{topic}.dlq", "shop.dlq"])
def test_dead_letters_do_not_become_topics_of_the_template(
    folder: Callable[..., Path], remember: Remember, topic: str
) -> None:
    remember("shop_{topic}", "shop.orders")
    path = folder(shop=pattern(on_bad_record="dead_letter", dead_letters={"topic": topic}))
    pipelines, broken = load_each(path)
    assert not pipelines
    assert "dead_letters.topic: " in broken[0].problems[0]
    assert "matches source.topics_pattern, so dead letters would be re-ingested" in broken[0].problems[0]
    assert load_each(folder(shop=pattern(on_bad_record="dead_letter", dead_letters={"topic": "dead.{topic}"})))[0]


MIRROR: dict[str, Any] = {
    "source__envelope": "debezium",
    "table__mode": "upsert",
    "table__key": "kafka_key",
    "table__schema": "infer",
    "table__buckets": 2,
}


def test_tables_of_a_mirror_have_settings_of_their_own(folder: Callable[..., Path]) -> None:
    mask = {"mask": {"fields": ["email"], "method": "hash", "salt": "pepper"}}
    own = {
        "shop.orders": {"schema": "id long, email string", "buckets": 16, "transforms": [mask]},
        "shop.a-b": {"mode": "append", "optional_fields": ["old"], "on_bad_record": "dead_letter"},
    }
    settings = template(
        **MIRROR,
        source__optional_fields=["gone"],
        tables=own,
        transforms=[{"constant": {"column": "from", "type": "string", "value": "x"}}],
    )
    first, second = load_pipelines(folder(shop=settings))
    assert (first.table.key, first.table.key_columns, first.table.buckets) == ("kafka_key", (), 16)
    assert [step.kind for step in first.transforms] == ["constant", "mask"]
    assert (second.table.mode, second.table.key, second.table.schema_) == ("append", (), "infer")
    assert [step.kind for step in second.transforms] == ["constant"]
    assert (first.source.optional_fields, second.source.optional_fields) == (("gone",), ("gone", "old"))
    assert (first.on_bad_record, second.on_bad_record) == ("fail", "dead_letter")
    assert (first.own_topic, second.own_topic) == ("shop.orders", "shop.a-b")


@pytest.mark.parametrize("make", [template, pattern])
def test_an_excluded_topic_has_no_pipeline(folder: Callable[..., Path], remember: Remember, make: Any) -> None:
    path = folder(shop=make(**MIRROR, tables={"shop.a-b": "exclude"}))
    remember("shop.orders", "shop.a-b")
    assert [pipeline.source.topics for pipeline in load_pipelines(path)] == [("shop.orders",)]
    found = find_template(path, "shop")
    assert not found.source.reads("shop.a-b")


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (
            {"shop.order": {}},
            "tables.shop.order: not a topic of this file, shop.orders, shop.a-b; did you mean shop.orders?",
        ),
        ({"shop.orders": 5}, "tables.shop.orders: allowed: {key: …} with keys of `table`, or exclude"),
        ({"shop.orders": {"transforms": {}}}, "tables.shop.orders.transforms: allowed: a list of steps"),
        ({"shop.orders": {"optional_fields": "old"}}, "tables.shop.orders.optional_fields: allowed: a list of fields"),
        ({"shop.orders": {"on_bad_record": "stop"}}, "found 'stop'; allowed: fail, skip or dead_letter"),
        ({"shop.orders": {"bucket": 1}}, "topic shop.orders: table.bucket: unknown"),
    ],
)
def test_tables_that_no_topic_can_have(folder: Callable[..., Path], tables: Any, expected: str) -> None:
    _, broken = load_each(folder(shop=template(**MIRROR, tables=tables)))
    assert any(expected in problem for file in broken for problem in file.problems), broken


def test_tables_need_a_table_for_each_topic(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"tables: needs \{topic\} in `name` and in `table\.base_path`"):
        load_pipeline(write(yaml.safe_dump(document(tables={"orders": {"buckets": 1}}))))


def test_a_topic_that_appears_later_begins_where_the_file_names_it(
    folder: Callable[..., Path], remember: Remember
) -> None:
    path = folder(shop=pattern(source__starting_offsets={"shop.orders": {0: 7}}))
    remember("shop.a-b")
    remember("shop.orders", "shop.c", hour=1)
    starts = {pipeline.source.topics[0]: pipeline.source.starting_offsets for pipeline in load_pipelines(path)}
    assert starts == {"shop.a-b": "earliest", "shop.orders": {"shop.orders": {0: 7}}, "shop.c": "earliest"}


def test_a_name_finds_the_pipeline_that_the_folder_has_or_its_problems(
    folder: Callable[..., Path], remember: Remember
) -> None:
    """Whatever conflicts with it: Dagster loads the folder, and commands and REST find single names."""
    remember("shop.a_b", "shop.orders", "shop.more")
    remember("shop.a-b", f"shop.{'x' * 80}", hour=1)
    files = folder(
        shop=pattern(),
        lists=template(name="list_{topic}", table__base_path="/lists/{topic}", source__topics=["c-d", "c_d"]),
        special=document(name="shop_shop_orders", table__base_path="/lake/special"),
        within=document(name="inside", table__base_path="/lake/shop.more/x"),
        one=document(name="one", table__base_path="/lake/same"),
        other=document(name="other", table__base_path="/lake/same"),
        twice=document(name="twice", table__base_path="/lake/twice"),
        again=document(name="twice", table__base_path="/lake/again"),
        broken=document(name="broken", table__compression="lz4"),
        fine=document(name="fine", table__base_path="/lake/fine"),
    )
    loaded = load_folder(files, {})
    there = {pipeline.name: pipeline for pipeline in loaded.pipelines}
    assert sorted(there) == ["fine", "inside", "shop_shop_a_b", "shop_shop_orders"]
    names = {*there, "shop_shop_more", "list_c_d", "one", "other", "twice", "broken", f"shop_shop_{'x' * 80}"}
    for name in names:
        if name in there:
            assert find_with_file(files, name, {}) == (there[name], loaded.paths[name])
            continue
        with pytest.raises(ConfigError) as raised:
            find_with_file(files, name, {})
        said = {problem for broken in loaded.broken for problem in broken.problems}
        own = [problem for problem in raised.value.problems if not problem.startswith("no pipeline is called")]
        assert own and said.issuperset(problem.removeprefix("lists.yaml: ") for problem in own), name
