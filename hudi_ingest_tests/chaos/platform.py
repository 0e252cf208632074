"""What a lane's stack stands on: this machine's disk and Spark's local mode, or S3, a Spark cluster and PostgreSQL.

A platform says where tables are and how the oracle reaches them, and brings its own faults.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any

import botocore.session
import psutil
import yaml

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.faults import VARIABLE
from hudi_ingest.local.processes import ProcessRecord, free_port, is_alive, is_marked, stop
from hudi_ingest.spark.jars import cache_root
from hudi_ingest_tests.chaos.cases import CLUSTER
from hudi_ingest_tests.chaos.disk import TablesDisk, tables_disk
from hudi_ingest_tests.chaos.oracle import HOODIE, StoredTable
from hudi_ingest_tests.lab.object_store import ObjectStore, build_versitygw, find_versitygw, start_object_store
from hudi_ingest_tests.lab.spark_servers import SparkCluster, spark_cluster, start_worker
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.s3_proxy import Request, S3Proxy, s3_proxy
from hudi_ingest_tests.support.waiting import wait_for

BUCKET = "lake"
_PROPERTIES = f"{HOODIE}/hoodie.properties"
_BACKUP = f"{_PROPERTIES}.backup"
_WORKERS = 2
_WORKER_CORES = 2
_WORKER_MEMORY = "2g"
_ENGINE: Mapping[str, Any] = {
    # The other cores are for drivers of ops that find no engine.
    "cores": 2,
    "driver_memory": "1g",
    "spark_conf": {"spark.executor.memory": "512m"},
}
_DISK_MEGABYTES = 1000
"""Big files need more than those of a local stack."""
_LOST_PUTS = 12
_STARTING_SECONDS = 60
"""An executor whose folder is younger may have no process yet."""
_FOR_SECONDS = {
    "kill_spark_worker": (3.0, 15.0),
    "s3_busy": (5.0, 25.0),
    "s3_hangs": (5.0, 25.0),
    "s3_slow": (10.0, 25.0),
    "s3_lost_puts": (10.0, 20.0),
}
"""How long a fault lasts, at least and at most."""


class Platform(ABC):
    """`root` has everything of the lane, `orders` those for the fault points."""

    dagster_yaml: str | None = None
    """The Dagster instance's settings; None for those of the embedded stack."""
    reads_by_spark = False
    """Whether the table is also read by Spark when its cases are over."""
    supervised = False
    """Whether a part of the stack that ends by itself is started again, as its deployment would: when Spark's master gives the
    engine's application up, or Dagster's daemon its database."""

    def __init__(self, root: Path, ledger_url: str | None, disk: TablesDisk | None) -> None:
        self.root = root
        self.orders = root / "faults"
        self.ledger_url = ledger_url or f"sqlite:///{root / 'ledger.db'}"
        self.disk = disk

    @abstractmethod
    def place(self, name: str) -> dict[str, Any]:
        """What the pipeline file of that name says of where its table is."""

    @abstractmethod
    def stored(self, name: str) -> StoredTable:
        """The table of that name, past all faults."""

    @abstractmethod
    def let_age(self, name: str, paths: Iterable[str], seconds: float) -> None:
        """Returns when the table's files are older than that."""

    @abstractmethod
    def impossible(self, fault: str) -> str:
        """Why the fault cannot be tried here; "" when it can."""

    @abstractmethod
    def cut_properties(self, name: str) -> None:
        """Leaves hoodie.properties as a crash inside Hudi's update of it does."""

    @abstractmethod
    def cut_power(self) -> bool:
        """What a power cut does to what is stored; True if rows may be gone. All processes of the stack are dead."""

    def restore(self) -> None:  # noqa: B027 - a disk does not die
        """Starts what has died."""

    def open_uploads(self, name: str) -> int:
        """How many multipart uploads to the table are open."""
        return 0

    @contextmanager
    def fault(self, fault: str, process: psutil.Process | None, dice: random.Random) -> Iterator[None]:
        """Strikes with a fault of its own; when the block is left, it is over. `process` is at the point."""
        raise ValueError(f"no such fault: {fault}")
        yield


