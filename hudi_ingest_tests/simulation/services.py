"""Table services in memory: the product's own code down to its calls to Hudi, and Hudi's clustering, compaction and cleaning over a
World.

Hudi does what it was seen to do: a plan is made inside its lock and stays pending until somebody executes it; another try first
deletes what the one before it has written; the commit deletes every file of the instant that it does not list, and publishes inside the
lock. What TableService.java adds is here too: the claim is asked for before anything is changed, and inside the lock before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JJavaError

from hudi_ingest.exceptions import EngineLost, TableUnreachable
from hudi_ingest.hudi.services import table_services as clients
from hudi_ingest.hudi.services.table_services import (
    FencedService,
    HudiCompaction,
    HudiServices,
    PendingClustering,
    PlannedCompaction,
)
from hudi_ingest.hudi.storage.storage import Durability
from hudi_ingest.hudi.timeline import ownership
from hudi_ingest.hudi.timeline.ownership import ServiceClaim
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep import service_log
from hudi_ingest.operations.upkeep import table_services as services_module
from hudi_ingest.operations.upkeep.table_services import TableServices
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction import timeline_repair
from hudi_ingest.transaction.write import job as job_module
from hudi_ingest_tests.simulation import keyed
from hudi_ingest_tests.simulation.programs import running
from hudi_ingest_tests.simulation.world import (
    OUTSIDE,
    DiskInMemory,
    Engine,
    HudiInMemory,
    Instant,
    Row,
    TimelineInMemory,
    World,
    in_engine,
    storage_in,
)

SMALL = 6
"""Files with fewer rows are merged."""
MOST_FILES = 4
"""In one clustering."""
RETAINED = 2
"""Commits whose replaced files cleaning leaves alone."""


EXECUTING = ("service inflight", "file to be merged read", "merged file closed", "merged files flushed")
COMMITTING = ("commit_checked", "commit", "commit_leased", "guard passed", "metadata table written", "commit_landed")
NARROW = (
    *("pending c", "clustering is planned", "clustering requested", "service begins", *EXECUTING),
    *("expired instants listed", "file cleaned", "compaction is planned", "compaction requested"),
)
"""Points at which another program may change what a service relies on."""


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """What the JVM throws."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        kind = SimpleNamespace(getSimpleName=lambda: "IllegalStateException")
        self.java_exception = SimpleNamespace(getClass=lambda: kind, getMessage=lambda: message, getCause=lambda: None)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Client:
    """Hudi's write client, as far as services call it."""

    world: World
    engine: Engine

    def scheduleClustering(self, metadata: object) -> Any:
        """Plan to merge the oldest small files that no pending plan has."""
        world, engine = self.world, self.engine
        engine.step("clustering is planned", EngineLost, TableUnreachable)
        with engine.hudi_lock():
            taken = world.clustered()
            small = [path for path in world.live() if path not in taken and len(world.files[path]) < SMALL]
            if len(small) < 2:
                return _option(None)
            instant = engine.new_instant()
            instant.service, instant.planned = "clustering", {world.new_name(): tuple(small[:MOST_FILES])}
            engine.step("clustering requested", EngineLost, TableUnreachable)
        return _option(instant.name)

    def scheduleCompaction(self, metadata: object) -> Any:
        """Plan to merge the log files of completed commits, of file groups that no pending plan has."""
        world, engine = self.world, self.engine
        engine.step("compaction is planned", EngineLost, TableUnreachable)
        with engine.hudi_lock():
            taken = {group for each in world.active.values() if each.state != "completed" for group in each.planned}
            instant = engine.new_instant()
            completed = {path: each.completion for each in world.completed() for path in each.files}
            planned = {}
            for group, found in sorted(keyed.file_slices(world).items()):
                logs = [path for path in found.logs if completed[path] < instant.name]
                if logs and group not in taken:
                    planned[group] = (*([found.base] if found.base else []), *logs)
            if not planned:
                del world.active[instant.name]
                return _option(None)
            instant.service, instant.planned = "compaction", planned
            engine.step("compaction requested", EngineLost, TableUnreachable)
        return _option(instant.name)

    def clean(self) -> Any:
        """Roll back what has no lease, as Hudi's cleaning does, and delete files that were replaced before the last few commits."""
        world, engine = self.world, self.engine
        engine.step("cleaning", EngineLost, TableUnreachable)
        # Like other writers' cleaning it knows no epoch, and judges leases by its own clock: that this is right is a limit of the promises.
        HudiInMemory(world).roll_back_failed_writes(engine, judges=OUTSIDE)
        with engine.hudi_lock():
            commits = sorted(each.name for each in world.completed())
            pending = min((each.name for each in world.active.values() if each.state != "completed"), default="9")
            before = {name for name in commits[:-RETAINED] if name < pending}
            gone = keyed.superseded(world, before) if world.setting.keyed else replaced(world, before)
            engine.step("cleaning is planned", EngineLost, TableUnreachable)
        for path in gone:
            if path in world.files:
                world.cleaned[path] = world.files.pop(path)
                world.reached.add("cleaned")
            engine.step("file cleaned", EngineLost, TableUnreachable)
        return SimpleNamespace(getTotalFilesDeleted=lambda: len(gone))


