"""Requests beside live ingestion, and dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger import Request as Filed
from hudi_ingest.ledger import RequestState as FiledState
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.operations.requests.allowed_ranges import range_facts
from hudi_ingest.operations.requests.dead_letter_retry import letter_counts, pending_letters, survey_retry
from hudi_ingest.operations.requests.work import (
    file_backfill,
    file_replay,
    file_retry,
    is_worked_on,
    request_facts,
    survey_backfill,
    survey_replay_of,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.rest.models import BackfillBody, Cancelled, Letter, LetterGroup, ReplayBody, RequestState, Survey
from hudi_ingest.rest.named import HomeOf, Named
from hudi_ingest.rest.problems import Refused

ROUTES = APIRouter()
RequestId = Annotated[str, Path(description="The request's id.")]


@ROUTES.post("/pipelines/{name}/backfills", status_code=202, tags=["requests"], summary="Request a backfill")
def create_backfill(home: HomeOf, pipeline: Named, body: BackfillBody, response: Response) -> RequestState:
    """Add offsets that are not in the table, such as history. The coordinator works it off between live transactions. A request
    for the same that is active is returned instead of a second one."""
    filed = file_backfill(home, pipeline, body.selection(pipeline), skip_covered=body.skip_covered)
    return _filed(home, pipeline, filed, response)


@ROUTES.post("/pipelines/{name}/backfills/survey", tags=["requests"], summary="Plan a backfill", name="survey_backfill")
def survey_backfill_of(pipeline: Named, body: BackfillBody) -> Survey:
    """Which offsets a backfill would read. Changes nothing."""
    missing = survey_backfill(pipeline, body.selection(pipeline), skip_covered=body.skip_covered)
    return Survey.model_validate({"pipeline": pipeline.name, "ranges": range_facts(missing)})


@ROUTES.post("/pipelines/{name}/replays", status_code=202, tags=["requests"], summary="Request a replay")
def create_replay(home: HomeOf, pipeline: Named, body: ReplayBody, response: Response) -> RequestState:
    """Read offsets that are in the table again and replace their rows, e.g. after fixing a converter, transform or mask."""
    filed = file_replay(
        home, pipeline, body.selection(pipeline, body.transaction), respect_deletes=body.respect_deletes
    )
    return _filed(home, pipeline, filed, response)


@ROUTES.post("/pipelines/{name}/replays/survey", tags=["requests"], summary="Plan a replay")
def survey_replay(pipeline: Named, body: ReplayBody) -> Survey:
    """What a replay would cost, and which deleted rows it would bring back. Changes nothing."""
    return Survey.model_validate(survey_replay_of(pipeline, body.selection(pipeline, body.transaction)).to_dict())


@ROUTES.post(
    "/pipelines/{name}/retries", status_code=202, tags=["dead letters"], summary="Request a retry of dead letters"
)
def create_retry(home: HomeOf, pipeline: Named, response: Response) -> RequestState:
    """Retry all dead letters after a fix. Those that can become rows now are added to the table, once."""
    return _filed(home, pipeline, file_retry(home, pipeline), response)


@ROUTES.post(
    "/pipelines/{name}/retries/survey",
    tags=["dead letters"],
    summary="Plan a retry of dead letters",
    name="survey_retry",
)
def survey_retry_of(pipeline: Named) -> Survey:
    """How many dead letters would become rows now. Changes nothing."""
    return Survey.model_validate(survey_retry(pipeline).to_dict())


@ROUTES.get("/requests", tags=["requests"], summary="List requests")
def list_requests(
    home: HomeOf,
    pipeline: Annotated[str | None, Query(description="Only this pipeline's.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number, newest first.")] = 20,
) -> list[RequestState]:
    """Requests with their progress, newest first."""
    with Ledger.open(home.ledger_url) as ledger:
        return [_state(ledger, filed) for filed in ledger.requests.newest(pipeline, limit)]


@ROUTES.get("/requests/{request_id}", tags=["requests"], summary="Get a request")
def get_request(home: HomeOf, request_id: RequestId) -> RequestState:
    """A request with its progress."""
    with Ledger.open(home.ledger_url) as ledger:
        return _state(ledger, _known(ledger, request_id))


@ROUTES.post("/requests/{request_id}/cancel", tags=["requests"], summary="Cancel a request")
def cancel_request(home: HomeOf, request_id: RequestId) -> Cancelled:
    """A transaction that is running still finishes, and what is committed stays."""
    with Ledger.open(home.ledger_url) as ledger:
        _known(ledger, request_id)
        cancelled = ledger.requests.end(request_id, FiledState.CANCELLED, "cancelled by REST")
        return Cancelled(request=request_id, cancelled=cancelled, state=_known(ledger, request_id).state.value)


@ROUTES.get("/pipelines/{name}/dead-letters", tags=["dead letters"], summary="Count dead letters")
def list_dead_letters(pipeline: Named) -> list[LetterGroup]:
    """Pending dead letters by commit, partition and error."""
    return [LetterGroup.model_validate(asdict(count)) for count in letter_counts(pipeline)]


@ROUTES.get("/pipelines/{name}/dead-letters/records", tags=["dead letters"], summary="Show dead letters")
def show_dead_letters(
    pipeline: Named,
    topic: Annotated[str | None, Query(description="Only letters of this topic; needs `partition`.")] = None,
    partition: Annotated[int | None, Query(ge=0, description="Only letters of this partition of `topic`.")] = None,
    offset: Annotated[int | None, Query(ge=0, description="Only the letter at this offset.")] = None,
    error: Annotated[str, Query(description="Only letters whose error contains this text.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number.")] = 20,
) -> list[Letter]:
    """Where each pending dead letter came from, what is wrong with it, and its bytes."""
    if (topic is None) != (partition is None):
        raise Refused(422, "The request is not valid", "topic and partition go together.")
    source = TopicPartition(topic, partition) if topic is not None and partition is not None else None
    letters = pending_letters(pipeline, source, offset, error, limit)
    return [Letter.model_validate(letter.to_dict()) for letter in letters]


def _filed(home: Home, pipeline: Pipeline, filed: Filed, response: Response) -> RequestState:
    response.headers["Location"] = f"/api/v1/requests/{filed.request_id}"
    with Ledger.open(home.ledger_url) as ledger:
        worked_on = is_worked_on(ledger, filed, pipeline.transaction.timeout_seconds)
        return _state(ledger, filed).model_copy(update={"worked_on": worked_on})


def _state(ledger: Ledger, filed: Filed) -> RequestState:
    return RequestState.model_validate(request_facts(filed, ledger.requests.progress(filed.request_id)))


def _known(ledger: Ledger, request_id: str) -> Filed:
    """Raises Refused."""
    filed = ledger.requests.find(request_id)
    if filed is None:
        detail = f"The ledger has no request {request_id!r}; GET /api/v1/requests lists them."
        raise Refused(404, "No such request", detail)
    return filed
