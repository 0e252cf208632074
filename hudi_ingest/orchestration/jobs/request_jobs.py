"""Backfill, replay and dead-letter retry as Dagster jobs: backfills by hour, which the UI launches a day at a time, and the rest
from the Launchpad.

A job files a request and shows its progress. The coordinator begins the request's transactions, each a run of the pipeline's
own job: planned, fanned out and retried like a live one.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from dagster import (
    Config,
    DagsterExecutionInterruptedError,
    HourlyPartitionsDefinition,
    JobDefinition,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    Output,
    TableColumn,
    job,
    op,
)
from pydantic import Field

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem, NothingToDo
from hudi_ingest.ledger import Ledger, Request, RequestState
from hudi_ingest.ledger.requests import RequestedCommit
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, RetrySurvey, survey_retry
from hudi_ingest.operations.requests.planning import new_request, survey_replay, what_is_missing
from hudi_ingest.operations.requests.ranges import total
from hudi_ingest.operations.requests.replaced_files import ReplaySurvey
from hudi_ingest.operations.requests.selection import (
    Names,
    Selection,
    WrongSelection,
    named_time,
    select,
    selected_slices,
)
from hudi_ingest.operations.requests.work import ASK_AGAIN_SECONDS, commit_text, follow, retry_result
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.resources import LEDGER
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation

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


def request_jobs(pipeline: Pipeline) -> tuple[JobDefinition, ...]:
    """Build `<name>_backfill`, `<name>_replay` and, unless the table is keyed, `<name>_backfill_hours` and
    `<name>_retry_dead_letters`. Whatever a keyed table reads again, it reads to the committed offsets."""
    # Such a run waits most of the time, so it needs no processes of its own.
    shared = {tags.PIPELINE_RANGES: pipeline.name, tags.IN_PROCESS: "true"}
    ranges, again, letters = _backfill_op(pipeline), _replay_op(pipeline), _retry_dead_letters_op(pipeline)

    @job(name=f"{pipeline.name}_backfill", description=f"Adds offset ranges to {pipeline.name}.", tags=shared)
    def backfill() -> None:
        ranges()

    @job(name=f"{pipeline.name}_replay", description=_what_a_replay_does(pipeline), tags=shared)
    def replay() -> None:
        again()

    @job(
        name=f"{pipeline.name}_retry_dead_letters",
        description=f"Retries the dead letters of {pipeline.name} after a fix. Those that can become rows now are added to "
        "the table, once.",
        tags=shared,
    )
    def retry_dead_letters() -> None:
        letters()

    of_append = () if pipeline.table.is_keyed else (_backfill_hours_job(pipeline, shared), retry_dead_letters)
    return *of_append, backfill, replay


def _backfill_hours_job(pipeline: Pipeline, shared: dict[str, str]) -> JobDefinition:
    hours = _hours_op(pipeline)

    @job(
        name=f"{pipeline.name}_backfill_hours",
        description=f"Adds the missing offsets of chosen hours, by Kafka timestamp, to {pipeline.name}. Records of the running "
        "hour that are not committed yet are left to the sensor's transactions.",
        partitions_def=HourlyPartitionsDefinition(
            start_date=f"{pipeline.asset.backfill_from:%Y-%m-%d}-00:00", end_offset=1
        ),
        tags=shared,
    )
    def backfill_hours() -> None:
        hours()

    return backfill_hours


def _what_a_replay_does(pipeline: Pipeline) -> str:
    if pipeline.table.is_keyed:
        return f"Applies changes of {pipeline.name} again, from the given offsets to the committed ones, in one transaction."
    return f"Rewrites offset ranges of {pipeline.name}, replacing their rows."


def _hours_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Adds the missing offsets of an hour, if it has records.", **_settings(pipeline, "backfill_hours"))
    def backfill_hours(context: OpExecutionContext) -> Output[None]:
        window = context.partition_time_window
        with as_dagster_failures():
            hour = Selection(from_time=window.start, to_time=window.end)
            try:
                slices, situation = selected_slices(pipeline, hour)
            except NothingToDo as nothing:
                context.log.info(str(nothing))
                return Output(None, metadata={"rows": 0, "why": str(nothing)})
            # Live transactions do not end on the hour; what they have read of this one must not be read again.
            return _backfill(context, pipeline, situation, slices, skip_covered=True)

    return backfill_hours


def _backfill_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Adds offset ranges that are not in the table.", **_settings(pipeline, "backfill"))
    def backfill(context: OpExecutionContext, config: BackfillConfig) -> Output[None]:
        with as_dagster_failures():
            slices, situation = _selected(pipeline, config)
            return _backfill(context, pipeline, situation, slices, skip_covered=config.skip_covered)

    return backfill


def _backfill(
    context: OpExecutionContext, pipeline: Pipeline, situation: Situation, slices: Sequence[Slice], skip_covered: bool
) -> Output[None]:
    # Refuse it here, where the user sees the reason, and not in a later tick.
    what_is_missing(pipeline, situation, slices, skip_covered=skip_covered)
    request = new_request(pipeline, TransactionKind.BACKFILL, slices, skip_covered=skip_covered)
    return _file_and_follow(context, pipeline, request)


def _replay_op(pipeline: Pipeline) -> OpDefinition:
    @op(description=_what_a_replay_does(pipeline), **_settings(pipeline, "replay"))
    def replay(context: OpExecutionContext, config: ReplayConfig) -> Output[None]:
        with as_dagster_failures():
            slices, situation = _selected(pipeline, config, config.transaction)
            facts = _replay_facts(survey_replay(pipeline, situation, slices))
            context.log.info(f"{pipeline.name}: {facts}")
            request = new_request(pipeline, TransactionKind.REPLAY, slices, respect_deletes=config.respect_deletes)
            if config.dry_run:
                return Output(None, metadata=facts)
            return _file_and_follow(context, pipeline, request, facts)

    return replay


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


def _retry_dead_letters_op(pipeline: Pipeline) -> OpDefinition:
    @op(
        description="Turns the dead letters that can become rows now into rows; the others stay.",
        **_settings(pipeline, "retry_dead_letters"),
    )
    def retry_dead_letters(context: OpExecutionContext, config: RetryConfig) -> Output[None]:
        with as_dagster_failures():
            if config.dry_run:
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
            return _file_and_follow(context, pipeline, new_request(pipeline, TransactionKind.RETRY))

    return retry_dead_letters


def _why_letters_stay(result: RetryResult | RetrySurvey) -> dict[str, Any]:
    return {
        **({"why letters stay": "\n".join(result.reasons)} if result.reasons else {}),
        **({"letters without bytes": result.withheld} if result.withheld else {}),
    }


def _settings(pipeline: Pipeline, name: str) -> dict[str, Any]:
    """Return the settings that the ops share."""
    return {
        "name": f"{pipeline.name}__{name}",
        "out": Out(Nothing),
        "required_resource_keys": {LEDGER},
    }


def _file_and_follow(
    context: OpExecutionContext, pipeline: Pipeline, request: Request, facts: dict[str, Any] | None = None
) -> Output[None]:
    """File the request and wait until it is done. Terminating the run cancels the request."""
    with getattr(context.resources, LEDGER).open() as ledger:
        filed = ledger.requests.file(request)
        context.add_output_metadata({"request": filed.request_id})
        context.log.info(
            f"request {filed.request_id} is filed; the sensor {pipeline.name}_coordinator begins its transactions between the live "
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
        sensor = f"{pipeline.name}_coordinator"
        ledger.requests.end(request.request_id, RequestState.CANCELLED, f"the sensor {sensor} is off")
        raise EnvironmentProblem(
            f"request {request.request_id} of pipeline {pipeline.name} was not begun: the sensor {sensor} has not ticked for "
            f"{waited:.0f} s. Turn it on under Automation, which also resumes live transactions, and launch this job again; or "
            "use the command line, which does not need it."
        )

    return alone


def _selected(
    pipeline: Pipeline, config: BackfillConfig | ReplayConfig, transaction: str = ""
) -> tuple[tuple[Slice, ...], Situation]:
    """Return the slices that the config selects, and the state of table and broker. Raises ConfigError unless it selects in
    exactly one way."""
    try:
        selection = select(
            NAMES,
            open_ends=pipeline.table.is_keyed,
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
