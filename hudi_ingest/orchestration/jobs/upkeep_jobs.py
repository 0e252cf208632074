"""Upkeep of tables as maintenance jobs: table services, sweeps, retention, and the sync to a catalog.

All run beside transactions: each takes the table's lock for what must not meet a commit. A new job is described here, as a MaintenanceJob,
and listed in UPKEEP.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta, timezone
from itertools import takewhile
from typing import Any
from zlib import crc32

from dagster import (
    AssetObservation,
    Config,
    DagsterInstance,
    DagsterRunStatus,
    Failure,
    MetadataValue,
    OpExecutionContext,
    Output,
    RunRequest,
    RunsFilter,
    SkipReason,
    TableColumn,
)
from pydantic import Field

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import (
    CLUSTERED_FROM,
    files_to_merge,
    merged_below,
    read_amplification,
    why_due,
)
from hudi_ingest.hudi.iceberg.steps import due_commits
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.services.table_services import Clustering, Compaction
from hudi_ingest.hudi.storage.paths import ICEBERG_STATE
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.partition_ttl import TtlResult, ttl_for
from hudi_ingest.operations.upkeep.service_log import MERGING_SHARE, merges_again_at
from hudi_ingest.operations.upkeep.sweep import SweepResult, safe_age, sweep_for
from hudi_ingest.operations.upkeep.table_services import ServicesResult, services_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.failures import backoff_seconds
from hudi_ingest.orchestration.jobs.maintenance_job import MaintenanceJob, MaintenanceSchedule, NoConfig
from hudi_ingest.orchestration.jobs.resources import LEDGER, SPARK
from hudi_ingest.orchestration.jobs.run_config import NO_RUN_RETRIES
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.iceberg_sync import IcebergSync
from hudi_ingest.transaction.plan.planning import leased_until_of
from hudi_ingest.transaction.run import catalog_syncer

SERVICES_AT = time(2)
"""The time from which on tables are serviced, each in a minute of its own: many at once would keep transactions from the queue's places."""
_LOGGED_KEPT = 100
CATALOG_MOST_SECONDS = 600
"""A sync takes a minute at most; one that has not ended after this long is dead."""
_SECONDS_A_KEY = 60


def _has_ttl(pipeline: Pipeline) -> bool:
    return bool(pipeline.table.ttl)


def _has_catalog(pipeline: Pipeline) -> bool:
    return pipeline.catalog is not None or pipeline.table.iceberg is not None


class ServicesConfig(Config):
    """Which services to run."""

    cluster: bool | None = Field(
        default=None, description="Merge small files into large ones; by default if the table's mode is append"
    )
    merge_below_bytes: int | None = Field(
        default=None,
        description="Merge smaller files only; by default those below a quarter of table.target_file_bytes",
    )
    compact: bool | None = Field(
        default=None, description="Merge log files into base files; by default if the table's mode is upsert"
    )
    clean: bool = Field(default=True, description="Delete files that were replaced table.retain_commits ago")


def _services(context: OpExecutionContext, pipeline: Pipeline, config: ServicesConfig) -> Output[None]:
    with getattr(context.resources, LEDGER).open() as ledger:
        spark = getattr(context.resources, SPARK).spark_session
        result = services_for(pipeline, ledger, spark, Home.from_environment(), config.merge_below_bytes).run(
            cluster=config.cluster, compact=config.compact, clean=config.clean, report=context.log.info
        )
    metadata = services_metadata(result)
    context.log_event(AssetObservation(table_key(pipeline), description=services_sentence(result), metadata=metadata))
    return Output(None, metadata=metadata)


