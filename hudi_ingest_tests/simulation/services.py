"""Table services in memory: the product's own code down to its calls to Hudi, and Hudi's clustering and cleaning over a World.

Hudi does what it was seen to do: a plan is made inside its lock and stays pending until somebody executes it; another try first
deletes what the one before it has written; the commit deletes every file of the instant that it does not list, and publishes inside the
lock. What TableService.java adds is here too: the claim is asked for before anything is changed, and inside the lock before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JJavaError

from hudi_ingest.exceptions import EngineLost, TableUnreachable
from hudi_ingest.hudi.services import table_services as clients
from hudi_ingest.hudi.services.table_services import FencedService, HudiServices, PendingClustering
from hudi_ingest.hudi.timeline import ownership
from hudi_ingest.hudi.timeline.ownership import ServiceClaim
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep import service_log
from hudi_ingest.operations.upkeep import table_services as services_module
from hudi_ingest.operations.upkeep.table_services import TableServices
from hudi_ingest_tests.simulation.programs import running
from hudi_ingest_tests.simulation.world import (
    OUTSIDE,
    DurabilityInMemory,
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


EXECUTING = ("clustering inflight", "file to be merged read", "merged file closed", "merged file flushed")
NARROW = (
    *("pending clusterings", "clustering is planned", "clustering requested", "service begins", *EXECUTING),
    *("expired instants listed", "file cleaned"),
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
            instant.service, instant.planned = "clustering", tuple(small[:MOST_FILES])
            engine.step("clustering requested", EngineLost, TableUnreachable)
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
            retained = [name for name in commits[:-RETAINED] if name < pending]
            live = {*world.live()}
            gone = [
                path
                for each in world.completed()
                if each.name in retained
                for path in each.replaced
                if path in world.files and path not in live
            ]
            engine.step("cleaning is planned", EngineLost, TableUnreachable)
        for path in gone:
            if path in world.files:
                world.cleaned[path] = world.files.pop(path)
                world.reached.add("cleaned")
            engine.step("file cleaned", EngineLost, TableUnreachable)
        return SimpleNamespace(getTotalFilesDeleted=lambda: len(gone))


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
        try:
            with engine.hudi_lock():
                self.require_claim()
                instant = world.active.get(self.instant)
                pending = instant is not None and instant.state != "completed"
                if pending:
                    if world.leased(self.instant, engine.number):
                        raise JavaError(f"clustering {self.instant} is running in another process: its heartbeat beats")
                    world.heartbeats[self.instant] = world.clock(engine.number)
                    world.beating[self.instant] = engine.number
            if pending and instant is not None:
                try:
                    self._cluster(engine, instant)
                finally:
                    self._stop_heartbeat(engine)
            engine.step("service done", EngineLost, TableUnreachable)
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

    def _cluster(self, engine: Engine, instant: Instant) -> None:
        world = self.world
        if instant.state == "inflight":
            world.reached.add("clustering redone")
            for path in [path for path in world.files if path.endswith(f"-{instant.name}.clustered")]:
                world.files.pop(path)
                engine.step("file of an earlier try deleted")
        instant.state = "inflight"
        engine.step("clustering inflight", TableUnreachable)
        rows: list[Row] = []
        for path in instant.planned:
            if path not in world.files:
                raise JavaError(f"FileNotFoundException: {path}")
            rows += world.files[path]
            engine.step("file to be merged read", TableUnreachable)
        rows.sort()
        path = f"{world.new_name()}-{instant.name}.clustered"
        content = world.files[path] = []
        for row in rows:
            content.append(row)
        engine.step("rows merged", TableUnreachable)
        # An open stream writes on into a file that was deleted meanwhile; on an object store it appears only now.
        if world.setting.on_s3:
            world.files[path] = content
        engine.step("merged file closed", TableUnreachable)
        world.synced.add(path)
        engine.step("merged file flushed", TableUnreachable)
        with engine.hudi_lock():
            self.require_claim()
            engine.step("claim held", TableUnreachable)
            for other in [other for other in world.files if other.endswith(f"-{instant.name}.clustered")]:
                if other != path:
                    world.files.pop(other)
            engine.step("metadata table written", TableUnreachable)
            if world.active.get(instant.name) is not instant or instant.state == "completed":
                raise JavaError(f"{instant.name}.clustering.inflight does not exist")
            instant.metadata, instant.files, instant.replaced = world.carried(), (path,), instant.planned
            world.complete(instant, engine.number)
            world.reached.add("clustering completed")

    def _figures(self) -> str:
        instant = (self.world.active | self.world.archived).get(self.instant)
        if instant is None or instant.state != "completed":
            raise JavaError(f"instant {self.instant} is neither pending nor completed: another writer removed it")
        rows = sum(len(self.world.files.get(path, ())) for path in instant.files)
        return f"{len(instant.files)},{len(instant.replaced)},0,{rows},0,{10 * rows}"


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
    service._durability = DurabilityInMemory(world)
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


def services_over(world: World, ledger: Ledger) -> TableServices:
    return TableServices(world.pipeline, ledger, ServicesInMemory(world), None, one_lock=True)  # type: ignore[arg-type]


def patches(world: Callable[[], World], clock: type) -> list[tuple[object, str, object]]:
    """What the services' modules see of the newest world (where, name, instead)."""
    return [
        (services_module, "PipelineTable", lambda pipeline: PipelineTable(pipeline, TimelineInMemory(world()))),
        (service_log, "datetime", clock),
        (clients, "Timeline", lambda *_: TimelineInMemory(world())),
        (clients, "in_services_pool", lambda spark: nullcontext()),
        (ownership, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=world().new_name()))),
    ]
