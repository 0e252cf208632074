"""Routes about a pipeline: its state, switch (pause, resume) and next transaction, its table (approvals, savepoints, retention); and the
installation."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path

from hudi_ingest.examination import examine
from hudi_ingest.exceptions import IngestError, NoSuchOffset, NothingToDo
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.operations import state as records
from hudi_ingest.operations.next_plan import next_plan
from hudi_ingest.operations.pipeline_files import PipelineFiles
from hudi_ingest.operations.sample import take_sample
from hudi_ingest.operations.upkeep.approvals import accept_loss, approve_schema_change, schema_change
from hudi_ingest.operations.upkeep.partition_ttl import run_ttl
from hudi_ingest.operations.upkeep.savepoints import create_savepoint, delete_savepoint, list_savepoints
from hudi_ingest.orchestration.switch import activities, switch
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.models import (
    ApprovalBody,
    Examination,
    LossBody,
    PipelineState,
    Plan,
    Receipt,
    Sample,
    SampleBody,
    Savepoint,
    SavepointBody,
    SchemaChange,
    Switched,
    TtlPlan,
)
from hudi_ingest.rest.named import HomeOf, Named, NamedFile, in_spark_process, written_base_path
from hudi_ingest.transaction.plan.planning import plan_accepting

ROUTES = APIRouter(tags=["state"])
TABLE = APIRouter(tags=["table"])
INSTALLATION = APIRouter(tags=["installation"])
_logger = logging.getLogger(__name__)


@ROUTES.get("/status", summary="Get the status of all pipelines")
def get_all_status(home: HomeOf) -> list[PipelineState]:
    """Offsets, lag and recent transactions of each pipeline; a pipeline that cannot be asked has an error instead."""
    files = PipelineFiles(home).all()
    pipelines = [pipeline for file in files if not file.problems for pipeline in file.pipelines]
    broken = [
        {"pipeline": file.name or file.path.name, "error": f"{file.path}: {'; '.join(file.problems)}"}
        for file in files
        if file.problems
    ]
    with Ledger.open(home.ledger_url) as ledger:
        answers = records.states(pipelines, ledger)
    paths = {pipeline.name: file.path for file in files for pipeline in file.pipelines}
    doing = activities(home, pipelines)
    states = [_state(pipeline, answers[pipeline.name], doing, paths.get(pipeline.name)) for pipeline in pipelines]
    return [*states, *(PipelineState.model_validate(each) for each in broken)]


@ROUTES.get("/pipelines/{name}/status", summary="Get a pipeline's status")
def get_status(home: HomeOf, pipeline: Named, file: NamedFile) -> PipelineState:
    """Committed offsets, lag and recent transactions. 503 if Kafka, table or ledger do not answer."""
    with Ledger.open(home.ledger_url) as ledger:
        status = records.state_now(pipeline, ledger)
    return _state(pipeline, status, activities(home, [pipeline]), file)


def _state(
    pipeline: Pipeline,
    status: records.PipelineState | IngestError,
    doing: Mapping[str, tuple[bool | None, str]],
    path: pathlib.Path | None,
) -> PipelineState:
    on, activity = doing[pipeline.name]
    known = {"error": str(status)} if isinstance(status, IngestError) else status.to_dict()
    mine = {"pipeline": pipeline.name, "on": on, "activity": activity, "base_path": written_base_path(pipeline, path)}
    return PipelineState.model_validate({**known, **mine})


@ROUTES.post("/pipelines/{name}/pause", summary="Pause a pipeline")
def pause_pipeline(home: HomeOf, pipeline: Named) -> Switched:
    """Pause it: no transaction begins until it is resumed. The ledger keeps the switch. A transaction that is
    running still finishes."""
    return Switched(pipeline=pipeline.name, on=False, changed=switch(home, pipeline, False))


@ROUTES.post("/pipelines/{name}/resume", summary="Resume a pipeline")
def resume_pipeline(home: HomeOf, pipeline: Named) -> Switched:
    """Turn it on, so that its transactions begin. The ledger keeps the switch."""
    return Switched(pipeline=pipeline.name, on=True, changed=switch(home, pipeline, True))


@ROUTES.get("/pipelines/{name}/plan", summary="Plan the next transaction")
def plan_pipeline(home: HomeOf, pipeline: Named) -> Plan:
    """What the next transaction would read, and the table's columns after it. Changes nothing."""
    with Ledger.open(home.ledger_url) as ledger:
        return Plan.model_validate(next_plan(pipeline, ledger).to_dict())


@ROUTES.post("/pipelines/{name}/sample", summary="Preview records")
def sample_pipeline(pipeline: Named, body: SampleBody) -> Sample:
    """The rows that a few records become, or why they are bad. Writes nothing."""
    starts = {TopicPartition(start.topic, start.partition): start.offset for start in body.starts}
    if len(starts) < len(body.starts):
        raise NoSuchOffset("starts names a partition twice; name each partition once")
    return Sample.model_validate(take_sample(pipeline, starts or None, body.limit).to_dict())


