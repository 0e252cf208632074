"""Converts plans to Dagster's run requests, and a run's config back to its plan, so a run shows every slice before anything is read.
Also the settings that all ops and runs of a pipeline share: retries, pool and maximum runtime.

A transaction is a run of its table's asset, in the job that Dagster has for all assets of a code location.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

from dagster import (
    AssetKey,
    Backoff,
    Config,
    DagsterInstance,
    DagsterRun,
    Failure,
    Jitter,
    JobDefinition,
    RepositoryDefinition,
    RetryPolicy,
    RunRequest,
    validate_run_config,
)
from pydantic import Field

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.ledger import AttemptRow, AttemptState
from hudi_ingest.model.plan import TransactionKind, TransactionPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.failures import STOPPED
from hudi_ingest.pipeline.pipeline import Pipeline

BEGIN = "begin"
_SHOWN_OPS = 5
START_SECONDS = 120
NO_RUN_RETRIES = "0"
"""The sensor plans the run that follows a failed one. One that the instance's `run_retries` repeats would be in its way: its
transaction is rolled back."""
_KEPT_JOBS = 64
_SHOWN_LINES = 2
"""Lines of an error to show: what happened, and the first place where it did."""


class SliceConfig(Config):
    """One Kafka partition's offset range [start, end)."""

    topic: str = Field(description="Kafka topic")
    partition: int = Field(description="Kafka partition")
    start: int = Field(description="First offset to read: the table's committed offset")
    end: int = Field(description="Offset to stop before")


class TopicConfig(Config):
    """Which topic of this name the offsets belong to."""

    topic_id: str = Field(description="The broker's id of the topic; empty if it has none")
    generation: int = Field(description="How often this topic's offsets have started over")


class LossConfig(Config):
    """A committed offset that the broker no longer has."""

    topic: str = Field(description="Kafka topic")
    partition: int = Field(description="Kafka partition")
    committed: int = Field(description="The table's committed offset")
    restart: int | None = Field(description="The broker's first offset; none when the partition is gone")
    lost: int | None = Field(description="Number of offsets given up, if known")
    reason: str = Field(description="retention, recreated or truncated")


class TakeOverConfig(Config):
    """Where another system's ingestion into the table ended."""

    writer: str = Field(description="The other system")
    instant: str = Field(description="Instant of its last commit")
    offsets: dict[str, int] = Field(description="Its next offset for each topic:partition")


class BeginConfig(Config):
    """The transaction to run. Leave everything out to plan one now, from the committed offsets to the topic's ends."""

    transaction_id: str = Field(default="", description="Name of the transaction; empty: plan now")
    kind: str = Field(default=TransactionKind.INGEST.value, description="The purpose of the transaction")
    sequence: int = Field(default=0, description="Number of the transaction: the table's last one plus 1")
    slices: list[SliceConfig] = Field(default=[], description="Offset ranges, one for each Kafka partition")
    topics: dict[str, TopicConfig] = Field(default={}, description="The topics that the offsets belong to")
    resets: list[LossConfig] = Field(default=[], description="Accepted losses: slices start at `restart`")
    stopped: list[LossConfig] = Field(default=[], description="Losses that stop their partition, which has no slice")
    leaderless: list[str] = Field(default=[], description="Each topic:partition without a leader, which has no slice")
    marks: dict[str, list[int]] = Field(
        default={}, description="Where each topic:partition ended when it was planned, and no later than when, in ms"
    )
    said_through: int | None = Field(
        default=None, description="Through which time hours or days were reported to be complete, in ms"
    )
    take_over: TakeOverConfig | None = Field(default=None, description="Set if another system wrote the table")
    request: str = Field(default="", description="Id of the request (backfill, replay, retry) that it belongs to")

    def plan(self, pipeline: str) -> TransactionPlan | None:
        """Return the plan in the config, or None if there is none."""
        if not self.transaction_id:
            return None
        return TransactionPlan.from_dict({"pipeline": pipeline, **self.model_dump()})


def plan_in(run: DagsterRun, pipeline: Pipeline, config: BeginConfig) -> TransactionPlan | None:
    """Return the plan in the run's config, or None if begin shall plan. Raises ConfigError for a run of our sensor without a plan, and
    if the config names ops that the run of this table alone does not have: Dagster ignores those, and begin would plan as if there
    were no config."""
    ops: Any = run.run_config.get("ops") or {}
    others = sorted(ops.keys() - {pipeline.name})
    if others and run.asset_selection == frozenset({table_key(pipeline)}):
        raise ConfigError(
            "the run's config",
            [
                f"ops: this run has no {listed(others, _SHOWN_OPS)}. Move what is below to ops.{pipeline.name}.ops.{BEGIN}.config, or leave it out"
            ],
        )
    plan = config.plan(pipeline.name)
    # A run that a person re-executes has the tag, too.
    if plan is None and run.tags.get(tags.SENSOR, "").startswith(pipeline.coordinator) and run.parent_run_id is None:
        raise ConfigError(
            "the run's config",
            [
                f"ops.{pipeline.name}.ops.{BEGIN}.config: the sensor {pipeline.coordinator} requested this run, but the plan that "
                "it made is missing, so the code server and the run's process do not have the same version of hudi-ingest. Nothing was "
                "written. Install one version for both and reload the code location; the next tick plans the transaction once more"
            ],
        )
    return plan