class LocalPlatform(Platform):
    """Tables on a disk of this machine, which is small, so that it can be full."""

    def place(self, name: str) -> dict[str, Any]:
        return {"base_path": f"${{HUDI_INGEST_TABLES}}/{name}"}

    def stored(self, name: str) -> StoredTable:
        return StoredTable.on_disk(self._folder(name))

    def let_age(self, name: str, paths: Iterable[str], seconds: float) -> None:
        _make_old(self._folder(name), paths)

    def impossible(self, fault: str) -> str:
        if self.disk is None and fault in ("disk_full", "cut_power"):
            return "this user may mount no file system"
        if fault == "cut_power" and self.disk is not None and not self.disk.has_power:
            return "no loop device, so there is no disk whose power could be cut"
        return ""

    def cut_properties(self, name: str) -> None:
        properties = self._folder(name) / _PROPERTIES
        shutil.copy(properties, self._folder(name) / _BACKUP)
        properties.write_bytes(b"")

    def cut_power(self) -> bool:
        assert self.disk is not None
        self.disk.cut_power()
        return True

    def _folder(self, name: str) -> Path:
        return self.root / "tables" / name


@dataclass
class _Worker:
    number: int
    record: ProcessRecord
    marks: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.marks.add(self.record.mark)


class ClusterPlatform(Platform):
    """Tables in an S3 store behind a proxy, executors on two workers of a Spark cluster, ledger and Dagster in PostgreSQL.

    Each of these is a machine of its own: it outlives a power cut of the stack's.
    """

    reads_by_spark = supervised = True

    def __init__(
        self,
        root: Path,
        ledger_url: str,
        disk: TablesDisk | None,
        store: ObjectStore,
        proxy: S3Proxy,
        cluster: SparkCluster,
    ) -> None:
        super().__init__(root, ledger_url, disk)
        self._store = store
        self._proxy = proxy
        self._cluster = cluster
        self._workers = [_Worker(number, record) for number, record in enumerate(cluster.workers)]
        self._client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=store.endpoint,
            region_name=store.region,
            aws_access_key_id=store.access_key,
            aws_secret_access_key=store.secret_key,
        )
        settings = yaml.safe_load(resources.files("hudi_ingest.local").joinpath("dagster.yaml").read_text())
        pooled = {
            "module": "hudi_ingest.orchestration.postgres_storage",
            "class": "PooledPostgresStorage",
            "config": {"postgres_url": ledger_url},
        }
        self.dagster_yaml = yaml.safe_dump({**settings, "storage": {"custom": pooled}})
        (root / "engine.yaml").write_text(yaml.safe_dump({"master": cluster.url, **_ENGINE}))

    def place(self, name: str) -> dict[str, Any]:
        return {"base_path": f"s3a://{BUCKET}/{name}", "storage": self._store.settings(self._proxy.endpoint)}

    def stored(self, name: str) -> StoredTable:
        return StoredTable.in_store(self._store, f"{BUCKET}/{name}")

    def let_age(self, name: str, paths: Iterable[str], seconds: float) -> None:
        if self._store.server == "versitygw":
            _make_old(self._store.home / "data" / BUCKET / name, paths)
            return
        stored, young = self.stored(name), set(paths)

        def are_old() -> bool:
            written = [at for path, at in stored.files().items() if path in young]
            return all((datetime.now(timezone.utc) - at).total_seconds() > seconds for at in written)

        wait_for(are_old, f"files of {name} are older than {seconds:g} s", 2 * seconds, 1.0)

    def impossible(self, fault: str) -> str:
        if fault == "disk_full" and self._store.server != "versitygw":
            return "this S3 store keeps objects in memory"
        return "this user may mount no file system" if fault == "disk_full" and self.disk is None else ""

    def cut_properties(self, name: str) -> None:
        # An object appears whole, so what a crash leaves is none at all.
        place = f"{BUCKET}/{name}"
        self._store.filesystem().copy_file(f"{place}/{_PROPERTIES}", f"{place}/{_BACKUP}")
        self._store.filesystem().delete_file(f"{place}/{_PROPERTIES}")

    def cut_power(self) -> bool:
        return False

    def restore(self) -> None:
        self._drop_jars()
        for worker in self._workers:
            if not is_alive(worker.record):
                worker.record = start_worker(
                    self._cluster.url, self.root / "spark", worker.number, _WORKER_CORES, _WORKER_MEMORY
                )
                worker.marks.add(worker.record.mark)

    def _drop_jars(self) -> None:
        """Deletes what dead executors have copied, 370 MB each; Spark keeps it for a week."""
        old = time.time() - _STARTING_SECONDS
        jars = [jar for jar in (self.root / "spark").glob("*/app-*/*/*.jar") if jar.parent.stat().st_mtime < old]
        used = set()
        for process in (found for worker in self._workers for found in _executors(worker)):
            with suppress(psutil.Error):
                used.add(Path(process.cwd()))
        for jar in jars:
            if jar.parent not in used:
                jar.unlink(missing_ok=True)

    def stop_workers(self) -> None:
        """Ends those that this object has started, and what they have started."""
        stop([worker.record for worker in self._workers])

    def open_uploads(self, name: str) -> int:
        uploads = self._client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return sum(1 for upload in uploads if upload["Key"].startswith(f"{name}/"))

    @contextmanager
    def fault(self, fault: str, process: psutil.Process | None, dice: random.Random) -> Iterator[None]:
        with ExitStack() as lasting:
            if fault == "kill_executor":
                self._kill_executor(process, dice)
            elif fault == "kill_spark_worker":
                self._kill_worker(process, dice)
            elif fault == "restart_postgres":
                postgres.restart(self.ledger_url)
            elif fault == "s3_busy":
                lasting.enter_context(self._proxy.busy())
            elif fault == "s3_hangs":
                lasting.enter_context(self._proxy.hanging())
            elif fault == "s3_slow":
                lasting.enter_context(self._proxy.slow(dice.uniform(0.2, 1.0)))
            elif fault == "s3_lost_puts":
                lasting.enter_context(self._proxy.silent(_first_put_of_each_key(), _LOST_PUTS))
            else:
                raise ValueError(f"no such fault: {fault}")
            yield
            if fault in _FOR_SECONDS:
                time.sleep(dice.uniform(*_FOR_SECONDS[fault]))  # how long it lasts is the fault, nothing waits for it

    def _kill_executor(self, process: psutil.Process | None, dice: random.Random) -> None:
        """The one that has forked the process; any if the process is not an executor's."""
        executors = [found for worker in self._workers for found in _executors(worker)]
        if not executors:
            return
        parents = set(process.parents()) if process is not None else set()
        victim = next((found for found in executors if found in parents), None) or dice.choice(executors)
        _end([victim])

    def _kill_worker(self, process: psutil.Process | None, dice: random.Random) -> None:
        """Its whole host dies: the worker, its executors, their Python workers."""
        parents = {parent.pid for parent in process.parents()} if process is not None else set()
        victim = next((worker for worker in self._workers if worker.record.pid in parents), None)
        _end(_marked((victim or dice.choice(self._workers)).marks))