def nightly_services(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request the night's run of all services once the table's own minute has come, or say why none."""
    begin = datetime.combine(now, SERVICES_AT, timezone.utc)
    due = begin + timedelta(minutes=crc32(pipeline.name.encode()) % 60)
    if now < due:
        return SkipReason(f"its services are due at {due:%H:%M} UTC")
    # Once a night, also when the scheduler makes up for ticks that it has missed.
    tonight = RunsFilter(tags={tags.PIPELINE_SERVICES: pipeline.name}, created_after=begin)
    if runs := instance.get_runs(tonight, limit=1):
        return SkipReason(f"run {runs[0].run_id[:8]} has serviced its table since {begin:%H:%M} UTC")
    return RunRequest(run_key=f"{pipeline.name} {due:%Y-%m-%d}")


def compaction_run(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a run of the services job that only compacts, or say why none. Reads the table's timeline, and starts no JVM."""
    if wait := _why_not_yet(pipeline, instance, now):
        return SkipReason(wait)
    table = PipelineTable(pipeline)
    timeline = table.timeline
    try:
        for instant in timeline.pending_compactions():
            leased_until = leased_until_of(table, instant)
            if leased_until is not None and leased_until > now:
                return SkipReason(
                    f"compaction {instant} is running in a Spark driver, or that driver died; the lease ends at "
                    f"{leased_until:%H:%M:%S} UTC"
                )
        found = read_amplification(timeline.completed() if timeline.exists() else ())
    except TableUnreachable as error:
        return SkipReason(str(error))
    reason = why_due(pipeline.table.compaction, found, now)
    if not reason:
        return SkipReason(f"not due: {counted(found.delta_commits, 'commit')} not compacted, {found.log_bytes:,} bytes")
    config = {"cluster": False, "compact": True, "clean": False}
    return _due(pipeline, config, reason)


def clustering_run(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a run of the services job that only clusters, or say why none. Lists the table's live files, and starts no JVM."""
    if wait := _why_not_yet(pipeline, instance, now):
        return SkipReason(wait)
    try:
        groups, target = Timeline.of(pipeline.table).file_groups(), pipeline.table.target_file_bytes
        small = files_to_merge(groups, target)
    except TableUnreachable as error:
        return SkipReason(str(error))
    if small < CLUSTERED_FROM:
        return SkipReason(f"not due: {counted(small, 'small file')} to merge, and it is from {CLUSTERED_FROM} on")
    below = merged_below(groups, target)
    # Transactions clean.
    config = {"cluster": True, "merge_below_bytes": below, "compact": False, "clean": False}
    return _due(pipeline, config, f"{small:,} small files")


def _due(pipeline: Pipeline, config: Mapping[str, Any], reason: str) -> RunRequest:
    # Tables with commits every few seconds are due at the same time, and their merges would have all places for runs.
    takes_turns = {tags.MERGING: "true"} if pipeline.transaction.is_frequent else {}
    return RunRequest(run_config=SERVICES.config_of(config), tags={tags.REASON: reason, **takes_turns})


def _why_not_yet(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> str:
    """Say why no run of services may start, whatever is due; "" if one may. Raises LedgerUnreachable."""
    run_tags = {tags.PIPELINE_SERVICES: pipeline.name}
    active = instance.get_run_records(RunsFilter(tags=run_tags, statuses=tags.ACTIVE), limit=1)
    if active:
        return f"run {active[0].dagster_run.run_id[:8]} of table services has not ended"
    ended = instance.get_run_records(
        RunsFilter(tags=run_tags, statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]), limit=10
    )
    failed = [*takewhile(lambda record: record.dagster_run.status is DagsterRunStatus.FAILURE, ended)]
    retry_at = (failed[0].end_time or 0) + backoff_seconds(len(failed), 60) if failed else 0
    if retry_at > now.timestamp():
        return (
            f"the last {len(failed)} runs of table services failed; see {failed[0].dagster_run.run_id[:8]}. The next try is due in "
            f"{retry_at - now.timestamp():.0f} s"
        )
    if not pipeline.transaction.is_frequent:
        return ""
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        rested_at = merges_again_at(ledger.service_runs.newest(), pipeline.table.base_path, now)
    if rested_at is None or rested_at <= now:
        return ""
    return f"merging files may take {MERGING_SHARE:.0%} of the time at most, so it rests until {rested_at:%H:%M:%S} UTC"


def services_sentence(result: ServicesResult) -> str:
    """Say in one sentence what the services did."""
    if result.compactions:
        logs = sum(compaction.log_files for compaction in result.compactions)
        groups = sum(compaction.file_groups for compaction in result.compactions)
        return f"Table services: {counted(logs, 'log file')} merged into {counted(groups, 'base file')}."
    return f"Table services: {result.replaced} files became {result.written}."


def services_metadata(result: ServicesResult) -> dict[str, Any]:
    """Return the metadata of the run and the asset. Its names are plots of the asset, separate from those of commits."""
    cleaned = {} if result.cleaned is None else {"services/files cleaned": result.cleaned}
    if result.compactions:
        return {
            "services/log files compacted": sum(compaction.log_files for compaction in result.compactions),
            "services/log bytes compacted": sum(compaction.log_bytes for compaction in result.compactions),
            "services/files written": sum(compaction.file_groups for compaction in result.compactions),
            "services/bytes written": sum(compaction.size_bytes for compaction in result.compactions),
            **cleaned,
            "compactions": _by_instant(result.compactions, _COMPACTED),
        }
    return {
        "services/files replaced": result.replaced,
        "services/files written": result.written,
        "services/bytes written": result.size_bytes,
        **cleaned,
        "clusterings": _by_instant(result.clusterings, _CLUSTERED),
    }


def _by_instant(done: Sequence[Clustering] | Sequence[Compaction], figures: Sequence[str]) -> MetadataValue[Any]:
    columns = [TableColumn("instant", "string"), *(TableColumn(figure, "int") for figure in figures)]
    rows = [
        {"instant": service.instant, **{figure: getattr(service, figure) for figure in figures}} for service in done
    ]
    return metadata_table(columns, rows)


_CLUSTERED = ("replaced", "written", "rows", "size_bytes")
_COMPACTED = ("file_groups", "log_files", "rows", "log_bytes", "size_bytes")


SERVICES = MaintenanceJob(
    "services",
    tags.PIPELINE_SERVICES,
    "Merges a table's small files or log files into large ones and deletes what was replaced, while readers and transactions "
    "continue.",
    _services,
    ServicesConfig,
    job_tags={tags.MAX_RUNTIME: str(6 * 3600)},
    retried=True,
    schedules=(
        MaintenanceSchedule(
            "services_daily",
            f"* {SERVICES_AT.hour} * * *",
            "Clusters and cleans tables that are appended to, each once a night between 02:00 and 03:00 UTC.",
            nightly_services,
            lambda pipeline: not pipeline.table.is_keyed,
            on=True,
        ),
        MaintenanceSchedule(
            "clustering",
            "* * * * *",
            "Clusters tables that get commits more often than once a minute when they are due: they have 200 small files. Looks every "
            "minute.",
            lambda pipeline, instance, _: clustering_run(pipeline, instance, datetime.now(timezone.utc)),
            lambda pipeline: pipeline.transaction.is_frequent and not pipeline.table.is_keyed,
            # Without it readers would open tens of thousands of files by the night.
            on=True,
        ),
        MaintenanceSchedule(
            "compaction",
            "* * * * *",
            "Compacts keyed tables when they are due; see table.compaction. Looks every minute.",
            lambda pipeline, instance, _: compaction_run(pipeline, instance, datetime.now(timezone.utc)),
            lambda pipeline: pipeline.table.is_keyed,
            # Without it queries become slower with each transaction.
            on=True,
        ),
    ),
)


class SweepConfig(Config):
    """What to sweep. Without config, nothing is deleted."""

    older_than_hours: float | None = Field(
        default=None, description="Leave younger files alone; default: 6, but at least twice timeout_seconds"
    )
    delete: bool = Field(default=False, description="Delete the files found; otherwise only list them")


def _sweep(context: OpExecutionContext, pipeline: Pipeline, config: SweepConfig) -> Output[None]:
    try:
        age = safe_age(pipeline, config.older_than_hours)
    except ValueError as error:
        raise Failure(f"older_than_hours: {error}", allow_retries=False) from error
    with getattr(context.resources, LEDGER).open() as ledger:
        result = sweep_for(pipeline, ledger, getattr(context.resources, SPARK).spark_session).run(
            age, delete=config.delete, report=context.log.info
        )
    outcome = "deleted" if result.deleted else "found, not deleted"
    context.log.info(f"{counted(len(result.orphans), 'orphan')}, {counted(result.size_bytes, 'byte')}: {outcome}")
    for kept in result.kept[:_LOGGED_KEPT]:
        context.log.info(f"left alone: {kept.file.path}: {kept.reason}")
    if result.problem:
        raise Failure(result.problem, metadata=sweep_metadata(result), allow_retries=False)
    return Output(None, metadata=sweep_metadata(result))


def sweep_metadata(result: SweepResult) -> dict[str, Any]:
    """Return the metadata of one sweep."""
    return {
        "orphans": len(result.orphans),
        "bytes": result.size_bytes,
        "deleted": result.deleted,
        "older than hours": MetadataValue.float(result.safe_age.total_seconds() / 3600),
        "files": metadata_table(_SWEPT, result.rows()),
        "left alone": len(result.kept),
        "live files not listed": len(result.unlisted),
    }


_SWEPT = [
    TableColumn("path", "string"),
    TableColumn("bytes", "int"),
    TableColumn("age_hours", "float"),
    TableColumn("instant", "string"),
    TableColumn("kafka_partition", "int"),
    TableColumn("first_offset", "int"),
    TableColumn("why", "string"),
]

SWEEP: MaintenanceJob = MaintenanceJob(
    "sweep",
    tags.PIPELINE_SWEEP,
    "Finds files in a table's folder that no transaction needs; deletes them if its config says so.",
    _sweep,
    SweepConfig,
    job_tags={tags.MAX_RUNTIME: str(6 * 3600)},
    retried=True,
    schedules=(
        MaintenanceSchedule(
            "sweep_daily",
            "30 3 * * *",
            "Deletes files that no transaction needs, once a day at 03:30 UTC.",
            lambda *_: RunRequest(run_config=SWEEP.config_of({"delete": True})),
        ),
    ),
)


class TtlConfig(Config):
    """What to do. Without config, expired partitions are dropped."""

    plan_only: bool = Field(default=False, description="Only show which partitions would be dropped")
    savepoint: bool = Field(default=False, description="Make a savepoint before; nothing is archived while it exists")


def _ttl(context: OpExecutionContext, pipeline: Pipeline, config: TtlConfig) -> Output[None]:
    with getattr(context.resources, LEDGER).open() as ledger:
        spark = getattr(context.resources, SPARK).spark_session
        result = ttl_for(pipeline, ledger, spark).run(
            datetime.now(timezone.utc), context.log.info, plan_only=config.plan_only, savepoint=config.savepoint
        )
    metadata = ttl_metadata(result)
    if result.instant is not None:
        sentence = f"Retention: {counted(len(result.expired), 'partition')} dropped."
        context.log_event(AssetObservation(table_key(pipeline), description=sentence, metadata=metadata))
    return Output(None, metadata=metadata)


def ttl_metadata(result: TtlResult) -> dict[str, Any]:
    """Return the metadata of the run and the asset."""
    rows = [
        {
            "partition": partition.path,
            "ended_at": f"{partition.ended_at:%Y-%m-%d %H:%M}" if partition.ended_at else "",
            "file_groups": partition.file_groups,
            "bytes": partition.size_bytes,
        }
        for partition in result.expired
    ]
    return {
        "ttl/partitions expired": len(result.expired),
        "ttl/bytes expired": result.size_bytes,
        "ttl/partitions kept": result.kept,
        **({"instant": result.instant} if result.instant else {}),
        **({"savepoint": result.savepoint} if result.savepoint else {}),
        **({"age unknown": MetadataValue.text(", ".join(result.unknown))} if result.unknown else {}),
        "partitions": metadata_table(_EXPIRED, rows),
    }


_EXPIRED = [
    TableColumn("partition", "string"),
    TableColumn("ended_at", "string"),
    TableColumn("file_groups", "int"),
    TableColumn("bytes", "int"),
]

TTL = MaintenanceJob(
    "ttl",
    tags.PIPELINE_TTL,
    "Drops a table's partitions that are older than table.ttl, while readers and transactions continue.",
    _ttl,
    TtlConfig,
    _has_ttl,
    job_tags={tags.MAX_RUNTIME: "3600"},
    retried=True,
    schedules=(
        MaintenanceSchedule(
            "ttl_daily",
            "30 1 * * *",
            "Drops partitions of tables that are older than table.ttl, once a day at 01:30 UTC.",
            lambda *_: RunRequest(),
            _has_ttl,
            # The pipeline file asks for it.
            on=True,
        ),
    ),
)


def _sync(context: OpExecutionContext, pipeline: Pipeline, config: NoConfig) -> Output[None]:
    timeline = Timeline.of(pipeline.table)
    commits = timeline.completed()
    news: object = IcebergSync(pipeline, timeline, Home.from_environment()).if_due(commits)
    if pipeline.catalog is not None:
        # Only now, because Iceberg needs no Spark.
        spark = getattr(context.resources, SPARK).spark_session
        news = catalog_syncer(pipeline, timeline, spark)(commits) or news
    context.log.info(f"synced: {news}" if news else "nothing to sync, or the last try was a moment ago")
    return Output(None)


def catalog_run(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a sync if the catalog lacks something and one may be tried, or say why none. Reads the table's timeline, and starts no
    JVM. Raises TableUnreachable."""
    active = instance.get_run_records(
        RunsFilter(tags={tags.PIPELINE_CATALOG: pipeline.name}, statuses=tags.ACTIVE), limit=1
    )
    if any(now.timestamp() - record.create_timestamp.timestamp() < CATALOG_MOST_SECONDS for record in active):
        return SkipReason(f"run {active[0].dagster_run.run_id[:8]} is syncing it")
    if runs := instance.get_runs(tags.active_runs([pipeline]), limit=1):
        return SkipReason(f"run {runs[0].run_id[:8]} works on a transaction, which syncs it with its commit")
    timeline = Timeline.of(pipeline.table)
    commits = timeline.completed() if timeline.exists() else ()
    lacks = []
    if pipeline.catalog is not None:
        state = read_state(timeline.storage)
        lacks.append((state, state.news(pipeline.catalog_place, commits)))
    if pipeline.table.iceberg is not None:
        state = read_state(timeline.storage, ICEBERG_STATE)
        due = due_commits(pipeline, state, commits, now)
        lacks.append((state, f"Iceberg lacks {counted(len(due), 'commit')}" if due else ""))
    behind = [(state, news) for state, news in lacks if news]
    if not behind:
        return SkipReason("its catalog has all of its table")
    if not any(state.may_try(now) for state, _ in behind):
        return SkipReason(f"its catalog is behind ({behind[0][1]}), but a sync failed a moment ago")
    # Dagster never reuses a run key, and a run may die before it can note that it failed.
    return RunRequest(run_key=f"{pipeline.name}-catalog-{int(now.timestamp()) // _SECONDS_A_KEY}")


CATALOG = MaintenanceJob(
    "catalog",
    tags.PIPELINE_CATALOG,
    "Brings a table's columns and partitions to its catalog, if it has anything new for it. Commits sync by themselves; its "
    "schedule runs it after a failure.",
    _sync,
    concerns=_has_catalog,
    resources=frozenset({SPARK}),
    job_tags={
        tags.MAX_RUNTIME: str(CATALOG_MOST_SECONDS),
        tags.MAX_RETRIES: NO_RUN_RETRIES,
        tags.IN_PROCESS: "true",
    },
    schedules=(
        MaintenanceSchedule(
            "catalog_retry",
            "* * * * *",
            "Syncs tables whose last sync to their catalog failed and that get no new records. Looks every minute.",
            lambda pipeline, instance, _: catalog_run(pipeline, instance, datetime.now(timezone.utc)),
            _has_catalog,
            always_on=True,
        ),
    ),
)


UPKEEP = (SERVICES, SWEEP, TTL, CATALOG)
