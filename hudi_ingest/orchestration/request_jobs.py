"""Backfill, replay and retry of dead letters as Dagster jobs: hourly windows that the UI launches by the day, and the rest by
the Launchpad.

A job files a request, and shows what becomes of it. The coordinator makes the request's transactions, each a run of the
pipeline's own job: planned, fanned out and retried like a live one.
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
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.asked_ranges import in_time, of_transaction
from hudi_ingest.operations.dead_letter_retry import RetryResult, RetrySurvey, survey_retry
from hudi_ingest.operations.replay import survey_replay
from hudi_ingest.operations.request_planning import new_request, what_is_missing
from hudi_ingest.operations.request_work import ASK_AGAIN_SECONDS, commit_text, follow, retry_result
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.materialization import metadata_table
from hudi_ingest.orchestration.resources import LEDGER
from hudi_ingest.orchestration.run_config import SliceConfig
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.situation import observe

UNSEEN_SECONDS = 60.0
"""How long a request waits for a tick before its job takes the sensor to be off."""
EXPLICIT_HELP = "Offset ranges [start, end); either these, or a time window"


class BackfillConfig(Config):
    """What to add to the table: `ranges`, or from `from_time` to `to_time`."""

    ranges: list[SliceConfig] = Field(default=[], description=EXPLICIT_HELP)
    from_time: str = Field(
        default="", description="From this Kafka timestamp, as 2026-01-31T00:00:00Z, of all partitions"
    )
    to_time: str = Field(default="", description="Up to, but not including, this Kafka timestamp")
    skip_covered: bool = Field(default=False, description="Leave out what is in the table; otherwise it is refused")


class ReplayConfig(Config):
    """What to write anew: `ranges`, or from `from_time` to `to_time`, or all that `transaction` read."""

    ranges: list[SliceConfig] = Field(default=[], description=EXPLICIT_HELP)
    from_time: str = Field(
        default="", description="From this Kafka timestamp, as 2026-01-31T00:00:00Z, of all partitions"
    )
    to_time: str = Field(default="", description="Up to, but not including, this Kafka timestamp")
    transaction: str = Field(default="", description="All that this committed transaction read")
    respect_deletes: bool = Field(default=False, description="Write only offsets that have a row in the table still")
    dry_run: bool = Field(default=False, description="Show what it costs, and change nothing")


class RetryConfig(Config):
    """Without config all dead letters that wait are tried."""

    dry_run: bool = Field(default=False, description="Show how many would become rows, and change nothing")


def request_jobs(pipeline: Pipeline) -> tuple[JobDefinition, ...]:
    """`<name>_backfill_hours`, `<name>_backfill`, `<name>_replay` and `<name>_retry_dead_letters`."""
    # Such a run waits most of the time, and needs no processes for that.
    shared = {tags.PIPELINE_RANGES: pipeline.name, tags.IN_PROCESS: "true"}
    hours, ranges, again = _hours_op(pipeline), _backfill_op(pipeline), _replay_op(pipeline)
    letters = _retry_dead_letters_op(pipeline)

    @job(
        name=f"{pipeline.name}_backfill_hours",
        description=f"Adds to {pipeline.name} what is missing of chosen hours, by Kafka timestamp.",
        partitions_def=HourlyPartitionsDefinition(start_date=f"{pipeline.asset.backfill_from:%Y-%m-%d}-00:00"),
        tags=shared,
    )
    def backfill_hours() -> None:
        hours()

    @job(name=f"{pipeline.name}_backfill", description=f"Adds ranges of offsets to {pipeline.name}.", tags=shared)
    def backfill() -> None:
        ranges()

    @job(
        name=f"{pipeline.name}_replay",
        description=f"Writes ranges of offsets of {pipeline.name} anew, in place of their rows.",
        tags=shared,
    )
    def replay() -> None:
        again()

    @job(
        name=f"{pipeline.name}_retry_dead_letters",
        description=f"Tries the dead letters of {pipeline.name} again, after a fix: those that can become rows now are put "
        "into the table, once.",
        tags=shared,
    )
    def retry_dead_letters() -> None:
        letters()

    return backfill_hours, backfill, replay, retry_dead_letters


def _hours_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Adds what is missing of an hour, if it has records.", **_settings(pipeline, "backfill_hours"))
    def backfill_hours(context: OpExecutionContext) -> Output[None]:
        window = context.partition_time_window
        with as_dagster_failures():
            try:
                asked = in_time(pipeline, observe(pipeline), window.start, window.end)
            except NothingToDo as nothing:
                context.log.info(str(nothing))
                return Output(None, metadata={"rows": 0})
            # Hours are borders of people's own; what live transactions have read of one is not to be read again.
            return _fulfilled(
                context, pipeline, new_request(pipeline, TransactionKind.BACKFILL, asked, skip_covered=True)
            )

    return backfill_hours


def _backfill_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Adds ranges of offsets that are not in the table.", **_settings(pipeline, "backfill"))
    def backfill(context: OpExecutionContext, config: BackfillConfig) -> Output[None]:
        with as_dagster_failures():
            asked = _asked(pipeline, config.ranges, config.from_time, config.to_time)
            request = new_request(pipeline, TransactionKind.BACKFILL, asked, skip_covered=config.skip_covered)
            return _fulfilled(context, pipeline, request)

    return backfill


def _replay_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Writes ranges anew, in place of the rows that were made of them.", **_settings(pipeline, "replay"))
    def replay(context: OpExecutionContext, config: ReplayConfig) -> Output[None]:
        with as_dagster_failures():
            asked = _asked(pipeline, config.ranges, config.from_time, config.to_time, config.transaction)
            survey = survey_replay(pipeline, observe(pipeline), asked)
            facts = {
                "offsets": sum(piece.count for piece in asked),
                "files replaced": len(survey.replaces) - len(survey.rewritten),
                "files rewritten": len(survey.rewritten),
                "deleted rows": survey.missing.deleted,
            }
            context.log.info(f"{pipeline.name}: {facts}")
            if config.dry_run:
                return Output(None, metadata=facts)
            request = new_request(pipeline, TransactionKind.REPLAY, asked, respect_deletes=config.respect_deletes)
            return _fulfilled(context, pipeline, request, facts)

    return replay


def _retry_dead_letters_op(pipeline: Pipeline) -> OpDefinition:
    @op(
        description="Makes rows of the dead letters that can become some now; the others stay.",
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
            return _fulfilled(context, pipeline, new_request(pipeline, TransactionKind.RETRY))

    return retry_dead_letters


def _why_letters_stay(found: RetryResult | RetrySurvey) -> dict[str, Any]:
    return {
        **({"why letters stay": "\n".join(found.reasons)} if found.reasons else {}),
        **({"letters without bytes": found.withheld} if found.withheld else {}),
    }


def _settings(pipeline: Pipeline, name: str) -> dict[str, Any]:
    """What the ops have in common."""
    return {
        "name": f"{pipeline.name}__{name}",
        "out": Out(Nothing),
        "required_resource_keys": {LEDGER},
    }


def _fulfilled(
    context: OpExecutionContext, pipeline: Pipeline, request: Request, facts: dict[str, Any] | None = None
) -> Output[None]:
    """Files the request, and waits until it is done. A run that is terminated cancels it."""
    with context.resources.ledger.open() as ledger:
        if request.kind is TransactionKind.BACKFILL:
            # Refused here, where the reason is read, and not by a later tick.
            what_is_missing(pipeline, observe(pipeline), request.ranges, skip_covered=request.skip_covered)
        standing = ledger.file_request(request)
        context.add_output_metadata({"request": standing.request_id})
        context.log.info(
            f"request {standing.request_id} is filed; the sensor {pipeline.name}_coordinator begins its transactions, between the "
            f"live ones. `hudi-ingest requests cancel {standing.request_id}` or terminating this run ends it."
        )
        commits: list[RequestedCommit] = []
        try:
            for commit in follow(ledger, pipeline, standing, alone=_refuse_when_unseen(pipeline, ledger)):
                commits.append(commit)
                context.log.info(commit_text(commit, commits))
        except DagsterExecutionInterruptedError:
            ledger.end_request(standing.request_id, RequestState.CANCELLED, f"run {context.run_id[:8]} was terminated")
            raise
        letters: dict[str, Any] = {}
        if request.kind is TransactionKind.RETRY:
            result = retry_result(pipeline, ledger, standing.request_id)
            letters = {
                "dead letters": result.tried,
                "dead letters that wait": result.waiting,
                **_why_letters_stay(result),
            }
    return _output(commits, {**(facts or {}), **letters})


def _refuse_when_unseen(pipeline: Pipeline, ledger: Ledger) -> Callable[[Request], None]:
    """What a job does while no coordinator works on its request."""

    def alone(request: Request) -> None:
        waited = (datetime.now(timezone.utc) - request.filed_at).total_seconds()
        if waited < UNSEEN_SECONDS:
            time.sleep(ASK_AGAIN_SECONDS)
            return
        sensor = f"{pipeline.name}_coordinator"
        ledger.end_request(request.request_id, RequestState.CANCELLED, f"the sensor {sensor} is off")
        raise EnvironmentProblem(
            f"request {request.request_id} of pipeline {pipeline.name} was not begun: no tick of the sensor {sensor} in "
            f"{waited:.0f} s. Turn it on under Automation, which lets live transactions go on too, and launch this job again; or "
            "use the command line, which does without it."
        )

    return alone


def _asked(
    pipeline: Pipeline, ranges: Sequence[SliceConfig], from_time: str, to_time: str, transaction: str = ""
) -> tuple[Slice, ...]:
    """Raises ConfigError unless the config asks in exactly one way."""
    ways = [bool(ranges), bool(from_time or to_time), bool(transaction)]
    if sum(ways) != 1 or bool(from_time) != bool(to_time):
        raise ConfigError(
            "the run's config", ["give `ranges`, or `from_time` and `to_time`, or `transaction` (replay)"]
        )
    if transaction:
        return of_transaction(pipeline, transaction)
    if not ranges:
        return in_time(pipeline, observe(pipeline), _time(from_time), _time(to_time))
    try:
        return tuple(Slice(each.topic, each.partition, each.start, each.end) for each in ranges)
    except ValueError as error:
        raise ConfigError("the run's config", [f"ranges: {error}"]) from error


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ConfigError(
            "the run's config", [f"a time is ISO 8601 with a zone, like 2026-01-31T00:00:00Z; found {text!r}"]
        )
    return found


def _output(commits: Iterable[RequestedCommit], facts: dict[str, Any]) -> Output[None]:
    done = list(commits)
    return Output(
        None,
        metadata={
            **facts,
            "transactions": len(done),
            "rows": sum(commit.rows or 0 for commit in done),
            "files": sum(commit.files or 0 for commit in done),
            "instants": ", ".join(commit.instant for commit in done),
            "partitions": metadata_table(_COLUMNS, [_row(commit, piece) for commit in done for piece in commit.slices]),
        },
    )


_COLUMNS = [
    TableColumn("transaction", "string"),
    TableColumn("partition", "string"),
    TableColumn("start", "int"),
    TableColumn("end", "int"),
]


def _row(commit: RequestedCommit, piece: Slice) -> dict[str, str | int]:
    return {
        "transaction": commit.transaction_id,
        "partition": str(piece.source),
        "start": piece.start,
        "end": piece.end,
    }
