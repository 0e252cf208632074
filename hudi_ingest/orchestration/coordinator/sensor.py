"""The coordinator: the sensor of a pipeline, or of all pipelines of a template, that turns a table's and the broker's offsets into the
next run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from dagster import (
    DagsterInstance,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.coordinator.fleet import Fleet
from hudi_ingest.orchestration.coordinator.look import Look, look_at
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.jobs.run_config import BEGIN, require_startable
from hudi_ingest.orchestration.reports.tick_reports import report, report_repairs
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.transaction import TICK_SECONDS, rest_seconds, shared_tick_seconds

_SHOWN_RANGES = 10


def coordinator_sensor(pipelines: Sequence[Pipeline], sensors: int = 1) -> SensorDefinition:
    """Build the sensor that requests the runs of these pipelines' transactions: of one with a file of its own, or of all of a template.
    It starts no JVM, and each tick plans from the tables. `sensors`: how many the code location has."""
    first, fleet = pipelines[0], Fleet(pipelines, look_at, report_look)
    wanted = min(pipeline.transaction.tick_seconds for pipeline in pipelines)
    rest = rest_seconds(min(pipeline.transaction.interval_seconds for pipeline in pipelines), sensors)
    interval = f"every {first.transaction.interval_seconds:g} s while records arrive."
    description = f"Begins a transaction of {first.name} {interval}"
    if first.template:
        description = (
            f"Begins the transactions of {counted(len(pipelines), 'pipeline')} of {first.template}, one of each {interval} Off, it "
            "stops all of them; `hudi-ingest pause` and `resume` switch one."
        )
    # A pipeline of a template that is not enabled may be resumed on its own.
    starts = first.enabled or bool(first.template)

    @sensor(
        name=first.coordinator,
        # Not `target`, which makes a job of all its assets, and each run takes its own out of that.
        asset_selection=[*map(table_key, pipelines)],
        tags={tags.TEMPLATE: first.template} if first.template else {tags.PIPELINE: first.name},
        minimum_interval_seconds=shared_tick_seconds(wanted, sensors),
        default_status=DefaultSensorStatus.RUNNING if starts else DefaultSensorStatus.STOPPED,
        description=description,
    )
    def coordinator(context: SensorEvaluationContext) -> list[RunRequest] | SkipReason:
        repository = context.repository_def

        def require_valid(pipeline: Pipeline, request: RunRequest) -> None:
            require_startable(request, pipeline, repository)

        evaluation = fleet.evaluate(kept_instance(context), datetime.now(timezone.utc), require_valid)
        if wanted < TICK_SECONDS:
            context.update_cursor(fleet.next_tick(rest).cursor)
        if not evaluation.requests:
            return SkipReason(evaluation.text)
        for name, error in evaluation.errors.items():
            context.log.warning(f"{name}: {type(error).__name__}: {error}")
        for request in evaluation.requests:
            context.log.info(request_text(request))
            for tag in {tags.STOPPED, tags.RESET} & request.tags.keys():
                context.log.warning(f"{tag}: {request.tags[tag]}; see the log of the run's begin op for the reason")
        return [*evaluation.requests]

    return coordinator


def report_look(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
    """Report to Dagster what a look has seen. Raises KafkaUnreachable, KafkaRefused, TableUnreachable, and what Dagster raises."""
    report_repairs(look.pipeline, instance, look.repairs)
    report(look.pipeline, instance, look.observed, look.now, memory.reported, look.busy, look.blind_since)


def request_text(request: RunRequest) -> str:
    """Say what the requested run will do, in one sentence."""
    (begin,) = (op["ops"][BEGIN]["config"] for op in request.run_config["ops"].values())
    ranges = [
        f"{slice_['topic']}:{slice_['partition']} [{slice_['start']},{slice_['end']})" for slice_ in begin["slices"]
    ]
    ranges = [text for text, slice_ in zip(ranges, begin["slices"], strict=True) if slice_["end"] > slice_["start"]]
    offsets = sum(slice_["end"] - slice_["start"] for slice_ in begin["slices"])
    return f"{begin['transaction_id']} will take {offsets:,} offsets: {listed(ranges, _SHOWN_RANGES) or 'none'}"
