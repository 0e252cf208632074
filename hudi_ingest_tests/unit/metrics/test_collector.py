"""One look at everything: a pipeline that does not answer leaves the others alone, and the look ends in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.home.folder import LEDGER_VARIABLE, Home
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.ledger import Ledger, counters
from hudi_ingest.local.processes import free_port
from hudi_ingest.metrics import collector as module
from hudi_ingest.metrics.collector import Collector
from hudi_ingest.metrics.families import DagsterRecord, Scene
from hudi_ingest.model.finding import Finding, answer
from hudi_ingest.operations import looks
from hudi_ingest.operations.health.judgement import ACCOUNTING_HOLDS, RUNS_SUCCEED
from hudi_ingest.operations.looks import Timeout
from hudi_ingest.operations.observation import Observation, look_at
from hudi_ingest.operations.state import PipelineState
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.waiting import wait_for


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two pipelines on a broker that is not there, and a broken file."""
    home = Home(root=tmp_path, pipelines=tmp_path / "pipelines", ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    home.pipelines.mkdir()
    servers = f"127.0.0.1:{free_port()}"
    for name in ("orders", "users"):
        settings = {
            "name": name,
            "source": {"bootstrap_servers": servers, "topics": [name]},
            "table": {"base_path": str(tmp_path / name), "schema": "id string"},
        }
        (home.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    (home.pipelines / "bad.yaml").write_text("name: [")
    return home


def of(scene: Scene, name: str) -> PipelineState:
    return next(pipeline for pipeline in scene.pipelines if pipeline.name == name)


def look_until(collector: Collector, shows: Callable[[Scene], object]) -> Scene:
    """Each look ends in time; on a machine whose cores are all busy only a later one may have all answers."""
    scenes = list[Scene]()

    def is_shown() -> object:
        scenes.append(collector.look())
        assert scenes[-1].took_seconds < 60
        return shows(scenes[-1])

    wait_for(is_shown, "a look that has the answers")
    return scenes[-1]


class Dagster:
    """An instance in which `orders` is on and its runs fail."""

    def look(self, pipelines: object) -> DagsterRecord:
        return DagsterRecord(True, {"orders": True}, {"orders": (answer("orders", RUNS_SUCCEED, False, "no"),)})


def test_s7_a_dead_broker_is_told_and_what_ledger_tables_and_dagster_know_is_still_there(home: Home) -> None:
    with Ledger.open(home.ledger_url) as ledger:
        ledger.counters.add(str(home.root / "orders"), {counters.ABORTED: 2})
    with closing(Collector(home, Dagster(), longest_seconds=6)) as collector:
        scene = look_until(
            collector, lambda scene: scene.ledger is not None and not isinstance(of(scene, "users").error, Timeout)
        )
        assert scene.broken_files == ("bad.yaml",)
        assert scene.dagster_up is True
        assert {pipeline.name: type(pipeline.error) for pipeline in scene.pipelines} == dict.fromkeys(
            ("orders", "users"), KafkaUnreachable
        )
        orders = of(scene, "orders")
        assert orders.is_on
        assert not of(scene, "users").is_on
        assert [finding.check for finding in orders.findings] == [RUNS_SUCCEED]
        assert orders.sequence == 0
        assert scene.ledger is not None
        assert scene.ledger.counters[orders.pipeline.table.base_path] == {counters.ABORTED: 2}


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_table_that_hangs_is_left_out_and_not_asked_again(
    home: Home, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    asked = list[str]()
    look = look_at

    def hang(pipeline: Pipeline, *arguments: Any, **named: Any) -> Observation:
        asked.append(pipeline.name)
        if pipeline.name == "orders":
            released.wait(240)
        return look(pipeline, *arguments, **named)

    monkeypatch.setattr(looks, "look_at", hang)
    with closing(Collector(home, longest_seconds=0.6)) as collector:
        for _ in range(2):
            scene = look_until(collector, lambda scene: of(scene, "users").sequence is not None)
            assert isinstance(of(scene, "orders").error, Timeout)
        assert asked.count("orders") == 1
        released.set()


def test_scrapes_within_a_few_seconds_look_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Collector(home, kept_seconds=60, longest_seconds=0.6)) as collector:
        looks = list[float]()
        look = collector.look

        def counted() -> Scene:
            looks.append(time.monotonic())
            return look()

        monkeypatch.setattr(collector, "look", counted)
        threads = [threading.Thread(target=collector.families) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(looks) == 1
        assert collector.families() is collector.families()


def test_a_topic_that_appeared_gets_metrics(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, home.ledger_url)
    monkeypatch.setattr(module, "RELOAD_SECONDS", 1e-6)
    settings = yaml.safe_load((home.pipelines / "users.yaml").read_text())
    source = {"bootstrap_servers": settings["source"]["bootstrap_servers"], "topics_pattern": "shop.+"}
    table = {**settings["table"], "base_path": f"{home.root}/{{topic}}"}
    (home.pipelines / "users.yaml").write_text(yaml.safe_dump({"name": "{topic}", "source": source, "table": table}))
    with Ledger.open(home.ledger_url) as ledger, closing(Collector(home, longest_seconds=0.6)) as collector:
        ledger.topics.remember("{topic}", ["shop_a"], datetime.now(timezone.utc))
        assert [pipeline.name for pipeline in collector.look().pipelines] == ["orders", "shop_a"]
        ledger.topics.remember("{topic}", ["shop_b"], datetime.now(timezone.utc))
        assert [pipeline.name for pipeline in collector.look().pipelines] == ["orders", "shop_a", "shop_b"]


def test_p7_what_a_table_lists_is_looked_at_now_and_then_and_each_time_while_it_is_wrong(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load_pipeline(home.pipelines / "orders.yaml")
    passed, taken = [True], [0]

    def findings(_: Observation) -> list[Finding]:
        taken[0] += 1
        return [answer("orders", ACCOUNTING_HOLDS, passed[0], "no")]

    monkeypatch.setattr(Observation, "findings_on_commits", property(findings))
    monkeypatch.setattr(Observation, "findings_now", ())
    now = datetime.now(timezone.utc)
    with closing(Collector(home)) as collector:

        def found(seconds: float) -> bool:
            situation = Situation(CommittedState(True), {}, {}, {})
            [finding] = collector._findings(seen(pipeline, situation), now + timedelta(seconds=seconds))
            return finding.passed

        assert found(0) and found(599) and taken == [1]
        passed[0] = False
        assert found(599) and not found(600) and not found(601) and taken == [3]
        passed[0] = True
        assert found(602) and found(603) and taken == [4]