def run_request(pipeline: Pipeline, plan: TransactionPlan, ledger: str) -> RunRequest:
    """Return the request of a run for exactly this plan. `ledger`: the place of the sensor's."""
    return RunRequest(
        # Dagster never reuses a run key, not even after a failed run; a transaction's id is used only once.
        run_key=plan.transaction_id,
        asset_selection=[table_key(pipeline)],
        # The ticks report the checks; a step for them would make each run a second longer.
        asset_check_keys=[],
        run_config=run_config(pipeline, plan),
        tags={**run_tags(pipeline, plan), **executor_tags(pipeline, plan), tags.LEDGER: ledger},
    )


def require_startable(request: RunRequest, pipeline: Pipeline, repository: RepositoryDefinition | None) -> None:
    """Check that the pipeline's begin op would find its plan, and that Dagster accepts the request: it starts no run of a tick that
    comes after one that it refuses. `repository`: of the code location, None where no run can start. Raises ConfigError, and what
    Dagster raises."""
    begin = request.run_config["ops"][pipeline.name]["ops"][BEGIN]["config"]
    if BeginConfig(**begin).plan(pipeline.name) is None:
        raise ConfigError("the run's config", [f"ops.{pipeline.name}.ops.{BEGIN}.config: it has no plan"])
    job = _job_of(repository, frozenset(request.asset_selection or ())) if repository is not None else None
    if job is None:
        raise ConfigError("the code location", [f"it has no job for the asset {pipeline.name}; load it anew"])
    validate_run_config(job, request.run_config)


@lru_cache(_KEPT_JOBS)
def _job_of(repository: RepositoryDefinition, selection: frozenset[AssetKey]) -> JobDefinition | None:
    """Build the job as which Dagster would run the selected assets; it keeps the schema of its config. None if they have none."""
    job = repository.get_implicit_job_def_for_assets(selection)
    return job.get_subset(asset_selection={*selection}, asset_check_selection=set()) if job is not None else None


def run_config(pipeline: Pipeline, plan: TransactionPlan) -> dict[str, Any]:
    """Return the run config of the pipeline's asset for exactly this plan, without what a request's begin finds out by itself."""
    # Dagster refuses a run whose config has an unknown key.
    begin = {key: value for key, value in plan.to_dict().items() if key in BeginConfig.model_fields}
    # Nothing for the executor: it belongs to the code location, and Dagster refuses config that it does not know.
    return {"ops": {pipeline.name: {"ops": {BEGIN: {"config": begin}}}}}


def run_tags(pipeline: Pipeline, plan: TransactionPlan) -> dict[str, str]:
    """Return the tags by which people in the UI and the sensor find a run of this plan."""
    partitions = {
        tags.STOPPED: [loss.source for loss in plan.stopped],
        tags.RESET: [loss.source for loss in plan.resets],
        tags.LEADERLESS: plan.leaderless,
    }
    return {
        tags.PIPELINE: pipeline.name,
        tags.TABLE: pipeline.table.base_path,
        tags.TRANSACTION: plan.transaction_id,
        tags.SEQUENCE: str(plan.sequence),
        tags.MAX_RUNTIME: max_runtime(pipeline),
        tags.MAX_RETRIES: NO_RUN_RETRIES,
        **({tags.REQUEST: plan.request, tags.KIND: plan.kind.value} if plan.request else {}),
        **{tag: " ".join(map(str, sources)) for tag, sources in partitions.items() if sources},
    }


def executor_tags(pipeline: Pipeline, plan: TransactionPlan) -> dict[str, str]:
    """Return the tags that tell our own executor how to run this plan; other executors ignore them."""
    return {} if pipeline.transaction.fans_out(plan.count) else {tags.IN_PROCESS: "true"}


def max_runtime(pipeline: Pipeline) -> str:
    """Return how many seconds a run may take: its transaction's timeout, plus time for its processes to start and end."""
    return str(pipeline.transaction.timeout_seconds + START_SECONDS)


def retry_policy(pipeline: Pipeline) -> RetryPolicy:
    settings = pipeline.transaction
    return RetryPolicy(
        max_retries=settings.retries,
        delay=settings.retry_delay_seconds,
        backoff=Backoff.EXPONENTIAL,
        jitter=Jitter.PLUS_MINUS,
    )


def pool(pipeline: Pipeline) -> str:
    """Return the Dagster pool that lets only one run at a time change the pipeline's table."""
    return f"hudi_ingest_{pipeline.name}"


def run_is_finished(instance: DagsterInstance) -> Callable[[str], bool | None]:
    """Return a function that says whether a run has ended, or None if this instance does not know the run."""

    def finished(run_id: str) -> bool | None:
        run = instance.get_run_by_id(run_id)
        # An unknown run may belong to another instance, and be alive.
        return None if run is None else run.is_finished

    return finished


def first_failure(attempts: Sequence[AttemptRow], own: Collection[tuple[str, int]]) -> AttemptRow | None:
    """Return the attempt of a transaction that was the first to fail for good, at a slice that is not one of `own`.

    `attempts` are in the order of their numbers; `own` are topics and partitions.
    """
    newest = {attempt.source: attempt for attempt in attempts}
    failed = [
        attempt
        for attempt in newest.values()
        if attempt.state is AttemptState.FAILED and (attempt.topic, attempt.partition) not in own
    ]
    return min(failed, key=lambda attempt: (attempt.ended_at, attempt.source), default=None)


def stopped(culprit: AttemptRow) -> Failure:
    """Return the failure of an op whose transaction is over because another op failed; it quotes that op's error."""
    error = " ".join(line.strip() for line in (culprit.error or "").splitlines()[:_SHOWN_LINES])
    return Failure(
        description=f"{STOPPED}{culprit.source} failed: {error}\nThis op wrote nothing visible.", allow_retries=False
    )
