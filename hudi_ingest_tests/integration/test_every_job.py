"""Every job of a code location runs by hand and by its schedule, on an instance as Dagster makes it and on the embedded one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, build_schedule_context, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.orchestration.failures import HOUSEKEEPING
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import coordinated
from hudi_ingest_tests.support.transactions import transaction_code

CODE = """
from pathlib import Path
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.folder import load_folder

defs = build_definitions(load_folder(Path({pipelines!r})).pipelines)
"""

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

EMBEDDED = (resources.files("hudi_ingest.local") / "dagster.yaml").read_text()
KEYED = {"mode": "upsert", "key": ["id"], "buckets": 1, "compaction": {"delta_commits": 1}}


@pytest.mark.parametrize(
    ("settings", "table"),
    [("telemetry: {enabled: false}\n", {"ttl": {"days": 10_000}}), (EMBEDDED, KEYED)],
    ids=["stock-append", "embedded-upsert"],
)
def test_every_job_runs_by_hand_and_by_its_schedule_and_its_run_has_a_report(
    ground: Ground, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, table: dict[str, Any]
) -> None:
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(settings)
    ground.set_environment(monkeypatch)
    monkeypatch.setenv(DAGSTER_VARIABLE, str(folder))
    pipeline = make_pipeline(
        ground,
        enabled=True,
        source={"starting_offsets": {ground.name: {0: 5}}},
        table={"partition_by": ["dt"], **table},
        on_bad_record="dead_letter",
    )
    file = ground.home.root / "code.py"
    file.write_text(CODE.format(pipelines=str(ground.home.pipelines)))
    code, definitions = ReconstructableRepository.for_file(str(file), "defs"), build_definitions([pipeline])
    repository = definitions.get_repository_def()
    ground.send_rows(0, 10)
    ground.send(0, [b"no json"])
    schedules = {schedule.name: schedule for schedule in repository.schedule_defs}
    by_hand = sorted(job.name for job in repository.get_all_jobs() if not job.name.startswith("__"))
    with DagsterInstance.from_config(str(folder)) as instance:
        # The table and its offsets come first.
        run(transaction_code(code, pipeline.name), instance)
        for name, schedule in schedules.items():
            # All tables have been due since then.
            tonight = datetime.now(timezone.utc).replace(hour=2, minute=59)
            tick = schedule.evaluate_tick(build_schedule_context(instance, tonight, repository_def=repository))
            assert tick.run_requests, f"{name}: {tick.skip_message}"
            (asked,) = tick.run_requests
            assert schedule.job_name == HOUSEKEEPING or asked.tags[tags.PIPELINE] == pipeline.name
            run(ReconstructableJob(code, schedule.job_name), instance, run_config=asked.run_config, tags=asked.tags)
        with coordinated(pipeline, definitions, instance):
            for name in by_hand:
                run(ReconstructableJob(code, name), instance, **by_hand_of(pipeline, name.removeprefix("hudi_ingest_")))


def by_hand_of(pipeline: Pipeline, kind: str) -> dict[str, Any]:
    """What a person enters to launch the job: its partition, and the config that it cannot do without."""
    if kind == "housekeeping":
        return {}
    partition = {"dagster/partition": pipeline.name}
    if kind == "backfill_hours":
        hour = datetime.now(timezone.utc) - timedelta(hours=1)
        return {"tags": {"dagster/partition": f"{pipeline.name}|{hour:%Y-%m-%d-%H}:00"}}
    asked = {"backfill": (0, 5), "replay": (5, 10)}.get(kind)
    if asked is None:
        return {"tags": partition}
    ends = {} if pipeline.table.is_keyed else {"end": asked[1]}
    ranges = [{"topic": pipeline.name, "partition": 0, "start": asked[0], **ends}]
    return {"tags": partition, "run_config": {"ops": {kind: {"config": {"ranges": ranges}}}}}


def run(job: ReconstructableJob, instance: DagsterInstance, **asked: Any) -> None:
    """In this process, which has a Spark."""
    asked = {**asked, "tags": {**asked.get("tags", {}), tags.IN_PROCESS: "true"}}
    name, result = job.job_name, execute_job(job, instance, **asked)
    failures = [str(event.step_failure_data) for event in result.all_events if event.is_step_failure]
    assert result.success, f"{name}: {failures}"
    reports = [event.step_output_data.metadata for event in result.all_events if event.is_successful_output]
    assert any(reports), f"{name}: its run has no report"
    done = instance.get_run_by_id(result.run_id)
    assert done is not None
    assert name == HOUSEKEEPING or done.tags[tags.PIPELINE], "so that a person finds it"
