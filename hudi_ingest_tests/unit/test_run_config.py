"""The plan comes back from Dagster's run config as it went in, and Dagster takes every key of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dagster import validate_run_config

from hudi_ingest.model import LossReason, OffsetLoss, Slice, TakeOver, TopicVersion, TransactionPlan
from hudi_ingest.orchestration.definitions import build_definitions, job_name
from hudi_ingest.orchestration.run_config import BEGIN, BeginConfig, run_config
from hudi_ingest.pipeline_file import load_pipeline
from hudi_ingest_tests.support.pipeline_files import document

LOST = OffsetLoss("orders", 1, 5, 9, 4, LossReason.RETENTION)
PLAN = TransactionPlan(
    "orders", "orders-000007-abc", 7, (Slice("orders", 0, 3, 9),), {"orders": TopicVersion("id", 1)}, (LOST,), (LOST,)
)


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, take_over=TakeOver("Hudi Streamer", "1", {LOST.source: 5}))])
def test_p2_a_plan_survives_dagsters_run_config(tmp_path: Path, plan: TransactionPlan) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(document()))
    pipeline = load_pipeline(path, {})
    config = run_config(pipeline, plan)
    definitions = build_definitions([pipeline])
    assert validate_run_config(definitions.resolve_job_def(job_name(pipeline)), config)
    begin = config["ops"]["orders"]["ops"][BEGIN]["config"]
    assert BeginConfig(**begin).plan("orders") == plan
    names = {each.name for each in definitions.resolve_all_job_defs()}
    assert {"orders_backfill_hours", "orders_backfill", "orders_replay", "orders_retry_dead_letters"} <= names
