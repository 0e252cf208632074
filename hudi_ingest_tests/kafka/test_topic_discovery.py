"""A template's topics on a real broker: found, missed, forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from dagster import DagsterInstance, SkipReason, build_sensor_context

from hudi_ingest.exceptions import TopicMissing
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.local.broker import create_topic
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.coordinator.topics import TopicFinder, TopicSearch
from hudi_ingest.pipeline.folder import find_pipeline, find_template
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, write_pipeline
from hudi_ingest_tests.support.pipeline_files import load_pipelines
from hudi_ingest_tests.support.silent_server import silent_server
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka


@pytest.mark.tier(1)
def test_k1_s6_a_topic_that_appears_gets_a_pipeline_and_one_that_disappears_keeps_it_and_fails(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (
        (LEDGER_VARIABLE, ground.home.ledger_url),
        (HOME_VARIABLE, str(ground.home.root)),
        (PIPELINES_VARIABLE, str(ground.home.pipelines)),
    ):
        monkeypatch.setenv(variable, value)
    write_pipeline(
        ground,
        "{topic}",
        "shop.yaml",
        enabled=True,
        source={"topics_pattern": rf"{ground.name}\..+"},
        table={"base_path": str(ground.home.root / "lake" / "{topic}")},
    )

    def discovered() -> str:
        """What the search for topics says, in the code location as it is loaded now."""
        return TopicFinder(find_template(ground.home.pipelines, "shop")).find().text

    assert discovered() == "0 topics"
    names = [f"{ground.name}.one", f"{ground.name}.two"]
    for name in names:
        create_topic(ground.bootstrap_servers, name, 1)
    assert f"2 topics; {names[0]}, {names[1]} without a pipeline in this code location" in discovered()
    announced = ground.home.topics_file.read_text()
    assert discovered() == "2 topics", "as it was loaded after them"
    assert ground.home.topics_file.read_text() == announced
    pipelines = load_pipelines(ground.home.pipelines)
    assert [pipeline.source.topics for pipeline in pipelines] == [(name,) for name in names]
    repository = ingest_definitions().get_repository_def()
    assert repository.get_sensor_def(COORDINATOR).default_status.value == "RUNNING"

    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    admin.delete_topics([names[0]])[names[0]].result(300)
    wait_for(lambda: f"{names[0]} not on the broker, so their pipelines fail" in discovered(), "it is missed")
    gone = find_pipeline(ground.home.pipelines, f"{ground.name}_one")
    with DagsterInstance.ephemeral() as instance, pytest.raises(TopicMissing, match=names[0]):
        tick(gone, instance, datetime.now(timezone.utc))
    listed = json.loads(answer(ground.home, "topics", "shop", "--refresh", "--json").stdout)
    assert [(topic["topic"], topic["missing"]) for topic in listed] == [(names[0], True), (names[1], False)]
    answer(ground.home, "topics", "shop", "--forget", names[0])
    assert [pipeline.source.topics for pipeline in load_pipelines(ground.home.pipelines)] == [(names[1],)]


def test_k1_between_whole_looks_a_tick_asks_the_broker_only_and_finds_what_appeared(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(
        ground,
        "{topic}",
        "shop.yaml",
        source={"topics_pattern": rf"{ground.name}\..+"},
        table={"base_path": str(ground.home.root / "lake" / "{topic}")},
    )
    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    finder = TopicFinder(find_template(ground.home.pipelines, "shop"))

    def discovered() -> str:
        return finder.find().text

    assert discovered() == "0 topics"
    with monkeypatch.context() as without_ledger:
        without_ledger.setenv(LEDGER_VARIABLE, "no ledger")
        assert discovered() == "0 topics"
    create_topic(ground.bootstrap_servers, f"{ground.name}.one", 1)
    assert discovered().startswith(f"1 topic; {ground.name}.one without a pipeline")
    announced = ground.home.topics_file.read_text()
    assert discovered().startswith(f"1 topic; {ground.name}.one without a pipeline")
    assert ground.home.topics_file.read_text() == announced, "it is not loaded twice while it is being loaded"


def test_k1_a_tick_finds_topics_although_there_is_no_pipeline_yet_and_a_silent_cluster_delays_it_not(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(ground.home.root))
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    monkeypatch.setenv(PIPELINES_VARIABLE, str(ground.home.pipelines))
    base_path = {"base_path": str(ground.home.root / "lake" / "{topic}")}
    write_pipeline(ground, "{topic}", "shop.yaml", source={"topics_pattern": rf"{ground.name}\..+"}, table=base_path)
    create_topic(ground.bootstrap_servers, f"{ground.name}.one", 1)
    repository = ingest_definitions().get_repository_def()
    sensor = repository.get_sensor_def(COORDINATOR)
    with DagsterInstance.ephemeral() as instance:

        def said() -> str:
            context = build_sensor_context(instance=instance, repository_def=repository)
            answer = sensor(context)
            assert isinstance(answer, SkipReason)
            return str(answer.skip_message)

        wait_for(lambda: f"topics of shop: 1 topic; {ground.name}.one without a pipeline" in said(), "it is found")
    shop = find_template(ground.home.pipelines, "shop")
    with silent_server() as away:
        silent = shop.source.model_copy(update={"bootstrap_servers": away, "request_timeout_seconds": 60.0})
        search = TopicSearch([replace(shop, source=silent, path=Path("away.yaml")), shop])
        found = list[str]()

        def finds() -> bool:
            found.extend(each.template for each in search.step(0.2))
            return "shop" in found

        wait_for(finds, "the other is found")
        assert "away" not in found
