"""A code location with a table and two assets that are derived from it: `dagster dev -f definitions.py`.

One follows each commit. The other has a partition for each hour, which runs once all records of that hour are in the table.
"""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from dagster import (
    AssetExecutionContext,
    AutomationCondition,
    Definitions,
    HourlyPartitionsDefinition,
    MaterializeResult,
    asset,
)
from hudi import HudiTable

from hudi_ingest import ingest_definitions, load_pipeline

PIPELINES = Path(__file__).parent / "pipelines"


def clicks() -> pa.Table:
    """The table as of now, read by hudi-rs, without Spark."""
    table = HudiTable(load_pipeline(PIPELINES / "clicks.yaml").table.base_path)
    return pa.Table.from_batches(table.read())


@asset(deps=["clicks"], automation_condition=AutomationCondition.eager(), kinds={"hudi"})
def popular_pages() -> MaterializeResult:
    """The seconds that visitors spent on each page. Each commit is a materialization of the table's asset."""
    pages = clicks().group_by("page").aggregate([("seconds", "sum")]).sort_by([("seconds_sum", "descending")])
    return MaterializeResult(metadata={"pages": pages.num_rows, "first": pages["page"][0].as_py()})


@asset(
    partitions_def=HourlyPartitionsDefinition("2026-01-01-00:00"),
    deps=["clicks_hours"],
    # Plain eager() leaves out hours that become complete late, after the next one has ended.
    automation_condition=AutomationCondition.eager().without(AutomationCondition.in_latest_time_window()),
    kinds={"hudi"},
)
def clicks_of_the_hour(context: AssetExecutionContext) -> MaterializeResult:
    """The number of clicks in an hour, by their Kafka timestamps."""
    begin, end = context.partition_time_window
    return MaterializeResult(metadata={"clicks": count_between(clicks(), begin, end)})


def count_between(rows: pa.Table, begin: datetime, end: datetime) -> int:
    """The rows whose Kafka timestamp is in [begin, end)."""
    sent = rows["_kafka_timestamp"]
    bounds = [pa.scalar(time, sent.type) for time in (begin, end)]
    return pc.sum(pc.and_(pc.greater_equal(sent, bounds[0]), pc.less(sent, bounds[1]))).as_py() or 0


defs = Definitions.merge(ingest_definitions(PIPELINES), Definitions(assets=[popular_pages, clicks_of_the_hour]))