@ROUTES.post("/pipelines/{name}/accept-loss/survey", summary="Plan an accept-loss")
def survey_accept_loss(pipeline: Named, body: LossBody) -> Plan:
    """Which offsets would be given up, and what the transaction would read. Changes nothing."""
    return Plan.model_validate(plan_accepting(pipeline, *_losses(body)).to_dict())


@ROUTES.post("/pipelines/{name}/accept-loss", summary="Accept lost offsets", name="accept_loss")
def accept_lost_offsets(home: HomeOf, pipeline: Named, body: LossBody) -> Receipt:
    """Give up the offsets that stopped partitions have lost, and go on where the body says, in one transaction. Answers when
    it is committed, which needs a Spark driver and may take up to the pipeline's timeout. 503 while another operation uses Spark."""
    partitions, topics, resumes = _losses(body)
    work = partial(accept_loss, partitions=partitions, topics=topics, resumes=resumes)
    receipt = in_spark_process(work, pipeline, home)
    return Receipt.model_validate(receipt.to_dict())


def _losses(body: LossBody) -> tuple[list[TopicPartition], list[str], dict[TopicPartition, int | str]]:
    places = {TopicPartition(each.topic, each.partition): each.resume_at for each in body.partitions}
    resumes: dict[TopicPartition, int | str] = {source: at for source, at in places.items() if at != "first"}
    return [source for source in places if source not in resumes], body.topics, resumes


@TABLE.get("/pipelines/{name}/schema-change", summary="Show the schema change that waits")
def get_schema_change(pipeline: Named) -> SchemaChange:
    """How the next transaction would change the table's columns, and whether that is approved. Changes nothing."""
    try:
        return SchemaChange.model_validate(schema_change(pipeline).to_dict())
    except NothingToDo as error:
        return SchemaChange(pipeline=pipeline.name, skip=error.reason)


@TABLE.post("/pipelines/{name}/schema-change/approve", summary="Approve a schema change", name="approve_schema")
def approve_schema(pipeline: Named, body: ApprovalBody) -> SchemaChange:
    """For `on_schema_change: refuse`. Approves the change with this fingerprint and no other: 409 if another one waits now, or
    none."""
    return SchemaChange.model_validate(approve_schema_change(pipeline, body.fingerprint).to_dict())


@TABLE.get("/pipelines/{name}/savepoints", summary="List savepoints", name="list_savepoints")
def get_savepoints(home: HomeOf, pipeline: Named) -> list[Savepoint]:
    """The table's savepoints, oldest first. Needs Spark, so it takes seconds; 503 while another operation uses it."""
    savepoints = in_spark_process(list_savepoints, pipeline, home)
    return [Savepoint.model_validate(asdict(savepoint)) for savepoint in savepoints]


@TABLE.post("/pipelines/{name}/savepoints", status_code=201, summary="Make a savepoint", name="create_savepoint")
def post_savepoint(home: HomeOf, pipeline: Named, body: SavepointBody) -> Savepoint:
    """Of the newest commit; the one that it has if it has one. `hudi-ingest savepoints NAME --restore INSTANT` takes back what
    follows. Delete it when it is no longer needed: nothing is archived while it exists. 409 if there is no commit."""
    savepoint = in_spark_process(partial(create_savepoint, comment=body.comment), pipeline, home)
    return Savepoint.model_validate(asdict(savepoint))


@TABLE.delete(
    "/pipelines/{name}/savepoints/{instant}", status_code=204, summary="Delete a savepoint", name="delete_savepoint"
)
def remove_savepoint(
    home: HomeOf, pipeline: Named, instant: Annotated[str, Path(description="The savepoint's commit.")]
) -> None:
    """The table stays as it is; cleaning and archival go on. 404 if there is no such savepoint."""
    in_spark_process(partial(delete_savepoint, instant=instant), pipeline, home)


@TABLE.get("/pipelines/{name}/ttl/plan", summary="Plan the retention", name="plan_ttl")
def plan_ttl(home: HomeOf, pipeline: Named, file: NamedFile) -> TtlPlan:
    """Which table partitions are older than `table.ttl` allows; Dagster's schedule drops them every night. Changes nothing. Needs
    Spark, so it takes seconds; 503 while another operation uses it, 409 if the file has no `ttl`."""
    plan = in_spark_process(partial(run_ttl, plan_only=True), pipeline, home).to_dict()
    return TtlPlan.model_validate({**plan, "base_path": written_base_path(pipeline, file)})


@INSTALLATION.get("/doctor", summary="Examine the installation")
def get_doctor(home: HomeOf) -> Examination:
    """Machine, ledger, engine, Dagster and every pipeline, as this server sees them, with what to do. Changes nothing. The answer is
    200 whatever is found: look at `state`."""
    return Examination.model_validate(examine(home, _logger.info).to_dict())
