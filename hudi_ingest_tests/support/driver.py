"""A process with a Spark driver of its own, which publishes instants as it is told: `Driver` starts it and tells it."""

from __future__ import annotations

import os
import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from hudi_ingest.exceptions import IngestError
from hudi_ingest.hudi import write_client as jvm
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.local.processes import ProcessRecord, start, wait_until
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import own_session

_SECONDS = 240


@dataclass(frozen=True)
class Driver:
    """A running driver process; `folder` is where it and its orders are."""

    folder: Path
    record: ProcessRecord

    @classmethod
    def start(cls, folder: Path) -> Driver:
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", "hudi_ingest_tests.support.driver", str(folder)]
        return cls(folder, start("driver", command, log=folder / "driver.log", env=os.environ))

    def publish(
        self, order: str, pipeline: Pipeline, publication: Publication, guard_folder: Path | None = None
    ) -> None:
        """Lets the process call HudiWriter.commit, and returns at once. `guard_folder` has other sources of the guard."""
        path = self.folder / f"{order}.order"
        path.with_suffix(".partial").write_bytes(pickle.dumps((pipeline, publication, guard_folder)))
        path.with_suffix(".partial").rename(path)

    def kill(self) -> None:
        """SIGKILL to the JVM and to the process, at once."""
        process = psutil.Process(self.record.pid)
        for each in [*process.children(recursive=True), process]:
            each.kill()

    def outcome(self, order: str) -> str:
        """What came of it: "published", or the error's class and text."""
        path = self.folder / f"{order}.outcome"
        wait_until(path.exists, what=f"{path} is there", timeout_seconds=_SECONDS, records_to_watch=[self.record])
        return path.read_text()

    def wait_until_ready(self) -> None:
        path = self.folder / "ready"
        wait_until(path.exists, what=f"{path} is there", timeout_seconds=_SECONDS, records_to_watch=[self.record])


def _serve(folder: Path) -> None:
    session = own_session(EngineSettings(master="local[1]", driver_memory="512m"))
    (folder / "ready").touch()
    parent = os.getppid()
    while os.getppid() == parent:
        for path in folder.glob("*.order"):
            pipeline, publication, guard_folder = pickle.loads(path.read_bytes())
            path.unlink()
            if guard_folder is not None:
                jvm.resources.files = lambda package, folder=guard_folder: folder  # type: ignore
            try:
                jvm.HudiWriter(session, pipeline).commit(publication)
                outcome = "published"
            except IngestError as error:
                outcome = f"{type(error).__name__}: {error}"
            partial = path.with_suffix(".partial")
            partial.write_text(outcome)
            partial.rename(path.with_suffix(".outcome"))
        time.sleep(0.01)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
