"""Backfill, replay and dead-letter retry as maintenance jobs: backfills by hour, which the UI launches a day at a time, and the rest
from the Launchpad.

A job files a request and shows its progress. The coordinator begins the request's transactions, each a run of its own:
planned, fanned out and retried like a live one.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from dagster import (
    Config,
    DagsterExecutionInterruptedError,
    HourlyPartitionsDefinition,
    MultiPartitionsDefinition,
    OpExecutionContext,
    Output,
    PartitionsDefinition,
    TableColumn,
)
from pydantic import Field

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem, NothingToDo
from hudi_ingest.ledger import Ledger, Request, RequestState
from hudi_ingest.ledger.requests import RequestedCommit
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.observation import Observation
from hudi_ingest.operations.requests.allowed_ranges import total
from hudi_ingest.operations.requests.asked_ranges import (
    Names,
    Selection,
    WrongSelection,
    named_time,
    select,
    selected_slices,
)
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, RetrySurvey, survey_retry
from hudi_ingest.operations.requests.planning import new_request, survey_replay, what_is_missing
from hudi_ingest.operations.requests.replaced_files import ReplaySurvey
from hudi_ingest.operations.requests.work import ASK_AGAIN_SECONDS, commit_text, follow, retry_result
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.maintenance_job import MaintenanceJob, NoConfig, pipelines_as_partitions
from hudi_ingest.orchestration.jobs.resources import LEDGER
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline

UNSEEN_SECONDS = 60.0
"""How long a request waits for a tick before its job assumes that the sensor is off."""
EXPLICIT_HELP = "Offset ranges [start, end); either these, or a time window"
TO_TIME_HELP = (
    "Up to, but not including, this Kafka timestamp. A keyed table needs none: it is read to the committed offsets"
)

NAMES = Names(
    choice="`ranges`; `from_time` and `to_time`; `transaction` (replay only)",
    partition="`partition`",
    start="`start`",
    end="`end`",
    from_time="`from_time`",
    to_time="`to_time`",
    place="ranges[{}]: ",
)


class RangeConfig(Config):
    """Offsets [start, end) of one Kafka partition."""

    topic: str = Field(description="Kafka topic")
    partition: int = Field(description="Kafka partition")
    start: int = Field(description="First offset")
    end: int | None = Field(
        default=None, description="Offset to stop before. A keyed table needs none: it is read to the committed offset"
    )


class BackfillConfig(Config):
    """What to add to the table: `ranges`, or `from_time` to `to_time`."""

    ranges: list[RangeConfig] = Field(default=[], description=EXPLICIT_HELP)
    from_time: str = Field(
        default="", description="From this Kafka timestamp, as 2026-01-31T00:00:00Z, of all partitions"
    )
    to_time: str = Field(default="", description=TO_TIME_HELP)
    skip_covered: bool = Field(
        default=False, description="Skip offsets that are already in the table; otherwise they are refused"
    )


class ReplayConfig(Config):
    """What to rewrite: `ranges`, or `from_time` to `to_time`, or everything that `transaction` read."""

    ranges: list[RangeConfig] = Field(default=[], description=EXPLICIT_HELP)
    from_time: str = Field(
        default="", description="From this Kafka timestamp, as 2026-01-31T00:00:00Z, of all partitions"
    )
    to_time: str = Field(default="", description=TO_TIME_HELP)
    transaction: str = Field(default="", description="Everything that this committed transaction read")
    respect_deletes: bool = Field(default=False, description="Write only offsets that still have a row in the table")
    dry_run: bool = Field(default=False, description="Show what it costs and change nothing")


class RetryConfig(Config):
    """Without config, all pending dead letters are retried."""

    dry_run: bool = Field(default=False, description="Show how many would become rows and change nothing")


def _hours(pipelines: Sequence[Pipeline]) -> PartitionsDefinition:
    """Return the hours of each pipeline, from the earliest of their first days on."""
    first = min(pipeline.asset.backfill_from for pipeline in pipelines)
    # The first dimension by name, so that the hours of one pipeline follow each other.
    hours = HourlyPartitionsDefinition(start_date=f"{first:%Y-%m-%d}-00:00", end_offset=1)
    return MultiPartitionsDefinition({"pipeline": pipelines_as_partitions(pipelines), "start": hours})


def _is_appended(pipeline: Pipeline) -> bool:
    """Keyed tables are read to the committed offsets, whatever they read again; an hour and a dead letter end before."""
    return not pipeline.table.is_keyed


def _backfill_hour(context: OpExecutionContext, pipeline: Pipeline, config: NoConfig) -> Output[None]:
    window = context.partition_time_window
    hour = Selection(from_time=window.start, to_time=window.end)
    try:
        slices, observation = selected_slices(pipeline, hour)
    except NothingToDo as nothing:
        context.log.info(str(nothing))
        return Output(None, metadata={"rows": 0, "why": str(nothing)})
    # Live transactions do not end on the hour; what they have read of this one must not be read again.
    return _backfill(context, observation, slices, skip_covered=True)


def _backfill_ranges(context: OpExecutionContext, pipeline: Pipeline, config: BackfillConfig) -> Output[None]:
    slices, observation = _selected(pipeline, config)
    return _backfill(context, observation, slices, skip_covered=config.skip_covered)


def _backfill(
    context: OpExecutionContext, observation: Observation, slices: Sequence[Slice], skip_covered: bool
) -> Output[None]:
    pipeline = observation.pipeline
    # Refuse it here, where the user sees the reason, and not in a later tick.
    what_is_missing(observation, slices, skip_covered=skip_covered)
    request = new_request(pipeline, TransactionKind.BACKFILL, slices, skip_covered=skip_covered)
    return _file_and_follow(context, pipeline, request)


def _replay(context: OpExecutionContext, pipeline: Pipeline, config: ReplayConfig) -> Output[None]:
    slices, observation = _selected(pipeline, config, config.transaction)
    facts = _replay_facts(survey_replay(observation, slices))
    context.log.info(f"{pipeline.name}: {facts}")
    request = new_request(pipeline, TransactionKind.REPLAY, slices, respect_deletes=config.respect_deletes)
    if config.dry_run:
        return Output(None, metadata=facts)
    return _file_and_follow(context, pipeline, request, facts)


def _replay_facts(survey: ReplaySurvey) -> dict[str, Any]:
    offsets = {"offsets": total(survey.remaining)}
    if survey.upserts:
        return offsets
    return {
        **offsets,
        "files replaced": len(survey.replaces) - len(survey.rewritten),
        "files rewritten": len(survey.rewritten),
        "deleted rows": survey.missing.deleted,
    }


def _retry_dead_letters(context: OpExecutionContext, pipeline: Pipeline, config: RetryConfig) -> Output[None]:
    if not config.dry_run:
        return _file_and_follow(context, pipeline, new_request(pipeline, TransactionKind.RETRY))
    survey = survey_retry(pipeline)
    return Output(
        None,
        metadata={
            "dead letters": survey.tried,
            "would become rows": survey.rows,
            "would be left out": survey.left_out,
            "would stay": survey.bad,
            **_why_letters_stay(survey),
        },
    )


def _why_letters_stay(result: RetryResult | RetrySurvey) -> dict[str, Any]:
    return {
        **({"why letters stay": "\n".join(result.reasons)} if result.reasons else {}),
        **({"letters without bytes": result.withheld} if result.withheld else {}),
    }


def _file_and_follow(
    context: OpExecutionContext, pipeline: Pipeline, request: Request, facts: dict[str, Any] | None = None
) -> Output[None]:
    """File the request and wait until it is done. Terminating the run cancels the request."""
    with getattr(context.resources, LEDGER).open() as ledger:
        filed = ledger.requests.file(request)
        context.add_output_metadata({"request": filed.request_id})
        context.log.info(
            f"request {filed.request_id} is filed; the sensor {pipeline.coordinator} begins its transactions between the live "
            f"ones. To cancel it, terminate this run or use `hudi-ingest requests cancel {filed.request_id}`."
        )
        commits: list[RequestedCommit] = []
        try:
            for commit in follow(ledger, pipeline, filed, alone=_refuse_when_unseen(pipeline, ledger)):
                commits.append(commit)
                context.log.info(commit_text(commit, commits))
        except DagsterExecutionInterruptedError:
            ledger.requests.end(filed.request_id, RequestState.CANCELLED, f"run {context.run_id[:8]} was terminated")
            raise
        letters: dict[str, Any] = {}
        if request.kind is TransactionKind.RETRY:
            result = retry_result(pipeline, ledger, filed.request_id)
            letters = {
                "dead letters": result.tried,
                "pending dead letters": result.waiting,
                **_why_letters_stay(result),
            }
    return _output(commits, {**(facts or {}), **letters})


def _refuse_when_unseen(pipeline: Pipeline, ledger: Ledger) -> Callable[[Request], None]:
    """Return what a job does while no coordinator works on its request: wait, then refuse."""

    def alone(request: Request) -> None:
        waited = (datetime.now(timezone.utc) - request.filed_at).total_seconds()
        if waited < UNSEEN_SECONDS:
            time.sleep(ASK_AGAIN_SECONDS)
            return
        ledger.requests.end(request.request_id, RequestState.CANCELLED, f"pipeline {pipeline.name} is paused")
        raise EnvironmentProblem(
            f"request {request.request_id} of pipeline {pipeline.name} was not begun: the pipeline is paused, or the sensor "
            f"{pipeline.coordinator} is off, for no tick has looked at it for {waited:.0f} s. `hudi-ingest resume {pipeline.name}` turns it "
            "on, which also resumes live transactions; then launch this job again. Or use the command line, which needs no sensor."
        )

    return alone


def _selected(
    pipeline: Pipeline, config: BackfillConfig | ReplayConfig, transaction: str = ""
) -> tuple[tuple[Slice, ...], Observation]:
    """Return the slices that the config selects, and the observation of table and broker. Raises ConfigError unless it selects in
    exactly one way."""
    try:
        selection = select(
            NAMES,
            pipeline,
            ranges=[(TopicPartition(asked.topic, asked.partition), asked.start, asked.end) for asked in config.ranges],
            from_time=named_time(NAMES.from_time, config.from_time or None),
            to_time=named_time(NAMES.to_time, config.to_time or None),
            read_by=transaction or None,
        )
        return selected_slices(pipeline, selection)
    except WrongSelection as error:
        raise ConfigError("the run's config", [str(error)]) from error


def _output(commits: Iterable[RequestedCommit], facts: dict[str, Any]) -> Output[None]:
    all_commits = list(commits)
    return Output(
        None,
        metadata={
            **facts,
            "transactions": len(all_commits),
            "rows": sum(commit.rows or 0 for commit in all_commits),
            "files": sum(commit.files or 0 for commit in all_commits),
            "instants": ", ".join(commit.instant for commit in all_commits),
            "partitions": metadata_table(
                _COLUMNS, [_row(commit, slice_) for commit in all_commits for slice_ in commit.slices]
            ),
        },
    )


_COLUMNS = [
    TableColumn("transaction", "string"),
    TableColumn("partition", "string"),
    TableColumn("start", "int"),
    TableColumn("end", "int"),
]


def _row(commit: RequestedCommit, slice_: Slice) -> dict[str, str | int]:
    return {
        "transaction": commit.transaction_id,
        "partition": str(slice_.source),
        "start": slice_.start,
        "end": slice_.end,
    }


_FILED: Mapping[str, Any] = {
    # Such a run waits most of the time, so it needs no processes of its own.
    "job_tags": {tags.IN_PROCESS: "true"},
    "resources": frozenset({LEDGER}),
}
BACKFILL_HOURS = MaintenanceJob(
    "backfill_hours",
    tags.PIPELINE_RANGES,
    "Adds the missing offsets of chosen hours, by Kafka timestamp, to a table. Records of the running hour that are not committed "
    "yet are left to the sensor's transactions.",
    _backfill_hour,
    concerns=_is_appended,
    partitions=_hours,
    **_FILED,
)
BACKFILL = MaintenanceJob(
    "backfill", tags.PIPELINE_RANGES, "Adds offset ranges to a table.", _backfill_ranges, BackfillConfig, **_FILED
)
REPLAY = MaintenanceJob(
    "replay",
    tags.PIPELINE_RANGES,
    "Rewrites offset ranges of a table, replacing their rows. In a keyed table it applies changes again, from the given offsets to "
    "the committed ones, in one transaction.",
    _replay,
    ReplayConfig,
    **_FILED,
)
RETRY_DEAD_LETTERS = MaintenanceJob(
    "retry_dead_letters",
    tags.PIPELINE_RANGES,
    "Retries a table's dead letters after a fix. Those that can become rows now are added to the table, once; the others stay.",
    _retry_dead_letters,
    RetryConfig,
    concerns=_is_appended,
    **_FILED,
)
REQUESTS = (BACKFILL_HOURS, BACKFILL, REPLAY, RETRY_DEAD_LETTERS)
