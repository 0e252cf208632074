"""The coordinator: the one sensor of a code location, which turns the offsets of tables and brokers into the next runs of all its
pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType

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
from hudi_ingest.orchestration.broken_files import BrokenFiles
from hudi_ingest.orchestration.coordinator.fleet import Fleet
from hudi_ingest.orchestration.coordinator.look import Look, look_at
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.coordinator.topics import TICK_SECONDS as FIND_SECONDS
from hudi_ingest.orchestration.coordinator.topics import Found, TopicSearch
from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.orchestration.jobs.run_config import BEGIN, require_startable
from hudi_ingest.orchestration.reports.checks import report_trouble
from hudi_ingest.orchestration.reports.tick_reports import report, report_decision, report_repairs
from hudi_ingest.pipeline.folder import BrokenFile
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest.pipeline.sections.transaction import LONGEST_TICK_SECONDS, TICK_SECONDS
from hudi_ingest.pipeline.template import Template

_SHOWN_RANGES = 10


def coordinator_sensor(
    pipelines: Sequence[Pipeline],
    templates: Sequence[Template] = (),
    broken: Mapping[str, BrokenFile] = MappingProxyType({}),
    suffix: str = "",
) -> SensorDefinition:
    """Build the sensor that requests the runs of these pipelines' transactions, looks for the topics of the templates, and reports broken
    files, which have the names of their assets. It starts no JVM, and each tick plans from the tables. `suffix`: of its name, if a code
    location merges several."""
    search, files = TopicSearch(templates), BrokenFiles(broken)

    def beside(instance: DagsterInstance, seconds: float) -> Sequence[Found]:
        files.report(instance)
        return search.step(seconds)

    fleet = Fleet(pipelines, look_at, report_look, beside)
    wanted = min((pipeline.transaction.tick_seconds for pipeline in pipelines), default=LONGEST_TICK_SECONDS)

    @sensor(
        name=f"{COORDINATOR}{suffix}",
        # Not `target`, which makes a job of all its assets, and each run takes its own out of that.
        asset_selection=[*map(table_key, pipelines)] or None,
        minimum_interval_seconds=min(wanted, FIND_SECONDS) if search else wanted,
        # A pipeline has a switch of its own, which its file sets at first.
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            f"Begins the transactions of {counted(len(pipelines), 'pipeline')}, each in its interval while records arrive. Off, it stops "
            "all of them; `hudi-ingest pause` and `resume` switch one."
        ),
    )
    def coordinator(context: SensorEvaluationContext) -> list[RunRequest] | SkipReason:
        repository = context.repository_def

        def require_valid(pipeline: Pipeline, request: RunRequest) -> None:
            require_startable(request, pipeline, repository)

        evaluation = fleet.evaluate(kept_instance(context), datetime.now(timezone.utc), require_valid)
        if wanted < TICK_SECONDS:
            context.update_cursor(fleet.next_tick().cursor)
        for found in evaluation.found:
            if found.is_news:
                context.log.warning(f"topics of {found.template}: {found.text}")
        if not evaluation.requests:
            return SkipReason("\n".join(filter(None, (evaluation.text, search.text, files.text))))
        for name, error in evaluation.errors.items():
            context.log.warning(f"{name}: {type(error).__name__}: {error}")
        for request in evaluation.requests:
            context.log.info(request_text(request))
            for tag in {tags.STOPPED, tags.RESET} & request.tags.keys():
                context.log.warning(f"{tag}: {request.tags[tag]}; see the log of the run's begin op for the reason")
        return [*evaluation.requests]

    return coordinator


def report_look(look: Look, memory: PipelineMemory, instance: DagsterInstance) -> None:
    """Report a look to Dagster. Raises KafkaUnreachable, KafkaRefused, TableUnreachable, and what Dagster raises."""
    report_repairs(look.pipeline, instance, look.repairs)
    report_decision(look.pipeline, instance, *look.decision, look.now, memory.reported, look.on)
    if isinstance(look.observed, BaseException):
        report_trouble(look.pipeline, instance, look.observed, look.now, look.blind_since)
    elif look.observed is not None:
        report(look.observed, instance, memory.reported)


def request_text(request: RunRequest) -> str:
    """Say what the requested run will do, in one sentence."""
    (begin,) = (op["ops"][BEGIN]["config"] for op in request.run_config["ops"].values())
    ranges = [
        f"{slice_['topic']}:{slice_['partition']} [{slice_['start']},{slice_['end']})" for slice_ in begin["slices"]
    ]
    ranges = [text for text, slice_ in zip(ranges, begin["slices"], strict=True) if slice_["end"] > slice_["start"]]
    offsets = sum(slice_["end"] - slice_["start"] for slice_ in begin["slices"])
    return f"{begin['transaction_id']} will take {offsets:,} offsets: {listed(ranges, _SHOWN_RANGES) or 'none'}"
