"""`hudi-ingest validate --online`: all parts are asked, and all their problems told at once. No broker, no JVM."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.operations.next_plan import next_plan
from hudi_ingest.operations.state import full_state
from hudi_ingest.operations.validation import check_online
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.registry import canned_registry

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}


def document(tmp_path: Path, registry: str, **table: Any) -> dict[str, Any]:
    """With a broker and a metastore that nobody runs."""
    return {
        "name": "orders",
        "source": {
            "bootstrap_servers": f"{LOOPBACK}:{free_port()}",
            "topics": ["orders"],
            "format": "avro",
            "schema_registry": {"url": registry},
            "request_timeout_seconds": 0.3,
        },
        "table": {"base_path": str(tmp_path / "table"), **table},
        "catalog": {"type": "hms", "uris": f"thrift://{LOOPBACK}:{free_port()}"},
    }


@pytest.fixture
def table_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that another pipeline created, partitioned and appended to."""
    properties = {"hudi_ingest.pipeline": "sales", "hoodie.table.partition.fields": "dt"}
    monkeypatch.setattr(Timeline, "exists", lambda self: True)
    monkeypatch.setattr(Timeline, "is_empty", lambda self: False)
    monkeypatch.setattr(Timeline, "properties", lambda self: properties)
    monkeypatch.setattr(
        Timeline, "schema", lambda self: table_schema(parse_ddl("id string, n int"), ("topic", "timestamp")).columns
    )


def subject(schema: dict[str, Any]) -> dict[str, Any]:
    version = {"subject": "orders-value", "version": 1, "id": 3, "schema": json.dumps(schema)}
    path = "/subjects/orders-value/versions"
    return {path: [1], f"{path}/1": version, f"{path}/latest": version}


@pytest.mark.usefixtures("table_of_another")
def test_every_part_tells_its_problems_although_the_others_fail(tmp_path: Path) -> None:
    with canned_registry({}) as (url, _):
        check = check_online(Pipeline.model_validate(document(tmp_path, url, mode="upsert", key=["id"], buckets=4)))
    parts = [problem.partition(":")[0] for problem in check.problems]
    assert parts == ["kafka", "table", "table", "table", "schema", "catalog"]
    told = "\n".join(check.problems)
    for expected in ("belongs to pipeline sales", "is partitioned by (dt)", "mode: append", "no subject orders-value"):
        assert expected in told


@pytest.mark.tier(2)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not write")
def test_a_table_folder_that_cannot_be_created_is_a_problem() -> None:
    with TemporaryDirectory() as folder, canned_registry({}) as (url, _):
        Path(folder).chmod(0o755)
        os.seteuid(65534)
        try:
            check = check_online(Pipeline.model_validate(document(Path(folder, "tables"), url)))
        finally:
            os.seteuid(0)
    [problem] = [problem for problem in check.problems if problem.startswith("table: ")]
    assert f"may not create a folder in {folder}, so there can be no table at {folder}/tables/table" in problem


@pytest.mark.usefixtures("table_of_another")
def test_what_the_registry_s_newest_schema_would_change_is_told(tmp_path: Path) -> None:
    with canned_registry(subject(AVRO)) as (url, _):
        check = check_online(Pipeline.model_validate(document(tmp_path, url)))
        refusing = check_online(
            Pipeline.model_validate(document(tmp_path, url, schema="id string, n string", partition_by=["id"]))
        )
    assert check.changes == ["table: column n becomes long; it was int"]
    assert any("column n: expected int" in problem for problem in refusing.problems)


def test_the_command_prints_all_of_it_and_fails(ground_without_broker: Ground, tmp_path: Path) -> None:
    with canned_registry(subject(AVRO)) as (url, _):
        path = tmp_path / "orders.yaml"
        path.write_text(yaml.safe_dump(document(tmp_path, url)))
        assert answer(ground_without_broker.home, "validate", str(path)).returncode == 0
        outcome = answer(ground_without_broker.home, "validate", "--online", "--json", str(path))
    found = json.loads(outcome.stdout)[str(path)]
    assert outcome.returncode == 1
    assert [problem.partition(":")[0] for problem in found["problems"]] == ["kafka", "catalog"]
    assert any(fact.startswith("schema: columns version 1 of orders-value") for fact in found["facts"])
    assert found["changes"] == []


@pytest.fixture
def ground_without_broker(tmp_path: Path) -> Any:
    from hudi_ingest_tests.support.ground import fresh_ground

    with fresh_ground(f"{LOOPBACK}:1", tmp_path) as ground:
        yield ground


@pytest.mark.usefixtures("table_of_another")
def test_a_plan_a_status_and_a_validation_of_another_pipelines_table_say_what_a_begin_would(
    ground_without_broker: Ground, ledger: Ledger, tmp_path: Path
) -> None:
    with canned_registry(subject(AVRO)) as (url, _):
        settings = document(tmp_path, url)
        with pytest.raises(TableMismatch, match=r"belongs to pipeline sales.*name this pipeline sales"):
            next_plan(Pipeline.model_validate(settings), ledger)
        with pytest.raises(TableMismatch, match="belongs to pipeline sales"):
            found = Situation(CommittedState(True), {}, {}, {})
            full_state(seen(Pipeline.model_validate(settings), found), ledger)
        path = tmp_path / "orders.yaml"
        path.write_text(yaml.safe_dump(settings))
        told = answer(ground_without_broker.home, "validate", str(path))
    assert told.returncode == 1
    assert "table.base_path: the table at" in told.stderr
    assert "belongs to pipeline sales" in told.stderr


def test_a_plan_of_a_pipeline_whose_table_is_elsewhere_says_so(ledger: Ledger, tmp_path: Path) -> None:
    with canned_registry(subject(AVRO)) as (url, _):
        pipeline = Pipeline.model_validate(document(tmp_path, url))
        plan = IngestPlan("orders", "orders-000001-aaaa", 1, (Slice("orders", 0, 0, 5),))
        deadline = datetime.now(timezone.utc) + timedelta(minutes=5)
        ledger.transactions.begin(plan, table="/data/orders", owner=Owner.this_process(), deadline=deadline)
        ledger.transactions.mark_committed_as_found(plan.transaction_id, "20260131120000000")
        with pytest.raises(TableMismatch, match="recover orders --new-table"):
            next_plan(pipeline, ledger)
        check = check_online(pipeline, ledger)
    assert any("table: pipeline orders writes to the table at /data/orders" in problem for problem in check.problems)
