"""A maintenance job: one for all pipelines of a code location, which are its partitions, with schedules that request a run for each
pipeline that is due. The jobs themselves are in `upkeep_jobs.py` and `request_jobs.py`.

A partition gives the run its pipeline's tags, whether a person chose it in the Launchpad or in the dialog for backfills, or a
schedule requested it. The table's own lock, not a tag, keeps two writers apart.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dagster import (
    Config,
    DagsterInstance,
    DefaultScheduleStatus,
    Definitions,
    Failure,
    JobDefinition,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    PartitionedConfig,
    PartitionsDefinition,
    ResourceDefinition,
    RetryRequested,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    StaticPartitionsDefinition,
    job,
    op,
    schedule,
)

from hudi_ingest.exceptions.problems import listed
from hudi_ingest.operations.looks import Looks
from hudi_ingest.operations.upkeep.service_log import merged_now
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.resources import LEDGER, SPARK
from hudi_ingest.orchestration.jobs.run_config import retry_policy
from hudi_ingest.orchestration.switch import switches_of
from hudi_ingest.pipeline.pipeline import Pipeline

PREFIX = "hudi_ingest_"
"""How the names of a code location's shared jobs and schedules begin."""
EVALUATION_SECONDS = 40.0
"""Dagster gives a tick 60 s. A table that has not answered by then is left to the next one."""
_SHOWN_REASONS = 20


class NoConfig(Config):
    """A run needs nothing but its partition."""


def pipelines_as_partitions(pipelines: Sequence[Pipeline]) -> PartitionsDefinition:
    return StaticPartitionsDefinition([pipeline.name for pipeline in pipelines])


@dataclass(frozen=True, slots=True)
class MaintenanceSchedule:
    """When a maintenance job runs: `due` returns a request for the pipeline, or why there is none, at the tick's time in UTC.
    `name` follows `hudi_ingest_`; `on` says that the schedule is on from the start if one of its pipelines is enabled, `always_on` that
    it is even if none is."""

    name: str
    cron: str
    description: str
    due: Callable[[Pipeline, DagsterInstance, datetime], RunRequest | SkipReason]
    concerns: Callable[[Pipeline], bool] = lambda _: True
    on: bool = False
    always_on: bool = False

    def build(self, maintained: JobDefinition, pipelines: Sequence[Pipeline], suffix: str) -> ScheduleDefinition | None:
        """Build the schedule of the job, or None if it concerns none of the pipelines."""
        concerned = [pipeline for pipeline in pipelines if self.concerns(pipeline)]
        if not concerned:
            return None
        on = self.always_on or (self.on and any(pipeline.enabled for pipeline in concerned))

        @schedule(
            name=f"{PREFIX}{self.name}{suffix}",
            job=maintained,
            cron_schedule=self.cron,
            execution_timezone="UTC",
            default_status=DefaultScheduleStatus.RUNNING if on else DefaultScheduleStatus.STOPPED,
            description=f"{self.description} Leaves pipelines alone that are neither enabled nor on.",
        )
        def each_that_is_due(context: ScheduleEvaluationContext) -> list[RunRequest] | SkipReason:
            now = context.scheduled_execution_time
            requests, reasons = self.evaluate(concerned, context.instance, now)
            if not requests:
                return SkipReason(reasons_text(reasons))
            for reason in reasons:
                context.log.info(reason)
            return requests

        return each_that_is_due

    def evaluate(
        self, pipelines: Sequence[Pipeline], instance: DagsterInstance, now: datetime
    ) -> tuple[list[RunRequest], list[str]]:
        """Return a run for each pipeline that is due, and the reason for each that is not. A pipeline that cannot be evaluated keeps
        no other from its run; raises its error if it is the only outcome."""
        off = _off(pipelines, instance)
        turns = [pipeline for pipeline in pipelines if pipeline.name not in off]
        taken = Looks[RunRequest | SkipReason](self.name)
        looks = taken.take(turns, lambda pipeline: self.due(pipeline, instance, now), EVALUATION_SECONDS)
        requests, reasons, errors = list[RunRequest](), list[str](), list[BaseException]()
        for pipeline in pipelines:
            look = looks.get(pipeline.name)
            if pipeline.name in off:
                reasons.append(
                    f"{pipeline.name}: it is neither enabled nor on, so its table may belong to another writer; `hudi-ingest "
                    f"resume {pipeline.name}` turns it on"
                )
            elif look is None or not look.done():
                reasons.append(f"{pipeline.name}: its table has not answered within {EVALUATION_SECONDS:.0f} s")
            elif (error := look.exception()) is not None:
                errors.append(error)
                reasons.append(f"{pipeline.name}: {type(error).__name__}: {error}")
            elif isinstance(found := look.result(), SkipReason):
                reasons.append(f"{pipeline.name}: {found.skip_message}")
            else:
                requests.append(_of_pipeline(found, pipeline, now))
        if errors and len(errors) == len(turns):
            raise errors[0]
        merging = [name for request in requests if tags.MERGING in request.tags and (name := request.partition_key)]
        late = {*merging} - {*merged_now(merging, [pipeline.name for pipeline in pipelines], now)}
        reasons += [f"{name}: other tables' files are merged in this minute" for name in sorted(late)]
        return [request for request in requests if request.partition_key not in late], reasons


