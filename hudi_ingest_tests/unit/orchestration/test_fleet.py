"""The pipelines of a template share a sensor: turns, a cap, switches, and one that is broken or hangs among many."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterInvalidSubsetError,
    RepositoryDefinition,
    RunRequest,
    SensorEvaluationContext,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import ConfigError, IngestError, TopicMissing
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import free_port
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.operations.health.judgement import UP_TO_DATE
from hudi_ingest.operations.looks import AT_ONCE
from hudi_ingest.operations.observation import Observation
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.code_location import ingest_definitions
from hudi_ingest.orchestration.coordinator import fleet as fleet_module
from hudi_ingest.orchestration.coordinator import look as look_module
from hudi_ingest.orchestration.coordinator import sensor as sensor_module
from hudi_ingest.orchestration.coordinator.fleet import (
    FAILING,
    LATE,
    MOST_REQUESTS,
    OVERLAPS,
    WAITING,
    Evaluation,
    Fleet,
    in_turn,
    late_text,
    queue,
    text_of,
)
from hudi_ingest.orchestration.coordinator.look import Look, look_at
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.coordinator.sensor import report_look
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE, open_instance
from hudi_ingest.orchestration.jobs.run_config import require_startable, run_request
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.orchestration.switch import activities, switch, switched
from hudi_ingest.pipeline.file import pipeline_from
from hudi_ingest.pipeline.folder import load_folder
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest.transaction.plan.planning import observe as real_observe
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.waiting import wait_for

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def pipelines_of(home: Home, topics: int, **settings: Any) -> tuple[Pipeline, ...]:
    """Write the template `shop.yaml`, and return its pipelines `shop_t00`, `shop_t01`…"""
    names = [f"t{number:02}" for number in range(topics)]
    content = document(name="shop_{topic}", source__topics=names, table__base_path=str(home.root / "{topic}"))
    (home.pipelines / "shop.yaml").write_text(yaml.safe_dump({**content, "enabled": True, **settings}))
    return load_folder(home.pipelines).pipelines


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no hanging table, and no broker runs here."""
    monkeypatch.setattr(fleet_module, "DEADLINE_SECONDS", 300.0)
    monkeypatch.setattr(fleet_module, "moved", lambda pipelines: frozenset())
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """With an embedded Dagster."""
    found = Home(tmp_path, tmp_path / "pipelines", f"sqlite:///{tmp_path / 'ledger.db'}")
    found.pipelines.mkdir()
    found.dagster.mkdir()
    (found.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for variable, value in (
        (HOME_VARIABLE, str(found.root)),
        (LEDGER_VARIABLE, found.ledger_url),
        (PIPELINES_VARIABLE, str(found.pipelines)),
        (DAGSTER_VARIABLE, str(found.dagster)),
    ):
        monkeypatch.setenv(variable, value)
    return found


@pytest.fixture
def instance(home: Home) -> Iterator[DagsterInstance]:
    with open_instance(home.dagster) as opened:
        yield opened


def named(count: int) -> list[Pipeline]:
    """Return pipelines `p0`, `p1`…, which differ in their names only."""
    one = pipeline_from(document(), Path(), "here", {})
    return [one.model_copy(update={"name": f"p{number}"}) for number in range(count)]


def request_of(pipeline: Pipeline) -> RunRequest:
    plan = IngestPlan(pipeline.name, f"{pipeline.name}-000001-a", 1, (Slice(pipeline.source.topics[0], 0, 0, 5),))
    return run_request(pipeline, plan, "here")


Answer = Callable[[Pipeline], RunRequest | str]
CALM = Situation(CommittedState(exists=False), {}, {}, {})


def looks_of(answer: Answer) -> Callable[[PipelineMemory, DagsterInstance, datetime], Look]:
    """Looks that see nothing new, with these answers."""

    def look(memory: PipelineMemory, instance: DagsterInstance, now: datetime) -> Look:
        try:
            return Look(memory.pipeline, now, seen(memory.pipeline, CALM, now), answer(memory.pipeline))
        except IngestError as error:
            return Look(memory.pipeline, now, error, error)

    return look


def no_report(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
    """Where only the decisions matter."""


def fleet_of(pipelines: Sequence[Pipeline], answer: Answer = lambda pipeline: request_of(pipeline)) -> Fleet:
    return Fleet(pipelines, looks_of(answer), no_report)


def reporting_fleet(pipelines: Sequence[Pipeline], answer: Answer) -> Fleet:
    """It reports decisions and errors as the sensor does."""

    def report(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
        report_look(replace(look, observed=None) if isinstance(look.observed, Observation) else look, memory, instance)

    return Fleet(pipelines, looks_of(answer), report)


def anything_goes(pipeline: Pipeline, request: RunRequest) -> None:
    """What a code location that has all the pipelines says."""


def evaluated(fleet: Fleet, instance: DagsterInstance) -> Evaluation:
    return fleet.evaluate(instance, NOON, anything_goes)


def names_of(evaluation: Evaluation) -> list[str]:
    return [request.tags[tags.PIPELINE] for request in evaluation.requests]


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_no_pipeline_that_is_due_waits_longer_than_the_others_turns_take(
    pipelines: int, served: int, data: st.DataObject
) -> None:
    names = [f"p{number}" for number in range(pipelines)]
    waiting = dict[str, float]()
    rounds = math.ceil(pipelines / served)
    patient = data.draw(st.sampled_from(names))
    for now in range(rounds):
        # The others come and go as they like.
        due = [name for name in names if name == patient or data.draw(st.booleans())]
        waiting = queue(waiting, due, now)
        assert [*waiting.values()] == sorted(waiting.values())
        assert waiting.keys() == set(due)
        turns = [*waiting][:served]
        if patient in turns:
            return
        waiting = {name: since for name, since in waiting.items() if name not in turns}
    pytest.fail(f"{patient} was due in {rounds} ticks, and had no turn")


def test_a_tick_counts_and_names_those_that_fail_and_ten_that_changed() -> None:
    before = {f"p{number:02}": (WAITING, "no new records") for number in range(40)}
    assert text_of(before, before) == "40 pipelines: 40 waiting"
    said = {**before, **{f"p{number:02}": (WAITING, f"{number} records waiting") for number in range(20)}}
    said["p30"] = FAILING, "TopicMissing: no topic"
    lines = text_of(said, before).splitlines()
    assert lines[:2] == ["40 pipelines: 1 failing, 39 waiting", "p30: TopicMissing: no topic"]
    assert len(lines) == 12
    assert lines[-1] == "and 11 more"
    counted_on = {**said, **{f"p{number:02}": (WAITING, f"{number + 7} records waiting") for number in range(20)}}
    assert len(text_of(counted_on, said).splitlines()) == 2, "numbers alone are no change; a failure is always named"
    assert text_of({"orders": (WAITING, "no new records")}, {}) == "no new records", "one alone is not counted"


def test_all_due_pipelines_get_their_runs_so_many_in_a_tick_and_each_in_its_turn(
    home: Home, instance: DagsterInstance
) -> None:
    pipelines = pipelines_of(home, 5 * MOST_REQUESTS // 2)
    fleet = fleet_of(pipelines)
    first, second, third = (names_of(evaluated(fleet, instance)) for _ in range(3))
    names = [pipeline.name for pipeline in pipelines]
    assert (len(first), len(second), len(third)) == (MOST_REQUESTS,) * 3
    assert {*first} == {*names[:MOST_REQUESTS]}
    assert {*second} == {*names[MOST_REQUESTS : 2 * MOST_REQUESTS]}
    assert {*names[2 * MOST_REQUESTS :]} <= {*third}


def test_after_a_start_the_topics_that_are_new_come_first_and_the_others_in_the_next_tick(
    home: Home, instance: DagsterInstance
) -> None:
    pipelines = pipelines_of(home, 5)
    looked = list[str]()

    def look(pipeline: Pipeline) -> RunRequest | str:
        looked.append(pipeline.name)
        with Ledger.open(home.ledger_url) as ledger:
            ledger.requests.note_tick(pipeline.name, NOON)
        return request_of(pipeline)

    assert len(names_of(evaluated(fleet_of(pipelines[:4], look), instance))) == 4, "nobody knows any of them"
    looked.clear()
    fleet = fleet_of(pipelines, look)
    assert names_of(evaluated(fleet, instance)) == looked == ["shop_t04"]
    evaluated(fleet, instance)
    assert {*looked[1:]} >= {pipeline.name for pipeline in pipelines[:4]}
    looked.clear()
    evaluated(fleet_of(pipelines, look), instance)
    assert len(looked) == 5, "none is new"


def test_one_that_is_broken_is_named_fails_its_check_and_keeps_no_other_from_its_run(
    home: Home, instance: DagsterInstance
) -> None:
    pipelines = pipelines_of(home, 5)

    def look(pipeline: Pipeline) -> RunRequest | str:
        if pipeline.name == "shop_t01":
            raise RuntimeError("a wrong turn")
        return "no new records" if pipeline.name == "shop_t02" else request_of(pipeline)

    fleet = reporting_fleet(pipelines, look)
    evaluation = evaluated(fleet, instance)
    assert {*names_of(evaluation)} == {"shop_t00", "shop_t03", "shop_t04"}
    assert evaluation.errors.keys() == {"shop_t01"}
    assert "shop_t01: RuntimeError: a wrong turn" in evaluation.text
    check = AssetCheckKey(AssetKey(["shop_t01"]), UP_TO_DATE)
    history = partial(instance.event_log_storage.get_asset_check_execution_history, check, limit=5)
    wait_for(history, "a report beside the requests ends")
    (red,) = history()
    assert red.status is AssetCheckExecutionRecordStatus.FAILED

    def all_fail(pipeline: Pipeline) -> RunRequest | str:
        raise TopicMissing("no topic")

    with pytest.raises(TopicMissing):
        evaluated(fleet_of(pipelines, all_fail), instance)
    switch(home, pipelines[0], False)
    with pytest.raises(TopicMissing):
        evaluated(fleet_of(pipelines, all_fail), instance)


def test_a_request_that_dagster_would_refuse_is_left_out_and_the_others_start(
    home: Home, instance: DagsterInstance
) -> None:
    pipelines = pipelines_of(home, 3)
    repository = ingest_definitions(home.pipelines).get_repository_def()

    def look(pipeline: Pipeline) -> RunRequest | str:
        request = request_of(pipeline)
        begin = request.run_config["ops"][pipeline.name]["ops"]["begin"]["config"]
        if pipeline.name == "shop_t00":
            begin["transaction_id"] = ""
        if pipeline.name == "shop_t01":
            begin["offsets"] = 5
        return request

    def require_valid(pipeline: Pipeline, request: RunRequest) -> None:
        require_startable(request, pipeline, repository)

    evaluation = fleet_of(pipelines, look).evaluate(instance, NOON, require_valid)
    assert names_of(evaluation) == ["shop_t02"]
    assert "it has no plan" in str(evaluation.errors["shop_t00"])
    assert "offsets" in str(evaluation.errors["shop_t01"])
    elsewhere = request_of(pipelines[2]).with_replaced_attrs(asset_selection=[AssetKey(["nowhere"])])
    with pytest.raises(DagsterInvalidSubsetError):
        require_startable(elsewhere, pipelines[2], repository)
    with pytest.raises(ConfigError, match="no job for the asset shop_t02"):
        require_startable(request_of(pipelines[2]), pipelines[2], None)


def test_no_report_delays_a_request_and_one_that_was_late_comes_first_in_the_next_tick(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_LEAST_SECONDS", 0.2)
    over, began, ended = threading.Event(), list[str](), list[str]()

    def report(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
        began.append(look.pipeline.name)
        over.wait(300)
        ended.append(look.pipeline.name)

    pipelines = pipelines_of(home, AT_ONCE + 2)
    fleet = Fleet(pipelines, looks_of(lambda pipeline: request_of(pipeline)), report)
    try:
        assert len(evaluated(fleet, instance).requests) == AT_ONCE + 2
        assert not ended
        assert len(began) <= AT_ONCE
        left = [pipeline.name for pipeline in pipelines if pipeline.name not in began]
        assert fleet._unreported.keys() == {*left}
    finally:
        over.set()
    wait_for(lambda: len(ended) == len(began), "the reports end")
    before = len(began)
    evaluated(fleet, instance)
    assert {*began[before : before + len(left)]} == {*left}


def test_repairs_are_reported_although_another_look_came_before_their_report(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(fleet_module, "DEADLINE_SECONDS", 0.0)
    reported, pipelines = list[str](), pipelines_of(home, 1)

    def report(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
        reported.extend(look.repairs)

    fleet = Fleet(pipelines, looks_of(lambda pipeline: "nothing"), report)
    for repair in ("one", "two"):
        fleet._leave(Look(pipelines[0], NOON, seen(pipelines[0], CALM), repairs=(repair,)))
    monkeypatch.setattr(fleet_module, "_LEAST_SECONDS", 300.0)
    evaluated(fleet, instance)
    assert reported == ["one", "two"]


@pytest.mark.parametrize("silent", ["cluster", "table", "ledger"])
def test_what_is_silent_of_one_pipeline_delays_no_other(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """Two have a file of their own, one is of a template; nobody listens at their brokers, which they say."""
    monkeypatch.setattr(fleet_module, "DEADLINE_SECONDS", 0.5)
    nobody = f"127.0.0.1:{free_port()}"
    settings = {"bootstrap_servers": nobody, "request_timeout_seconds": 0.2, "format": "json"}
    for name in ("slow", "quick"):
        own = document(name=name, table__base_path=str(home.root / name), enabled=True)
        own["source"] = {**own["source"], **settings}
        (home.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(own))
    pipelines = pipelines_of(home, 1, source={**settings, "topics": ["t00"]})
    over, ledger_open = threading.Event(), Ledger.open

    def hangs(pipeline: Pipeline) -> None:
        if pipeline.name == "slow":
            over.wait(300)

    def observe(pipeline: Pipeline, *given: Any) -> Situation:
        if silent == "cluster":
            hangs(pipeline)
        return real_observe(pipeline, *given)

    def repair(table: PipelineTable, ledger: Ledger) -> list[str]:
        if silent == "table":
            hangs(table.pipeline)
        return []

    def look(memory: PipelineMemory, instance: DagsterInstance, now: datetime) -> Look:
        opening.pipeline = memory.pipeline
        return look_at(memory, instance, now)

    def opened(url: str) -> Ledger:
        if silent == "ledger" and hasattr(opening, "pipeline"):
            hangs(opening.pipeline)
        return ledger_open(url)

    opening = threading.local()
    monkeypatch.setattr(look_module, "observe", observe)
    monkeypatch.setattr(look_module, "repair_timeline", repair)
    monkeypatch.setattr(Ledger, "open", opened)
    # Whether it answers is not what is tried.
    monkeypatch.setattr(look_module, "answering_cluster", lambda source: nullcontext(KafkaCluster(source)))
    assert {each.name for each in pipelines} == {"shop_t00", "slow", "quick"}
    fleet = Fleet(pipelines, look, no_report)
    try:
        said = dict[str, tuple[str, str]]()
        while not {"shop_t00", "quick"} <= {name for name, (state, _) in said.items() if state == WAITING}:
            evaluated(fleet, instance)
            said = fleet._said
        assert said["slow"][0] == LATE
        assert nobody in said["quick"][1]
    finally:
        over.set()


def test_a_tables_page_shows_whether_a_pipeline_is_on_and_the_last_decision_and_why(
    home: Home, instance: DagsterInstance
) -> None:
    (pipeline,) = pipelines_of(home, 1)
    answers: list[RunRequest | str] = ["5 records waiting", "7 records waiting", request_of(pipeline), "all is read"]

    def shown() -> list[tuple[object, ...]]:
        records = instance.fetch_observations(AssetKey([pipeline.name]), limit=20, ascending=True).records
        found = [each.asset_observation.metadata for each in records if each.asset_observation]
        return [tuple(each[key].value for key in ("on", "decision", "why")) for each in found]

    def ticks(*minutes: int) -> None:
        """Each in a process that has just begun."""
        for minute in minutes:
            fleet = reporting_fleet([pipeline], lambda _: answers.pop(0))
            fleet.evaluate(instance, NOON + timedelta(minutes=minute), anything_goes)

    ticks(0, 1)
    assert shown() == [(True, "waits", "5 records waiting")], "numbers alone are no change, in no process"
    ticks(3, 6)
    assert [each[1] for each in shown()] == ["waits", "begins a run", "waits"]
    switch(home, pipeline, False)
    before = shown()
    assert before[-1] == (False, "paused", "`hudi-ingest resume shop_t00` turns it on")
    ticks(9)
    assert shown() == before, "it is shown already"
    switch(home, pipeline, True)
    assert shown()[-1][:2] == (True, "resumed")


def test_decisions_that_change_all_the_time_are_shown_once_a_minute(home: Home, instance: DagsterInstance) -> None:
    (pipeline,) = pipelines_of(home, 1)
    answers = iter(["one", "another"] * 6)
    fleet = reporting_fleet([pipeline], lambda _: next(answers))
    for tick in range(12):
        fleet.evaluate(instance, NOON + timedelta(seconds=10 * tick), anything_goes)
    assert len(instance.fetch_observations(AssetKey([pipeline.name]), limit=20).records) == 2


def test_an_evaluation_that_overlaps_with_another_skips_at_once(home: Home, instance: DagsterInstance) -> None:
    begun, over = threading.Event(), threading.Event()

    def look(pipeline: Pipeline) -> RunRequest | str:
        begun.set()
        over.wait(300)
        return "no new records"

    fleet = fleet_of(pipelines_of(home, 2), look)
    results = list[Evaluation]()
    thread = threading.Thread(target=lambda: results.append(evaluated(fleet, instance)))
    thread.start()
    try:
        assert begun.wait(300)
        assert evaluated(fleet, instance).text == OVERLAPS
    finally:
        over.set()
        thread.join(300)
    assert results[0].text.startswith("2 pipelines: 2 waiting")


def test_one_that_hangs_fails_its_check_in_time_and_the_others_go_on(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "DEADLINE_SECONDS", 1.0)
    monkeypatch.setattr(fleet_module, "BLIND_SECONDS", 0.0)
    over = threading.Event()

    def look(pipeline: Pipeline) -> RunRequest | str:
        if pipeline.name == "shop_t00":
            over.wait(300)
        return request_of(pipeline)

    fleet = reporting_fleet(pipelines_of(home, 3), look)
    check = AssetCheckKey(AssetKey(["shop_t00"]), UP_TO_DATE)
    had = set[str]()
    try:
        while had != {"shop_t01", "shop_t02"}:
            evaluation = evaluated(fleet, instance)
            had |= {*names_of(evaluation)}
        assert "1 not answering" in evaluation.text
        assert "shop_t00: its table or broker has not answered" in evaluation.text
        history = partial(instance.event_log_storage.get_asset_check_execution_history, check, limit=1)
        wait_for(history, "a report beside the requests ends")
        assert history()[0].status is AssetCheckExecutionRecordStatus.FAILED
    finally:
        over.set()
    wait_for(lambda: "shop_t00" in names_of(evaluated(fleet, instance)), "its answer is taken")


@contextmanager
def broker_that_never_answers() -> Iterator[str]:
    """It accepts every connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_tick_ends_in_time_although_the_broker_hangs_and_says_so(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "DEADLINE_SECONDS", 0.0)
    seen = threading.Event()

    def look(memory: PipelineMemory, instance: DagsterInstance, now: datetime) -> Look:
        # However slow the machine, the first evaluation finds it at work.
        seen.wait(300)
        return look_at(memory, instance, now)

    with broker_that_never_answers() as broker:
        settings = {"bootstrap_servers": broker, "request_timeout_seconds": 2, "topics": ["t00", "t01", "t02"]}
        settings |= {"format": "json"}
        fleet = Fleet(pipelines_of(home, 3, source=settings), look, report_look)
        evaluation = evaluated(fleet, instance)
        assert not evaluation.requests
        assert evaluation.text.splitlines()[0] == "3 pipelines: 3 not answering"
        seen.set()
        ends = "its answer, though late, is what the tick says"
        wait_for(lambda: " waiting" in evaluated(fleet, instance).text.splitlines()[0], ends, pause_seconds=0.5)


def test_a_pipeline_of_a_template_is_paused_and_resumed_alone_and_stays_so_after_a_restart(
    home: Home, instance: DagsterInstance
) -> None:
    pipelines = pipelines_of(home, 3)
    one, other, _ = pipelines

    def begun() -> set[str]:
        """What a process begins that has just been started."""
        return {*names_of(evaluated(fleet_of(pipelines), instance))}

    everything = {pipeline.name for pipeline in pipelines}
    assert begun() == everything
    assert switch(home, one, False)
    assert not switch(home, one, False)
    assert begun() == everything - {one.name}
    switches = switched(home)
    assert [switches.is_on(pipeline) for pipeline in pipelines] == [False, True, True]
    doing = activities(home, pipelines)
    assert doing[one.name] == (False, "paused: `hudi-ingest resume shop_t00` turns it on")
    assert doing[other.name][0]
    (record,) = instance.fetch_observations(AssetKey([one.name]), limit=5).records
    assert record.asset_observation is not None
    assert record.asset_observation.description == "Paused: `hudi-ingest resume shop_t00` turns it on"
    assert switch(home, one, True)
    assert begun() == everything


def test_of_a_template_that_is_not_enabled_one_can_be_resumed(home: Home, instance: DagsterInstance) -> None:
    pipelines = pipelines_of(home, 2, enabled=False)
    fleet = fleet_of(pipelines)
    assert evaluated(fleet, instance).text.startswith("2 pipelines: 2 off")
    assert activities(home, pipelines)["shop_t00"][1].startswith("paused: never turned on")
    assert switch(home, pipelines[1], True)
    assert names_of(evaluated(fleet, instance)) == ["shop_t01"]


def sensor_of(home: Home) -> tuple[Any, RepositoryDefinition]:
    repository = ingest_definitions(home.pipelines).get_repository_def()
    return repository.get_sensor_def(COORDINATOR), repository


def test_dagster_takes_all_runs_of_one_tick_and_knows_the_pipelines_of_the_sensor(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(pipeline: Pipeline) -> RunRequest | str:
        if pipeline.name == "shop_t01":
            raise TopicMissing("topic t01 is not on the broker")
        return request_of(pipeline)

    monkeypatch.setattr(sensor_module, "look_at", looks_of(look))
    monkeypatch.setattr(sensor_module, "report_look", no_report)
    pipelines_of(home, 3)
    (home.pipelines / "orders.yaml").write_text(
        yaml.safe_dump(document(name="orders", table__base_path=str(home.root / "orders")))
    )
    sensor, repository = sensor_of(home)
    with SensorEvaluationContext(
        instance_ref=instance.get_ref(),
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=None,
        log_key=None,
        repository_name=repository.name,
        repository_def=repository,
        instance=instance,
        sensor_name=sensor.name,
    ) as context:
        answer = sensor.evaluate_tick(context)
    assert {request.tags[tags.SENSOR] for request in answer.run_requests} == {COORDINATOR}
    assert {request.run_key for request in answer.run_requests} == {"shop_t00-000001-a", "shop_t02-000001-a"}
    assert answer.cursor is None
    own = OwnDefinitions.of(repository)
    assert own.pipelines == ("orders", "shop_t00", "shop_t01", "shop_t02")
    assert COORDINATOR in own.instigators


def test_two_files_with_templates_of_one_name_are_refused(home: Home) -> None:
    pipelines_of(home, 1)
    content = document(name="lake_{topic}", source__topics=["u"], table__base_path=str(home.root / "lake" / "{topic}"))
    (home.pipelines / "shop.yml").write_text(yaml.safe_dump(content))
    broken = load_folder(home.pipelines).broken
    assert "both are templates with the name shop" in " ".join(broken[0].problems)
    assert len(broken) == 2


def test_those_whose_topics_moved_are_looked_at_before_a_hundred_idle_ones(
    home: Home, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines = pipelines_of(home, 100)
    busy = {"shop_t70", "shop_t98"}
    asked = list[int]()
    looked = list[str]()

    def has_moved(waiting: Sequence[PipelineMemory]) -> frozenset[str]:
        asked.append(len(waiting))
        return frozenset(busy)

    def look(pipeline: Pipeline) -> str:
        looked.append(pipeline.name)
        return "nothing"

    monkeypatch.setattr(fleet_module, "moved", has_moved)
    with Ledger.open(home.ledger_url) as ledger:
        ledger.requests.note_ticks([each.name for each in pipelines], NOON)
    evaluated(fleet_of(pipelines, look), instance)
    assert asked == [100], "the broker is asked once in a tick, and not for each pipeline"
    assert len(looked) == 100
    assert busy <= {*looked[:AT_ONCE]}


@given(st.lists(st.integers(0, 99), unique=True), st.frozensets(st.integers(0, 99)))
def test_each_has_its_turn_however_many_come_first(waiting: list[int], first: frozenset[int]) -> None:
    names, ahead = [str(number) for number in waiting], {str(number) for number in first}
    turns = in_turn(names, ahead)
    assert sorted(turns) == sorted(names)
    for group in (ahead, {*names} - ahead):
        assert [name for name in turns if name in group] == [name for name in names if name in group]
    others = [place for place, name in enumerate(turns) if name not in ahead]
    assert all(place <= 4 * number + 3 for number, place in enumerate(others))


def test_table_and_broker_are_not_blamed_for_a_machine_without_cpu() -> None:
    assert late_text(130.4, 0, 0.5, 2) == "its table or broker has not answered for 130 s; the look goes on"
    overloaded = late_text(130, 7, 17.2, 2)
    assert overloaded.startswith(
        "its look has not ended for 130 s, and neither have those of 7 other pipelines; this machine is overloaded (load 17, 2 cores)"
    )
    assert "broker" not in overloaded
    assert "table" not in overloaded
