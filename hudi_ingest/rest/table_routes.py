"""A pipeline's table: changes of its columns that wait for approval, its savepoints, and what its retention would drop."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.operations.upkeep.approvals import approve_schema_change, schema_change
from hudi_ingest.operations.upkeep.partition_ttl import run_ttl
from hudi_ingest.operations.upkeep.savepoints import create_savepoint, delete_savepoint, list_savepoints
from hudi_ingest.rest.models import ApprovalBody, Savepoint, SavepointBody, SchemaChange, TtlPlan
from hudi_ingest.rest.named import HomeOf, Named, NamedFile, written_base_path
from hudi_ingest.rest.spark_process import in_spark_process

ROUTES = APIRouter(tags=["table"])


@ROUTES.get("/pipelines/{name}/schema-change", summary="Show the schema change that waits")
def get_schema_change(pipeline: Named) -> SchemaChange:
    """How the next transaction would change the table's columns, and whether that is approved. Changes nothing."""
    try:
        return SchemaChange.model_validate(schema_change(pipeline).to_dict())
    except NothingToDo as error:
        return SchemaChange(pipeline=pipeline.name, skip=error.reason)


@ROUTES.post("/pipelines/{name}/schema-change/approve", summary="Approve a schema change", name="approve_schema")
def approve_schema(pipeline: Named, body: ApprovalBody) -> SchemaChange:
    """For `on_schema_change: refuse`. Approves the change with this fingerprint and no other: 409 if another one waits now, or
    none."""
    return SchemaChange.model_validate(approve_schema_change(pipeline, body.fingerprint).to_dict())


@ROUTES.get("/pipelines/{name}/savepoints", summary="List savepoints", name="list_savepoints")
def get_savepoints(home: HomeOf, pipeline: Named) -> list[Savepoint]:
    """The table's savepoints, oldest first. Needs Spark, so it takes seconds; 503 while another operation uses it."""
    savepoints = in_spark_process(list_savepoints, pipeline, home)
    return [Savepoint.model_validate(asdict(savepoint)) for savepoint in savepoints]


@ROUTES.post("/pipelines/{name}/savepoints", status_code=201, summary="Make a savepoint", name="create_savepoint")
def post_savepoint(home: HomeOf, pipeline: Named, body: SavepointBody) -> Savepoint:
    """Of the newest commit; the one that it has if it has one. `hudi-ingest savepoints NAME --restore INSTANT` takes back what
    follows. Delete it when nobody needs it any more: nothing is archived while it exists. 409 if there is no commit."""
    savepoint = in_spark_process(partial(create_savepoint, comment=body.comment), pipeline, home)
    return Savepoint.model_validate(asdict(savepoint))


@ROUTES.delete(
    "/pipelines/{name}/savepoints/{instant}", status_code=204, summary="Delete a savepoint", name="delete_savepoint"
)
def remove_savepoint(
    home: HomeOf, pipeline: Named, instant: Annotated[str, Path(description="The savepoint's commit.")]
) -> None:
    """The table stays as it is; cleaning and archival go on. 404 if there is no such savepoint."""
    in_spark_process(partial(delete_savepoint, instant=instant), pipeline, home)


@ROUTES.get("/pipelines/{name}/ttl/plan", summary="Plan the retention", name="plan_ttl")
def plan_ttl(home: HomeOf, pipeline: Named, file: NamedFile) -> TtlPlan:
    """Which table partitions are older than `table.ttl` allows; Dagster's schedule drops them every night. Changes nothing. Needs
    Spark, so it takes seconds; 503 while another operation uses it, 409 if the file has no `ttl`."""
    plan = in_spark_process(partial(run_ttl, plan_only=True), pipeline, home).to_dict()
    return TtlPlan.model_validate({**plan, "base_path": written_base_path(pipeline, file)})
