"""The job that runs a pipeline's transactions: one run of its asset."""

from __future__ import annotations

from typing import Any

from dagster import AssetKey, AssetsDefinition, AssetSelection, JobDefinition

# Tried: `define_asset_job`, the public name. It returns this class, whose `resolve` goes through all assets of the location for each
# job, and takes no other way to find a job's assets.
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.jobs.op_settings import NO_RUN_RETRIES, max_runtime
from hudi_ingest.orchestration.jobs.run_config import job_name
from hudi_ingest.pipeline.pipeline import Pipeline


class OneAssetJob(UnresolvedAssetJobDefinition):
    """An asset job that looks at its asset and that asset's parents only. Dagster's own looks through all assets of the location for
    each job, so with 500 pipelines it looks 500 times at 500."""

    def resolve(self, asset_graph: AssetGraph, *arguments: Any, **named: Any) -> JobDefinition:
        asset = asset_graph.get(AssetKey((self.tags or {})[tags.PIPELINE]))
        # Dagster puts the specs of all topics into one definition.
        specs = [asset_graph.get(key).assets_def.get_asset_spec(key) for key in sorted(asset.parent_keys)]
        checks = asset_graph.assets_defs_for_keys(asset.check_keys)
        own_graph = AssetGraph.from_assets([asset.assets_def, *checks, AssetsDefinition(specs=specs)])
        return super().resolve(own_graph, *arguments, **named)


def transaction_job(pipeline: Pipeline) -> OneAssetJob:
    return OneAssetJob(
        name=job_name(pipeline),
        # The ticks report the checks; a step for them would make each run a second longer.
        selection=AssetSelection.assets(table_key(pipeline)).without_checks(),
        description=f"One transaction of {pipeline.name}: without config it takes all waiting records, up to the limits.",
        tags={
            tags.PIPELINE: pipeline.name,
            tags.TABLE: pipeline.table.base_path,
            tags.MAX_RUNTIME: max_runtime(pipeline),
            tags.MAX_RETRIES: NO_RUN_RETRIES,
        },
    )
