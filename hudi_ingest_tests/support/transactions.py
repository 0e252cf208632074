"""A pipeline's transaction as Dagster runs it: its table's asset alone, without the checks, in the job of all assets."""

from __future__ import annotations

from dagster import AssetKey, Definitions, JobDefinition
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

ASSET_JOB = "__ASSET_JOB"


def transaction_job(definitions: Definitions, name: str) -> JobDefinition:
    """The job of a run of the pipeline of this name."""
    job = definitions.resolve_job_def(ASSET_JOB)
    return job.get_subset(asset_selection={AssetKey([name])}, asset_check_selection=set())


def transaction_code(code: ReconstructableRepository, name: str) -> ReconstructableJob:
    """The same, for a run's other processes."""
    job = ReconstructableJob(code, ASSET_JOB)
    return job.get_subset(asset_selection=frozenset({AssetKey([name])}), asset_check_selection=frozenset())
