"""Backfill, replay and retry of dead letters as Dagster jobs: hourly windows that the UI launches by the day, and the rest by
the Launchpad.

They run the same code as `hudi-ingest backfill`, `replay` and `dead-letters retry`, beside the coordinator's runs. Their pool
is one of their own: theirs wait for one another in the queue, and never a live run for them there.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from dagster import (
    AssetObservation,
    Config,
    HourlyPartitionsDefinition,
    JobDefinition,
    MetadataValue,
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

from hudi_ingest.asked_ranges import in_time, of_transaction
from hudi_ingest.backfill import ranges_text, run_backfill
from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import observe
from hudi_ingest.exceptions import ConfigError, NothingToDo
from hudi_ingest.home import Home
from hudi_ingest.ingest import run_transaction
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.letter_retry import RetryResult, RetrySurvey, retry_letters, survey_retry
from hudi_ingest.model import CommitReceipt, Slice, SliceReport, TransactionPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.resources import LEDGER, SPARK
from hudi_ingest.orchestration.run_config import SliceConfig
from hudi_ingest.orchestration.table_asset import (
    metadata_table,
    pool,
    retry_policy,
    run_is_finished,
)
from hudi_ingest.replay import run_replay, survey_replay
from hudi_ingest.turns import RunTransaction

MOST_SECONDS = 24 * 3600
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


def range_jobs(pipeline: Pipeline) -> tuple[JobDefinition, ...]:
    """`<name>_backfill_hours`, `<name>_backfill`, `<name>_replay` and `<name>_retry_dead_letters`."""
    shared = {tags.PIPELINE_RANGES: pipeline.name, tags.MAX_RUNTIME: str(MOST_SECONDS)}
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
            receipts = run_backfill(
                pipeline, asked, skip_covered=True, report=context.log.info, run=_runner(context, pipeline)
            )
            return _output(receipts)

    return backfill_hours


def _backfill_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Adds ranges of offsets that are not in the table.", **_settings(pipeline, "backfill"))
    def backfill(context: OpExecutionContext, config: BackfillConfig) -> Output[None]:
        with as_dagster_failures():
            asked = _asked(pipeline, config.ranges, config.from_time, config.to_time)
            receipts = run_backfill(
                pipeline,
                asked,
                # A further attempt goes on where the first one broke off.
                skip_covered=config.skip_covered or context.retry_number > 0,
                report=context.log.info,
                run=_runner(context, pipeline),
            )
            return _output(receipts)

    return backfill


def _replay_op(pipeline: Pipeline) -> OpDefinition:
    @op(description="Writes ranges anew, in place of the rows that were made of them.", **_settings(pipeline, "replay"))
    def replay(context: OpExecutionContext, config: ReplayConfig) -> Output[None]:
        with as_dagster_failures():
            asked = _asked(pipeline, config.ranges, config.from_time, config.to_time, config.transaction)
            survey = survey_replay(pipeline, observe(pipeline), asked)
            facts = {
                "offsets": sum(each.count for each in asked),
                "files replaced": len(survey.replaces) - len(survey.rewritten),
                "files rewritten": len(survey.rewritten),
                "deleted rows": survey.missing.deleted,
            }
            context.log.info(f"{pipeline.name}: {facts}")
            if config.dry_run:
                return Output(None, metadata=facts)
            receipts = run_replay(
                pipeline,
                asked,
                respect_deletes=config.respect_deletes,
                report=context.log.info,
                run=_runner(context, pipeline),
            )
            return _output(receipts, facts)

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
            result = retry_letters(
                pipeline, home=Home.from_environment(), report=context.log.info, run=_runner(context, pipeline)
            )
            facts = {"dead letters": result.tried, "dead letters that wait": result.waiting}
            return _output(result.receipts, {**facts, **_why_letters_stay(result)})

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
        "required_resource_keys": {SPARK, LEDGER},
        "retry_policy": retry_policy(pipeline),
        "pool": f"{pool(pipeline)}_ranges",
    }


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


def _runner(context: OpExecutionContext, pipeline: Pipeline) -> RunTransaction:
    """Runs transactions that are the Dagster run's, so that they are dead as soon as it has ended, on any machine."""

    def run(plan: TransactionPlan) -> CommitReceipt:
        # Made here with the resource's settings, it is the session that run_transaction finds in this process.
        _ = context.resources.pyspark.spark_session
        receipt = run_transaction(
            pipeline,
            home=Home.from_environment(),
            plan=plan,
            report=context.log.info,
            owner=Owner.dagster_run(context.run_id),
            run_is_finished=run_is_finished(context.instance),
        )
        context.log_event(_observation(pipeline, receipt))
        return receipt

    return run


def _observation(pipeline: Pipeline, receipt: CommitReceipt) -> AssetObservation:
    """What the table's page shows of one transaction. The names make plots of their own, apart from those of live commits."""
    kind, seconds = receipt.plan.kind.value, receipt.seconds.get("total")
    return AssetObservation(
        table_key(pipeline),
        description=f"{kind.capitalize()}: {receipt.rows:,} rows of {ranges_text(receipt)}.",
        metadata={
            "instant": receipt.instant,
            "transaction": receipt.plan.transaction_id,
            f"{kind}/rows": receipt.rows,
            f"{kind}/files": receipt.files,
            f"{kind}/bytes": receipt.size_bytes,
            # A commit that is found to have landed already is not timed.
            **({f"{kind}/seconds": MetadataValue.float(seconds)} if seconds is not None else {}),
            "partitions": metadata_table(_COLUMNS, [_row(receipt, each) for each in receipt.reports]),
        },
    )


def _output(receipts: Iterable[CommitReceipt], facts: dict[str, Any] | None = None) -> Output[None]:
    done = list(receipts)
    return Output(
        None,
        metadata={
            **(facts or {}),
            "transactions": len(done),
            "rows": sum(each.rows for each in done),
            "files": sum(each.files for each in done),
            "instants": ", ".join(each.instant for each in done),
            "partitions": metadata_table(
                _COLUMNS, [_row(receipt, each) for receipt in done for each in receipt.reports]
            ),
        },
    )


_COLUMNS = [
    TableColumn("transaction", "string"),
    TableColumn("partition", "string"),
    TableColumn("start", "int"),
    TableColumn("end", "int"),
    TableColumn("rows", "int"),
    TableColumn("files", "int"),
]


def _row(receipt: CommitReceipt, report: SliceReport) -> dict[str, str | int]:
    return {
        "transaction": receipt.plan.transaction_id,
        "partition": str(report.slice.source),
        "start": report.slice.start,
        "end": report.slice.end,
        "rows": report.rows,
        "files": len(report.files),
    }