def replaced(world: World, before: Collection[str]) -> list[str]:
    """Files that these instants have replaced."""
    live = {*world.live()}
    taken = [path for each in world.completed() if each.name in before for path in each.replaced]
    return [path for path in taken if path in world.files and path not in live]


def _option(value: object) -> Any:
    return SimpleNamespace(isPresent=lambda: value is not None, get=lambda: value)


@dataclass(frozen=True)
class TableServiceInMemory:
    """What TableService.java does."""

    world: World
    service: str
    claim_path: str
    claim: str
    instant: str

    def run(self, engine: Engine) -> str:
        world = self.world
        engine.step("service begins", EngineLost, TableUnreachable)
        program = running()
        assert program is not None
        world.calls.add(program)
        before = world.last_change
        try:
            with engine.hudi_lock():
                self.require_claim()
                instant = world.active.get(self.instant)
                pending = instant is not None and instant.state != "completed"
                if pending:
                    if world.leased(self.instant, engine.number):
                        raise JavaError(
                            f"{self.service} {self.instant} is running in another process: its heartbeat beats"
                        )
                    world.heartbeats[self.instant] = world.clock(engine.number)
                    world.beating[self.instant] = engine.number
            if pending and instant is not None:
                try:
                    self._merge(engine, instant)
                finally:
                    self._stop_heartbeat(engine)
            engine.step("service done", EngineLost, TableUnreachable)
            if "no flush of what services commit" not in world.flaws:
                # Also what an earlier try has committed, which may have died before it could.
                world.flush(before if pending else 0)
            return self._figures()
        finally:
            world.calls.discard(program)

    def require_claim(self) -> None:
        current = self.world.texts.get(self.claim_path, b"").decode()
        if current != self.claim:
            raise JavaError(f"hudi-ingest claim: this try was taken for dead, and another has taken over: {current}")

    def _stop_heartbeat(self, engine: Engine) -> None:
        if engine.generation == self.world.generations[engine.number]:
            # The file is gone, even if another try has written it meanwhile.
            self.world.heartbeats.pop(self.instant, None)
            if self.world.beating.get(self.instant) == engine.number:
                del self.world.beating[self.instant]

    def _merge(self, engine: Engine, instant: Instant) -> None:
        world = self.world
        if instant.state == "inflight":
            world.reached.add(f"{self.service} redone")
            for path in self._written():
                # Perhaps another try deletes it at the same time.
                world.files.pop(path, None)
                engine.step("file of an earlier try deleted")
        world.will_change(instant.name)
        instant.state = "inflight"
        engine.step("service inflight", TableUnreachable)
        listed = [self._merge_into(engine, name, paths) for name, paths in instant.planned.items()]
        if "no flush of merged files" not in world.flaws:
            world.synced |= {*listed}
        engine.step("merged files flushed", TableUnreachable)
        with engine.hudi_lock():
            self.require_claim()
            engine.step("claim held", TableUnreachable)
            for path in self._written():
                if path not in listed:
                    world.files.pop(path)
            engine.step("metadata table written", TableUnreachable)
            if world.active.get(instant.name) is not instant or instant.state == "completed":
                raise JavaError(f"{instant.name}.{self.service}.inflight does not exist")
            instant.metadata, instant.files = world.carried(), tuple(listed)
            instant.replaced = instant.merges if self.service == "clustering" else ()
            world.complete(instant, engine.number)
            world.reached.add(f"{self.service} completed")

    def _merge_into(self, engine: Engine, name: str, paths: Sequence[str]) -> str:
        world = self.world
        rows: list[Row] = []
        for path in paths:
            if path not in world.files:
                raise JavaError(f"FileNotFoundException: {path}")
            rows += world.files[path]
            engine.step("file to be merged read", TableUnreachable)
        if self.service == "compaction":
            last = keyed.winners(world, rows).values()
            rows = keyed.upserts(world, last)
            world.forgotten.update(row for row in last if row not in rows)
        path = f"{name}_{world.new_name()}_{self.instant}.parquet"
        content = world.files[path] = []
        content += sorted(rows)
        engine.step("rows merged", TableUnreachable)
        # An open stream writes on into a file that was deleted meanwhile; on an object store it appears only now.
        if world.setting.on_s3:
            world.files[path] = content
        engine.step("merged file closed", TableUnreachable)
        return path

    def _written(self) -> list[str]:
        """What all tries have written."""
        return [path for path in self.world.files if path.endswith(f"_{self.instant}.parquet")]

    def _figures(self) -> str:
        instant = (self.world.active | self.world.archived).get(self.instant)
        if instant is None or instant.state != "completed":
            raise JavaError(f"instant {self.instant} is neither pending nor completed: another writer removed it")
        rows = sum(len(self.world.files.get(path, ())) for path in instant.files)
        logs = len([*filter(keyed.is_log, instant.merges)])
        return f"{len(instant.files)},{len(instant.replaced)},{logs},{rows},{10 * logs},{10 * rows}"


