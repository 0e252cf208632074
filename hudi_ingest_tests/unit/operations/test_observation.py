"""Looks at many pipelines side by side: each has one at a time, and one that hangs delays no other."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hudi_ingest.exceptions import IngestError, KafkaUnreachable
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.local.processes import free_port
from hudi_ingest.operations import looks as looks_module
from hudi_ingest.operations import observation as module
from hudi_ingest.operations.looks import AT_ONCE, Looks, Timeout, observe_all
from hudi_ingest.operations.observation import Observation
from hudi_ingest.pipeline.file import pipeline_from
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.waiting import wait_for


def named(count: int) -> list[Pipeline]:
    """Return pipelines `p0`, `p1`…, which differ in their names only."""
    one = pipeline_from(document(), Path(), "here", {})
    return [one.model_copy(update={"name": f"p{number}"}) for number in range(count)]


@given(st.integers(0, 60), st.integers(1, 30), st.integers(0, 60))
@settings(deadline=None, max_examples=30)
def test_an_evaluation_never_has_more_results_that_count_than_it_may(looks: int, most: int, idle: int) -> None:
    pipelines = named(looks + idle)
    taken = Looks[bool]("looks")
    had: set[str] = set()
    for _ in range(math.ceil(looks / most)):
        found = taken.take(
            [each for each in pipelines if each.name not in had],
            lambda each: int(each.name[1:]) < looks,
            300.0,
            most=most,
            counts=bool,
        )
        assert all(look.done() for look in found.values())
        assert sum(look.result() for look in found.values()) <= most
        had |= found.keys()
    assert {f"p{number}" for number in range(looks)} <= had


def test_one_that_hangs_has_one_look_at_a_time_and_answers_the_evaluation_after_it_has_ended() -> None:
    hangs, began = threading.Event(), list[str]()

    def look(pipeline: Pipeline) -> str:
        began.append(pipeline.name)
        if pipeline.name == "p0":
            hangs.wait(300)
        return pipeline.name

    pipelines = named(2 * AT_ONCE)
    taken = Looks[str]("looks")
    try:
        others = set[str]()
        while len(others) < len(pipelines) - 1:
            found = taken.take([each for each in pipelines if each.name not in others], look, 0.2)
            others |= {name for name, each in found.items() if each.done()}
        assert "p0" in taken.late()
        assert began.count("p0") == 1
    finally:
        hangs.set()
    wait_for(lambda: not taken.late(), "the look ends")
    found = taken.take(pipelines[:1], look, 300.0)
    assert found["p0"].result() == "p0"
    assert began.count("p0") == 1, "its late answer is taken instead of a new look"


def in_cluster(pipeline: Pipeline, servers: str, tmp_path: Path) -> Pipeline:
    source = pipeline.source.model_copy(update={"bootstrap_servers": servers})
    table = pipeline.table.model_copy(update={"base_path": str(tmp_path / pipeline.name)})
    return pipeline.model_copy(update={"source": source, "table": table})


def test_a_table_that_hangs_and_a_cluster_that_is_away_delay_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines = [in_cluster(each, f"127.0.0.1:{free_port()}", tmp_path) for each in named(AT_ONCE + 2)]
    hangs, looked, look_at = threading.Event(), list[str](), module.look_at

    def hanging(pipeline: Pipeline, *arguments: object, **named: object) -> Observation:
        looked.append(pipeline.name)
        if pipeline.name == "p0":
            hangs.wait(300)
        return look_at(pipeline, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(looks_module, "look_at", hanging)
    looks, seen = Looks[object]("looks"), dict[str, Observation | IngestError]()

    def others_are_seen() -> bool:
        seen.update(observe_all(pipelines, 2.0, looks=looks))
        return all(isinstance(answer, Observation) for name, answer in seen.items() if name != "p0")

    try:
        wait_for(others_are_seen, "all but the one that hangs are observed")
        assert isinstance(seen["p0"], Timeout)
        assert looked.count("p0") == 1, "one that hangs is not begun a second time"
        for name, observation in seen.items():
            assert name == "p0" or isinstance(observation, Observation)
            if isinstance(observation, Observation):
                assert not observation.committed.exists, "the table is read although its broker is away"
                with pytest.raises((KafkaUnreachable, Timeout)):
                    assert observation.situation
    finally:
        hangs.set()


def test_what_an_observation_is_asked_for_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [pipeline] = [in_cluster(each, "127.0.0.1:1", tmp_path) for each in named(1)]
    opened = list[Pipeline]()

    class Table(PipelineTable):
        def __init__(self, pipeline: Pipeline) -> None:
            opened.append(pipeline)
            super().__init__(pipeline)

    monkeypatch.setattr(module, "PipelineTable", Table)
    silent = KafkaUnreachable("nobody is there", servers="127.0.0.1:1")
    observation = module.look_at(pipeline, silent)
    assert observation.error is silent
    assert observation.table is observation.table
    # A look that hung in another test may open its own meanwhile.
    assert sum(each is pipeline for each in opened) == 1