def reasons_text(reasons: Sequence[str]) -> str:
    """Return a line for each reason, up to 20, and how many more there are."""
    more = len(reasons) - _SHOWN_REASONS
    return "\n".join([*reasons[:_SHOWN_REASONS], *([f"and {more} more"] if more > 0 else [])])


def _of_pipeline(request: RunRequest, pipeline: Pipeline, now: datetime) -> RunRequest:
    # Dagster refuses several requests of a tick without run keys.
    key = request.run_key or f"{pipeline.name} {now:%Y-%m-%dT%H:%M:%SZ}"
    return RunRequest(run_key=key, run_config=request.run_config, tags=request.tags, partition_key=pipeline.name)


def _off(pipelines: Sequence[Pipeline], instance: DagsterInstance) -> set[str]:
    """Return the names of pipelines whose table is not ours to change yet: neither enabled nor turned on."""
    not_enabled = [pipeline for pipeline in pipelines if not pipeline.enabled]
    if not not_enabled:
        return set()
    switches = switches_of(instance)
    return {pipeline.name for pipeline in not_enabled if not switches.is_on(pipeline)}


@dataclass(frozen=True, slots=True)
class MaintenanceJob:
    """The job `hudi_ingest_<kind>`. `run` does the work for a pipeline, with a config of the class `config`; `concerns` says which
    pipelines are partitions; `tag` is on each run, with the pipeline's name; `retried` repeats it as the pipeline's transactions are.

    `partitions` builds the partitions of pipelines, whose keys begin with the pipeline's name, and `|` if there is more."""

    kind: str
    tag: str
    description: str
    run: Callable[[OpExecutionContext, Pipeline, Any], Output[None]]
    config: type[Config] = NoConfig
    concerns: Callable[[Pipeline], bool] = lambda _: True
    resources: frozenset[str] = frozenset({SPARK, LEDGER})
    job_tags: Mapping[str, str] = field(default_factory=dict)
    retried: bool = False
    partitions: Callable[[Sequence[Pipeline]], PartitionsDefinition] = pipelines_as_partitions
    schedules: Sequence[MaintenanceSchedule] = ()

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.kind}"

    def build(self, pipelines: Sequence[Pipeline], suffix: str) -> JobDefinition | None:
        """Build the job, or None if it concerns none of the pipelines."""
        concerned = {pipeline.name: pipeline for pipeline in pipelines if self.concerns(pipeline)}
        if not concerned:
            return None

        def execute(context: OpExecutionContext, config: Config) -> Output[None]:
            pipeline = self._chosen(context, concerned)
            with _retried(context, pipeline if self.retried else None), as_dagster_failures():
                return self.run(context, pipeline, config)

        # Dagster reads the config's keys from the annotation.
        execute.__annotations__["config"] = self.config
        work = op(
            name=f"{self.name}{suffix}__op",
            description=self.description,
            out=Out(Nothing),
            required_resource_keys=set(self.resources),
        )(execute)

        @job(
            name=f"{self.name}{suffix}",
            description=f"{self.description} Its partitions are the pipelines.",
            tags={tags.MAINTENANCE: self.kind, **self.job_tags},
            config=PartitionedConfig(
                partitions_def=self.partitions([*concerned.values()]),
                run_config_for_partition_key_fn=lambda _: {},
                tags_for_partition_key_fn=lambda key: self.tags_of(_pipeline_of(key)),
            ),
        )
        def maintained() -> None:
            work.alias(self.kind)()

        return maintained

    def tags_of(self, pipeline: str) -> dict[str, str]:
        """Return the tags of the pipeline's runs of this job."""
        return {tags.PIPELINE: pipeline, self.tag: pipeline}

    def config_of(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run config with this config of the job."""
        return {"ops": {self.kind: {"config": dict(config)}}}

    def _chosen(self, context: OpExecutionContext, concerned: Mapping[str, Pipeline]) -> Pipeline:
        name = _pipeline_of(context.partition_key) if context.has_partition_key else ""
        if name not in concerned:
            wrong = f"has no partition {name}" if name else "needs a pipeline as its partition, and this run has none"
            raise Failure(
                f"{context.job_name} {wrong}. Nothing was done. Choose one in the Launchpad's partition picker, or set the run's tag "
                f"{tags.PARTITION}: {listed(sorted(concerned), _SHOWN_REASONS)}.",
                allow_retries=False,
            )
        # The picker and schedules set them; a script may give the partition alone.
        if missing := self.tags_of(name).items() - context.run.tags.items():
            context.instance.add_run_tags(context.run_id, dict(missing))
        return concerned[name]


def _pipeline_of(partition_key: str) -> str:
    return partition_key.partition("|")[0]


@contextmanager
def _retried(context: OpExecutionContext, pipeline: Pipeline | None) -> Iterator[None]:
    """Retry the op as the pipeline's settings say: an op's own RetryPolicy would be the same for all pipelines."""
    try:
        yield
    except Exception as error:
        refused = isinstance(error, Failure) and not error.allow_retries
        if pipeline is None or refused or context.retry_number >= pipeline.transaction.retries:
            raise
        delay = retry_policy(pipeline).calculate_delay(context.retry_number + 1)
        raise RetryRequested(pipeline.transaction.retries, seconds_to_wait=delay) from error


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The maintenance jobs of a code location, by kind, and their schedules."""

    jobs: Mapping[str, JobDefinition]
    schedules: Sequence[ScheduleDefinition]

    @classmethod
    def of(cls, kinds: Sequence[MaintenanceJob], pipelines: Sequence[Pipeline], suffix: str = "") -> "Maintenance":
        """Build those of `kinds` that concern one of the pipelines. `suffix`: of their names, if a code location merges several."""
        jobs, schedules = dict[str, JobDefinition](), list[ScheduleDefinition]()
        for kind in kinds:
            built = kind.build(pipelines, suffix)
            if built is not None:
                jobs[kind.kind] = built
                found = (each.build(built, pipelines, suffix) for each in kind.schedules)
                schedules += [each for each in found if each is not None]
        return cls(jobs, schedules)

    def definitions(self, resources: Mapping[str, ResourceDefinition]) -> Definitions:
        return Definitions(jobs=[*self.jobs.values()], schedules=[*self.schedules], resources=resources)