class _InMemory(FencedService):
    """A service's client without a JVM."""

    _world: World

    def _meta_client(self) -> Any:
        return None

    def _option(self, value: Any) -> Any:
        return value

    def _java_map(self, entries: Any) -> Any:
        return entries

    def table_columns(self) -> str:
        return ""

    @contextmanager
    def _locking_client(self, *arguments: object) -> Iterator[Any]:  # type: ignore[override]
        engine = in_engine(self._world)
        engine.wait_for_clock()
        yield Client(self._world, engine)

    def _java_object(self, name: str, *arguments: Any) -> Any:
        assert name == "TableService"
        service, place, claim, instant, _ = arguments
        path = place.removeprefix(f"{self._base_path}/")
        return TableServiceInMemory(self._world, service, path, claim, instant)

    def _apply(self, function: Any, value: Any) -> Any:
        return function.run(value.engine)


def _set_up(service: FencedService, world: World) -> None:
    service._world = world  # type: ignore[attr-defined]
    service._pipeline = world.pipeline
    service._base_path = world.pipeline.table.base_path
    service._storage = storage_in(world)
    service._durability = Durability(DiskInMemory(world))
    service._claim = ServiceClaim(service._storage, service.service)
    service._lock = "in memory"
    service._spark = None


class ServicesInMemory(_InMemory, HudiServices):
    """The real HudiServices over a World."""

    def __init__(self, world: World) -> None:
        _set_up(self, world)

    def pending_clusterings(self) -> tuple[PendingClustering, ...]:
        engine = in_engine(self._world)
        engine.step("pending clusterings", EngineLost, TableUnreachable)
        return tuple(
            PendingClustering(each.name, self._world.leased(each.name, engine.number))
            for each in self._world.active.values()
            if each.service == "clustering" and each.state != "completed"
        )


class CompactionInMemory(_InMemory, HudiCompaction):
    """The real HudiCompaction over a World."""

    def __init__(self, world: World) -> None:
        _set_up(self, world)
        self._hudi = SimpleNamespace(common=SimpleNamespace(util=SimpleNamespace(Option=SimpleNamespace(empty=dict))))

    def pending_compactions(self) -> tuple[PlannedCompaction, ...]:
        engine = in_engine(self._world)
        engine.step("pending compactions", EngineLost, TableUnreachable)
        return tuple(
            PlannedCompaction(each.name, len(each.planned), self._world.leased(each.name, engine.number))
            for each in self._world.active.values()
            if each.service == "compaction" and each.state != "completed"
        )

    def _planned_groups(self, meta: Any, instant: str) -> int:
        in_engine(self._world).step("plan read", EngineLost, TableUnreachable)
        planned = self._world.active.get(instant)
        if planned is None:
            raise TableUnreachable(f"compaction {instant} has been rolled back meanwhile, so it has no plan")
        return len(planned.planned)


def services_over(world: World, ledger: Ledger) -> TableServices:
    return TableServices(world.pipeline, ledger, ServicesInMemory(world), CompactionInMemory(world), one_lock=True)


def patches(world: Callable[[], World], clock: type) -> list[tuple[object, str, object]]:
    """What the services' modules see of the newest world (where, name, instead)."""

    def table(pipeline: Pipeline) -> PipelineTable:
        return PipelineTable(pipeline, TimelineInMemory(world()))

    return [
        *((module, "PipelineTable", table) for module in (services_module, job_module)),
        (service_log, "datetime", clock),
        (clients, "Timeline", SimpleNamespace(of=lambda _: TimelineInMemory(world()))),
        (clients, "in_services_pool", lambda spark: nullcontext()),
        (clients, "job_group", lambda *_: nullcontext(Event())),
        (clients, "reported_tasks", lambda *_: nullcontext()),
        (timeline_repair, "datetime", clock),
        (ownership, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world().new_name()))),
    ]