def _make_old(folder: Path, paths: Iterable[str]) -> None:
    for path in paths:
        # A heartbeat may end meanwhile.
        with suppress(FileNotFoundError):
            os.utime(folder / path, (0, 0))


def _executors(worker: _Worker) -> list[psutil.Process]:
    found = []
    for process in _marked(worker.marks):
        with suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
    return found


def _marked(marks: set[str]) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if is_marked(process, marks)]


def _end(victims: list[psutil.Process]) -> None:
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    psutil.wait_procs(victims, timeout=30)


def _first_put_of_each_key() -> Callable[[Request], bool]:
    seen: set[str] = set()

    def choose(request: Request) -> bool:
        if request.method != "PUT" or request.key in seen:
            return False
        seen.add(request.key)
        return True

    return choose


@contextmanager
def platform(on: str, root: Path, lane: int, say: Callable[[str], None]) -> Iterator[Platform]:
    """Raises EnvironmentProblem when the machine lacks something. The disk stays mounted; the caller removes it."""
    with ExitStack() as started:
        started.enter_context(variables(root / "faults"))
        if on == CLUSTER:
            yield started.enter_context(_cluster(root, say))
            return
        # Every other lane has its ledger in PostgreSQL, where there is one.
        url = started.enter_context(postgres.running() if lane % 2 else nullcontext())
        disk = tables_disk(root, root / "tables")
        if disk is not None:
            started.callback(disk.remove)
        yield LocalPlatform(root, url, disk)


@contextmanager
def _cluster(root: Path, say: Callable[[str], None]) -> Iterator[ClusterPlatform]:
    with ExitStack() as started:
        url = started.enter_context(postgres.running())
        if url is None:
            raise EnvironmentProblem("PostgreSQL, which has ledger and Dagster of these stacks, is not installed")
        programs = cache_root(os.environ) / "bin"
        program = find_versitygw(programs, os.environ) or build_versitygw(programs, say)
        home = root / "store"
        disk = tables_disk(root, home / "data", _DISK_MEGABYTES) if program is not None else None
        if disk is not None:
            started.callback(disk.remove)
        store = start_object_store(home, free_port(), say, program=program)
        started.callback(stop, [store.record])
        store.make_bucket(BUCKET)
        proxy = started.enter_context(s3_proxy(store.port))
        folder = root / "spark"
        cluster = started.enter_context(spark_cluster(folder, _WORKERS, _WORKER_CORES, _WORKER_MEMORY))
        found = ClusterPlatform(root, url, disk, store, proxy, cluster)
        started.callback(found.stop_workers)
        yield found


@contextmanager
def variables(orders: Path) -> Iterator[None]:
    """For all that is started inside: where orders for fault points are, and that JVMs are killed before a better compiler pays."""
    variables = {VARIABLE: str(orders), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
