"""Tags and statuses, to find a pipeline's runs by."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import DagsterRunStatus, RunsFilter

from hudi_ingest.pipeline.pipeline import Pipeline

ACTIVE = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
"""The statuses of runs that have not ended."""

PIPELINE = "hudi_ingest/pipeline"
"""The pipeline of a run."""
MAINTENANCE = "hudi_ingest/maintenance"
"""The kind of a run that is no transaction: the name of its job after `hudi_ingest_`."""
PIPELINE_SWEEP = "hudi_ingest/sweep"
"""On a sweep's runs, with the pipeline's name, so that those of a kind and a pipeline are found by one tag."""
PIPELINE_SERVICES = "hudi_ingest/services"
"""Set on the runs of table services instead of PIPELINE."""
PIPELINE_TTL = "hudi_ingest/ttl"
"""Set on the runs that drop old partitions instead of PIPELINE."""
REASON = "hudi_ingest/reason"
"""Why a compaction is due."""
MERGING = "hudi_ingest/merging"
"""`true`: the run merges files of a table with commits more often than once a minute. In our dagster.yaml such runs take turns."""
PIPELINE_CATALOG = "hudi_ingest/catalog"
"""Set on the runs that sync the table to its catalog instead of PIPELINE."""
PIPELINE_RANGES = "hudi_ingest/ranges"
"""On runs that file a request and show its progress, likewise: they write nothing themselves."""
HOUSEKEEPING = "hudi_ingest/housekeeping"
"""On the runs of the code location's housekeeping."""
KINDS = (PIPELINE_SWEEP, PIPELINE_SERVICES, PIPELINE_TTL, PIPELINE_CATALOG, PIPELINE_RANGES, PIPELINE)
"""The tags that name a run's pipeline. Each run of ours has PIPELINE, and one of the others unless it is a transaction's; those of
earlier versions have one of them only."""
OF_PIPELINES = frozenset({*KINDS, MAINTENANCE, HOUSEKEEPING})
"""All of our jobs have one of them."""
REQUEST = "hudi_ingest/request"
"""On the runs of a request's transactions."""
KIND = "hudi_ingest/kind"
"""The kind of such a transaction: backfill, replay or retry."""
TABLE = ".dagster/hudi_ingest_table"
"""On the runs of transactions only, so the sensor finds them by it. Hidden by Dagster because of its prefix: run lists are for
people."""
TRANSACTION = "hudi_ingest/transaction"
SEQUENCE = ".dagster/hudi_ingest_sequence"
INSTANT = "hudi_ingest/instant"
STOPPED = "hudi_ingest/stopped"
"""Partitions whose committed offset the broker no longer has, and that wait for `hudi-ingest accept-loss`."""
RESET = "hudi_ingest/reset"
"""Partitions whose loss the run's transaction accepts."""
LEADERLESS = "hudi_ingest/leaderless"
"""Partitions that the run's transaction leaves out because they have no leader."""
WORKER = ".dagster/hudi_ingest_worker"
"""The process that the forking launcher started for the run, as the ledger names owners."""
IN_PROCESS = ".dagster/hudi_ingest_in_process"
"""`true`: our own executor runs the ops in the run's process."""
MAX_RUNTIME = "dagster/max_runtime"
"""Dagster's own: seconds after which run monitoring ends a run."""
MAX_RETRIES = "dagster/max_retries"
"""Dagster's own: how often the instance's `run_retries` repeat a failed run."""
LEDGER = ".dagster/hudi_ingest_ledger"
"""Where the sensor that requested the run has its ledger."""
PARTITION = "dagster/partition"
"""Dagster's own: the partition of a run."""
SENSOR = "dagster/sensor_name"
"""Dagster's own, on runs that a sensor has requested."""


def active_runs(pipelines: Sequence[Pipeline]) -> RunsFilter:
    """Return the filter of the pipelines' transactions' runs that have not ended, without those from the asset's page that have not
    begun."""
    return RunsFilter(tags={TABLE: [pipeline.table.base_path for pipeline in pipelines]}, statuses=ACTIVE)
