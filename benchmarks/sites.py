"""Where tables are and what drivers run on: this machine alone, or an S3 store and a Spark cluster on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest_tests.lab.object_store import ObjectStore, build_versitygw, find_versitygw, start_object_store
from hudi_ingest_tests.lab.spark_servers import spark_cluster

LOCAL, CLUSTER = SITES = ("local", "cluster")
BUCKET = "lake"
_WORKERS = 2
_WORKER_MEMORY = "4g"
_EXECUTORS: Mapping[str, Any] = {
    # An executor on each worker for each of the two drivers, as many cores for each driver as this machine has for all.
    "cores": _WORKERS,
    "spark_conf": {"spark.executor.memory": "1500m"},
}


@dataclass(frozen=True, slots=True)
class Site:
    """`engine`: settings of drivers, as in engine.yaml; `store`: where tables are, if not on the local disk; `pids`: processes
    that work for all drivers."""

    engine: Mapping[str, Any]
    store: ObjectStore | None = None
    pids: tuple[int, ...] = ()

    @property
    def storage(self) -> Mapping[str, str] | None:
        """`table.storage` of pipeline files."""
        return self.store.settings() if self.store is not None else None

    def base_path(self, folder: Path) -> str:
        """Return the base path of the only table that belongs to the folder."""
        return str(folder / "table") if self.store is None else f"s3a://{BUCKET}/{folder.name}"

    def remove(self, folder: Path) -> None:
        """Delete the folder with its table."""
        shutil.rmtree(folder, ignore_errors=True)
        if self.store is not None:
            # File by file: versitygw refuses to delete folders together with what is in them.
            files = self.store.filesystem()
            for info in files.get_file_info(pafs.FileSelector(f"{BUCKET}/{folder.name}", recursive=True)):
                if info.type == pafs.FileType.File:
                    files.delete_file(info.path)


@contextmanager
def started_site(on: str, engine: Mapping[str, Any], home: Home, report: Callable[[str], None]) -> Iterator[Site]:
    """Start what the site needs, and stop it afterwards. `engine`: settings that no site changes. Raises EnvironmentProblem."""
    if on == LOCAL:
        yield Site(engine)
        return
    with ExitStack() as running:
        tools = home.root.parent / "tools"
        program = find_versitygw(tools, os.environ) or build_versitygw(tools, report)
        store = start_object_store(home.root / "store", free_port(), report, program=program)
        running.callback(stop, [store.record])
        store.make_bucket(BUCKET)
        report(f"starting a Spark master and {_WORKERS} workers")
        cluster = running.enter_context(
            spark_cluster(home.root / "spark-cluster", _WORKERS, cores=2, memory=_WORKER_MEMORY)
        )
        # The workers' hosts are this one, so nothing needs to be copied to them.
        jars = {"executor_jars": str(spark_jars(report)[0].parent)}
        yield Site(
            {**engine, **_EXECUTORS, **jars, "master": cluster.url},
            store,
            tuple(worker.pid for worker in cluster.workers),
        )
