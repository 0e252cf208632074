from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.contenders import Outcome
from benchmarks.contenders.spark_streaming import hudi_options
from benchmarks.growth import AXES, parse_axes
from benchmarks.loads import parse_load, parse_loads
from benchmarks.pipelines import made_pipeline
from benchmarks.results import CONTENDERS
from benchmarks.run import Settings, estimated_seconds, require_disk, require_rows, turned, write_results
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.hudi.options import write_options


def test_each_contender_is_first_once_in_as_many_rounds() -> None:
    assert {turned(CONTENDERS, number)[0] for number in range(len(CONTENDERS))} == set(CONTENDERS)
    assert all(sorted(turned(CONTENDERS, number)) == sorted(CONTENDERS) for number in range(9))


def test_a_wrong_number_of_rows_stops_the_benchmark() -> None:
    load = parse_load("tiny")
    require_rows("limit", load, Outcome(0.0, 1.0, 10), 10)
    with pytest.raises(EnvironmentProblem, match="published 9 rows of load tiny, but its topic has 10"):
        require_rows("limit", load, Outcome(0.0, 1.0, 9), 10)


def test_a_load_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="MB free"):
        require_disk(tmp_path, [parse_load("large-900m")])


def test_more_rounds_take_longer() -> None:
    loads = parse_loads("orders-1m,tiny")
    assert estimated_seconds(Settings(loads, 5)) > estimated_seconds(Settings(loads, 3)) > 0


def test_results_are_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    contents: list[dict[str, dict[str, object]]] = [{"loads": {}}, {"loads": {"tiny": {}}}]
    for content in contents:
        write_results(path, content)
        assert json.loads(path.read_text()) == content
    assert [file.name for file in path.parent.iterdir()] == ["latest.json"]


def test_plain_spark_writes_what_hudi_ingest_writes(tmp_path: Path) -> None:
    pipeline = made_pipeline(tmp_path, "bench_tiny_0", parse_load("tiny"), "127.0.0.1:9092", tmp_path / "table")
    theirs, ours = hudi_options(pipeline), write_options(pipeline, "")
    same = (
        "hoodie.metadata.enable",
        "hoodie.metadata.index.column.stats.enable",
        "hoodie.write.lock.provider",
        "hoodie.datasource.write.partitionpath.field",
        "hoodie.datasource.write.hive_style_partitioning",
    )
    assert {key: theirs[key] for key in same} == {key: ours[key] for key in same}
    assert not any("recordkey" in key for key in theirs)


def test_growth_axes_may_be_chosen_and_limited() -> None:
    assert parse_axes("") == dict(AXES)
    assert parse_axes("history=200, pipelines") == {"history": (1, 100, 200), "pipelines": AXES["pipelines"]}
    assert parse_axes("kafka_partitions=1") == {"kafka_partitions": (1,)}


@pytest.mark.parametrize("text", ["commits=3", "history=0", "history=", "history=x", "history,,"])
def test_another_axis_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="table_partitions"):
        parse_axes(text)
