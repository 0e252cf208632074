"""The decision for one pipeline: its next run, or why none may start. Pure: it asks for facts one after the other, each only if it matters,
and changes nothing; `look.py` reads them and carries the decision out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hudi_ingest.exceptions import LeaderMissing, NothingToDo, OffsetsLost, RangeRefused
from hudi_ingest.ledger import Request, RequestState
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.operations.requests.planning import request_goes_first
from hudi_ingest.orchestration.coordinator.runs import FailedRun, backoff_left
from hudi_ingest.pipeline.pipeline import Pipeline

_MOST_TRIES = 3
"""How many runs of a request may fail in a row before the request fails."""


class Facts(Protocol):
    """The facts of one look at a pipeline, `now`. Its methods raise KafkaUnreachable, TableUnreachable and LedgerUnreachable."""

    @property
    def pipeline(self) -> Pipeline: ...
    @property
    def now(self) -> datetime: ...
    @property
    def next_sequence(self) -> int:
        """The number of the table's next transaction."""
        ...

    def live_plan(self) -> TransactionPlan:
        """Plan the next live transaction. Raises NothingToDo and OffsetsLost."""
        ...

    def failed_runs(self, plan: TransactionPlan) -> Sequence[FailedRun]:
        """Return the runs that tried this live transaction and failed, newest first."""
        ...

    def unapproved_change(self) -> str:
        """Return the sentence about a change of the columns that a person has to approve; "" if none waits."""
        ...

    def next_request(self) -> Request | None:
        """Return the oldest request that no other process works on."""
        ...

    def last_tried(self, request: Request) -> int | None:
        """Return the number of the last transaction that was made for a request of the table."""
        ...

    def failed_runs_of(self, request: Request) -> Sequence[FailedRun]:
        """Return the newest runs of the request that failed one after the other, newest first."""
        ...

    def why_rolled_back(self, request: Request) -> str:
        """Return why the request's last transaction was rolled back; "" if that is unknown."""
        ...

    def plan_of(self, request: Request) -> TransactionPlan | None:
        """Plan the request's next transaction; None if it is done. Raises LeaderMissing and RangeRefused."""
        ...


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that ends now. `reason`: why it failed."""

    request_id: str
    state: RequestState
    reason: str = ""

    @property
    def sentence(self) -> str:
        return (
            f"{self.request_id} is done"
            if self.state is RequestState.DONE
            else f"{self.request_id} has failed: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The transaction to run next, or the `reason` why none. `lost`: offsets that a person has to accept before live ones continue."""

    plan: TransactionPlan | None = None
    reason: str = ""
    lost: OffsetsLost | None = None
    request: EndedRequest | None = None
    may_rest: bool = False
    """Whether nothing is to be done until the broker or a person has something new."""


def decide(facts: Facts) -> Decision:
    """Decide on the next live transaction or the next one of a request, or why there is neither."""
    live: TransactionPlan | None = None
    lost: OffsetsLost | None = None
    try:
        live = facts.live_plan()
        wait = backoff_left(facts.pipeline, facts.failed_runs(live), facts.now) or ""
    except NothingToDo as error:
        wait = error.reason
    except OffsetsLost as error:
        # Requests may still cover ranges before the lost offsets.
        lost, wait = error, str(error)
    if unapproved := facts.unapproved_change():
        # Neither a live transaction nor a request's could begin.
        return Decision(None, unapproved, lost)
    turn = _turn_of_request(facts, live is not None and not wait)
    if isinstance(turn, TransactionPlan):
        return Decision(turn)
    ended = turn if isinstance(turn, EndedRequest) else None
    if live is not None and not wait:
        return Decision(live, request=ended)
    text = ended.sentence if ended else turn
    reason = "; ".join(part for part in (wait, text) if isinstance(part, str) and part)
    return Decision(None, reason, lost, ended, may_rest=live is None and turn is None)


def _turn_of_request(facts: Facts, live_is_due: bool) -> TransactionPlan | EndedRequest | str | None:
    """Return the next transaction of the pipeline's oldest request if it is its turn, why it waits if it is not, its end if it is done or
    cannot be done; None if there is no request."""
    request = facts.next_request()
    if request is None:
        return None
    name = request.request_id
    if not request_goes_first(live_is_due, facts.next_sequence, facts.last_tried(request)):
        return f"{name} continues after the live transaction that is due"
    failed = facts.failed_runs_of(request)
    if len(failed) >= _MOST_TRIES:
        newest = f"its last {len(failed)} runs failed; see the error of the newest, {failed[0].run_id[:8]}"
        return EndedRequest(name, RequestState.FAILED, facts.why_rolled_back(request) or newest)
    if wait := backoff_left(facts.pipeline, failed, facts.now):
        return f"{name} waits: {wait}"
    try:
        plan = facts.plan_of(request)
    except LeaderMissing as error:
        # Live transactions of the other partitions need not wait for it.
        return f"{name} waits: {error}"
    except RangeRefused as error:
        return EndedRequest(name, RequestState.FAILED, str(error))
    return plan or EndedRequest(name, RequestState.DONE)
