"""A code location with a table and an asset that is made of it: `dagster dev -f definitions.py`.

Each commit is a materialization of the table's asset, so the condition asks for the asset downstream after each.
"""

from pathlib import Path

import pyarrow as pa
from dagster import AssetExecutionContext, AutomationCondition, Definitions, MaterializeResult, asset
from hudi import HudiTable

from hudi_ingest import ingest_definitions, load_pipeline

PIPELINES = Path(__file__).parent / "pipelines"


@asset(deps=["clicks"], automation_condition=AutomationCondition.eager(), kinds={"hudi"})
def popular_pages(context: AssetExecutionContext) -> MaterializeResult:
    """The seconds that visitors spent on each page, read by hudi-rs, without Spark."""
    table = HudiTable(load_pipeline(PIPELINES / "clicks.yaml").table.base_path)
    clicks = pa.Table.from_batches(table.read()).select(["page", "seconds"])
    pages = clicks.group_by("page").aggregate([("seconds", "sum")]).sort_by([("seconds_sum", "descending")])
    return MaterializeResult(metadata={"pages": pages.num_rows, "first": pages["page"][0].as_py()})


defs = Definitions.merge(ingest_definitions(PIPELINES), Definitions(assets=[popular_pages]))
