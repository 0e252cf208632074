"""What a pipeline does now, and what it would do next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fastapi import APIRouter

from hudi_ingest.exceptions import IngestError, NoSuchOffset
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.operations.health.status import PipelineStatus, pipeline_status, statuses
from hudi_ingest.operations.next_plan import next_plan
from hudi_ingest.operations.pipeline_files import PipelineFiles
from hudi_ingest.operations.sample import take_sample
from hudi_ingest.operations.upkeep.approvals import accept_loss
from hudi_ingest.orchestration.coordinator.switch import activities, switch
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.models import LossBody, PipelineState, Plan, Receipt, Sample, SampleBody, Switched
from hudi_ingest.rest.named import HomeOf, Named, NamedFile, written_base_path
from hudi_ingest.rest.spark_process import in_spark_process
from hudi_ingest.transaction.plan.situation import observe, plan_accepting

ROUTES = APIRouter(tags=["state"])


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
        answers = statuses(pipelines, ledger)
    paths = {pipeline.name: file.path for file in files for pipeline in file.pipelines}
    doing = activities(home, pipelines)
    states = [_state(pipeline, answers[pipeline.name], doing, paths.get(pipeline.name)) for pipeline in pipelines]
    return [*states, *(PipelineState.model_validate(each) for each in broken)]


@ROUTES.get("/pipelines/{name}/status", summary="Get a pipeline's status")
def get_status(home: HomeOf, pipeline: Named, file: NamedFile) -> PipelineState:
    """Committed offsets, lag and recent transactions. 503 if Kafka, table or ledger do not answer."""
    with Ledger.open(home.ledger_url) as ledger:
        status = pipeline_status(pipeline, observe(pipeline), ledger)
    return _state(pipeline, status, activities(home, [pipeline]), file)


def _state(
    pipeline: Pipeline,
    status: PipelineStatus | IngestError,
    doing: Mapping[str, tuple[bool | None, str]],
    path: Path | None,
) -> PipelineState:
    on, activity = doing[pipeline.name]
    known = {"error": str(status)} if isinstance(status, IngestError) else status.to_dict()
    mine = {"pipeline": pipeline.name, "on": on, "activity": activity, "base_path": written_base_path(pipeline, path)}
    return PipelineState.model_validate({**known, **mine})


@ROUTES.post("/pipelines/{name}/pause", summary="Pause a pipeline")
def pause_pipeline(home: HomeOf, pipeline: Named) -> Switched:
    """Turn its sensor off in Dagster, like the switch in the UI. A transaction that is running still finishes."""
    return Switched(pipeline=pipeline.name, on=False, changed=switch(home, pipeline, False))


@ROUTES.post("/pipelines/{name}/resume", summary="Resume a pipeline")
def resume_pipeline(home: HomeOf, pipeline: Named) -> Switched:
    """Turn its sensor on in Dagster, like the switch in the UI."""
    return Switched(pipeline=pipeline.name, on=True, changed=switch(home, pipeline, True))


@ROUTES.get("/pipelines/{name}/plan", summary="Plan the next transaction")
def plan_pipeline(pipeline: Named) -> Plan:
    """What the next transaction would read, and the table's columns after it. Changes nothing."""
    return Plan.model_validate(next_plan(pipeline).to_dict())


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
    """Give up the offsets that stopped partitions have lost, and resume at the broker's first, in one transaction. Answers when
    it is committed, which needs a Spark driver and may take up to the pipeline's timeout. 503 while another operation uses Spark."""
    partitions, topics = _losses(body)
    receipt = in_spark_process(partial(accept_loss, partitions=partitions, topics=topics), pipeline, home)
    return Receipt.model_validate(receipt.to_dict())


def _losses(body: LossBody) -> tuple[list[TopicPartition], list[str]]:
    return [TopicPartition(partition.topic, partition.partition) for partition in body.partitions], body.topics
