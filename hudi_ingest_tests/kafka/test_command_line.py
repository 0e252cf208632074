"""K7: the commands that need no JVM, as a user types them."""

from __future__ import annotations

import json
import time

import pytest

from hudi_ingest.local.processes import free_port
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.command_line import answer, hudi_ingest
from hudi_ingest_tests.support.ground import Ground, write_pipeline

pytestmark = pytest.mark.kafka


def test_validate_names_every_problem_and_exits_1(ground: Ground, pipeline: Pipeline) -> None:
    good = ground.home.pipelines / f"{pipeline.name}.yaml"
    bad = write_pipeline(ground, name="not a name", file="bad.yaml", transaction={"max_records": 0, "max_recodrs": 1})
    found = hudi_ingest(ground.home, "validate", str(good), str(bad))
    assert found.returncode == 1
    assert f"{good}: ok" in found.stdout
    for place in ("name", "transaction.max_records", "transaction.max_recodrs"):
        assert place in found.stderr
    assert "Traceback" not in found.stderr
    assert answer(ground.home, "validate", str(good)).returncode == 0
    assert answer(ground.home, "validate").returncode == 2


@pytest.mark.tier(1)
def test_k7_x1_plan_and_status_speak_json(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    planned = answer(ground.home, "plan", pipeline.name, "--json")
    assert planned.returncode == 0, planned.stderr
    found = json.loads(planned.stdout)
    assert [each["end"] for each in found["slices"]] == [3, 0]
    assert found["columns"][1] == {"name": "n", "type": "long", "nullable": True}
    assert found["columns"][-1]["name"] == "_kafka_timestamp"
    shown = answer(ground.home, "status", "--json")
    assert json.loads(shown.stdout)[0]["lag"] == 3
    assert "committed" in answer(ground.home, "status").stdout


@pytest.mark.tier(1)
def test_x1_validate_and_plan_say_where_the_columns_are_from(ground: Ground, pipeline: Pipeline) -> None:
    path = write_pipeline(ground, table={"schema": "infer"})
    checked = answer(ground.home, "validate", str(path))
    assert "ok; columns inferred from the first 10,000 records when the table is made" in checked.stdout
    ground.send(0, [b'{"id": "a", "n": 1, "dt": "x", "never": null}'])
    planned = json.loads(answer(ground.home, "plan", pipeline.name, "--json").stdout)
    assert planned["schema"]["record"] == "id string, n long, dt string, never string"
    assert (planned["schema_changes"], planned["schema"]["declared"]) == ([], False)
    shown = answer(ground.home, "plan", pipeline.name)
    assert "columns inferred from the first 1 record" in shown.stdout
    assert "warning: column never is null in the whole sample, and assumed to be string" in shown.stdout
    ground.send(1, [b'{"id": 1, "dt": "x"}'])
    refused = answer(ground.home, "plan", pipeline.name)
    assert refused.returncode == 1
    assert f"column id: found text in {ground.name}:0:0 and whole number in {ground.name}:1:0" in refused.stderr
    assert "Write the columns as table.schema" in refused.stderr


def test_an_unreachable_broker_ends_run_with_1_in_bounded_time(ground: Ground, topic: str) -> None:
    source = {"bootstrap_servers": f"127.0.0.1:{free_port()}", "request_timeout_seconds": 2}
    path = write_pipeline(ground, source=source)
    began = time.monotonic()
    found = hudi_ingest(ground.home, "run", str(path))
    assert found.returncode == 1
    assert time.monotonic() - began < 60
    assert "Check source.bootstrap_servers" in found.stderr
    assert "Traceback" not in found.stderr


def test_an_unknown_pipeline_names_the_known_ones(ground: Ground, pipeline: Pipeline) -> None:
    found = answer(ground.home, "plan", "nobody")
    assert found.returncode == 1
    assert pipeline.name in found.stderr


def test_two_pipelines_of_one_table_are_refused(ground: Ground, pipeline: Pipeline) -> None:
    write_pipeline(ground, name="other")
    found = answer(ground.home, "status")
    assert found.returncode == 1
    assert "table" in found.stderr
    assert f"{pipeline.name}.yaml" in found.stderr
    assert "other.yaml" in found.stderr


def test_down_without_a_stack_is_fine(ground: Ground) -> None:
    found = answer(ground.home, "down")
    assert found.returncode == 0
    assert "nothing runs" in found.stdout
