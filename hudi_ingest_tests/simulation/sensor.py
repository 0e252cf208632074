"""The sensor's decisions over a model of Dagster: which runs there are, which of them it counts as dead, and the next one that it asks
for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, DagsterRunStatus, RunsFilter

from hudi_ingest.exceptions import IngestError, KafkaUnreachable, LedgerUnreachable, TableUnreachable
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.operations.observation import Observation
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.coordinator import look as look_module
from hudi_ingest.orchestration.coordinator import runs as runs_module
from hudi_ingest.orchestration.coordinator.look import Sight, busy_with, caught_up, decided
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.tags import ACTIVE
from hudi_ingest.transaction.plan import planning
from hudi_ingest.transaction.plan.planning import Situation, keep_group_told, plan_next
from hudi_ingest_tests.simulation.programs import stop
from hudi_ingest_tests.simulation.world import BrokerInMemory, World

if TYPE_CHECKING:
    from hudi_ingest_tests.simulation.model import Run


@dataclass(frozen=True)
class Instance:
    """A coordinator's Dagster, as far as the sensor asks it. It shows a run as started until somebody reports its end, whatever has
    become of its processes."""

    pipeline: str
    runs: Sequence[Run]
    now: datetime

    def get_run_records(self, filters: RunsFilter, limit: int | None = None) -> list[Any]:
        stop("runs are asked for", LedgerUnreachable)
        if filters.statuses == ACTIVE:
            return [self._record(run) for run in self.runs if not run.finished]
        return []

    def get_run_by_id(self, ident: str) -> Any:
        return next((self._record(run).dagster_run for run in self.runs if run.ident == ident), None)

    def report_run_failed(self, run: Any, text: str) -> None:
        stop("a run is reported", LedgerUnreachable)
        next(each for each in self.runs if each.ident == run.run_id).finished = True

    @property
    def run_launcher(self) -> Any:
        return SimpleNamespace(terminate=lambda ident: stop("a run is ended"))

    @property
    def event_log_storage(self) -> Any:
        return SimpleNamespace(supports_global_concurrency_limits=False)

    def _record(self, run: Run) -> Any:
        shown = SimpleNamespace(
            run_id=run.ident,
            status=DagsterRunStatus.STARTED,
            is_finished=run.finished,
            tags={tags.TRANSACTION: run.plan.transaction_id},
            job_name="__ASSET_JOB",
            asset_selection=frozenset({AssetKey([self.pipeline])}),
        )
        return SimpleNamespace(dagster_run=shown, start_time=run.since.timestamp(), update_timestamp=run.since)


def planned_run(
    instance: Instance, ledger: Ledger, table: PipelineTable, situation: Callable[[], Situation]
) -> TransactionPlan | None:
    """What a tick asks for, if anything. Raises what `busy_with` does, and errors that would fail the tick."""
    if busy_with(instance, table, ledger, instance.now):  # type: ignore[arg-type]
        return None
    # As `observe` does.
    table.timeline.restore_properties()
    # As in a process that has just begun.
    memory, found = PipelineMemory(table.pipeline), situation()
    sight = Sight(instance, ledger, Observation(table, instance.now, found.committed, found), memory)  # type: ignore[arg-type]
    asked = decided(sight)
    if isinstance(asked, (str, IngestError)):
        asked = caught_up(asked, sight, None)  # type: ignore[arg-type]
    if isinstance(asked, IngestError):
        raise asked
    return None if isinstance(asked, str) else asked  # type: ignore[return-value]


def patches(world: Callable[[], World], accepts: Callable[[object], bool]) -> list[tuple[object, str, object]]:
    """What the sensor's modules see of the newest world (where, name, instead)."""

    def leased_until(table: PipelineTable, instant: str) -> datetime | None:
        stop("lease looked at", TableUnreachable)
        beat = world().clock() if instant in world().beating else world().heartbeats.get(instant)
        return beat + timedelta(seconds=table.pipeline.transaction.timeout_seconds) if beat else None

    def nothing(*_: object, **__: object) -> None:
        return

    def group_told(memory: PipelineMemory, situation: Situation, _: object) -> str:
        try:
            keep_group_told(memory.pipeline, situation, BrokerInMemory(world()))  # type: ignore[arg-type]
        except KafkaUnreachable as error:
            return str(error)
        return ""

    return [
        (look_module, "reach", lambda point: world().reach(point)),
        (look_module, "plan_next", lambda *given, **more: plan_next(*given, **more, accepts=accepts)),
        (look_module, "said_through", lambda *_: None),
        (PipelineMemory, "keep_group_told", group_told),
        *((look_module, name, nothing) for name in ("keep_letters_copied", "pending_approval")),
        *((PipelineMemory, name, nothing) for name in ("remember_requested", "remember_waiting")),
        # The request for a run holds the plan.
        (look_module, "run_request", lambda pipeline, plan, place: plan),
        (runs_module, "leased_until_of", leased_until),
        (planning, "listener_of", lambda pipeline: nothing),
        (planning, "durability_of", lambda *_: SimpleNamespace(sync_changes=nothing)),
    ]
