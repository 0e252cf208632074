"""Dagster's code server for the pipeline files, which loads them anew as soon as one of them has changed.

Dagster's daemon would otherwise start a new server each minute, to see whether code has changed: a tenth of a core, for ever.
`python -m hudi_ingest.orchestration.code_server PORT` serves on 127.0.0.1 until it is ended.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path

from dagster._cli.code_server import code_server_cli
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from hudi_ingest.home import Home

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_LOOK_SECONDS = 1.0
_RELOAD_SECONDS = 120
_MODULE = "hudi_ingest.orchestration.definitions"

Facts = tuple[tuple[str, int, int], ...]


def pipeline_files(folder: Path) -> Facts:
    """Name, time of change in ns and size in bytes of each file that may be a pipeline; () when there is no such folder."""
    found = []
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        found.append((file.name, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _watch(folder: Path, port: int) -> None:
    """Loads the pipelines anew when their files have changed and have been as they are for a second."""
    loaded = before = pipeline_files(folder)
    while True:
        time.sleep(_LOOK_SECONDS)
        now = pipeline_files(folder)
        if now == before and now != loaded:
            try:
                DagsterGrpcClient(host=_HOST, port=port).reload_code(timeout=_RELOAD_SECONDS)
            except DagsterUserCodeUnreachableError as problem:
                # It is still starting, or ends; the next look asks again.
                _log.warning("The changed pipelines could not be loaded yet: %s", problem)
                continue
            loaded = now
        before = now


def main(port: int) -> None:
    """Serves until the process is ended."""
    folder = Home.from_environment().pipelines
    threading.Thread(target=_watch, args=(folder, port), name="pipeline-files", daemon=True).start()
    options = ["--host", _HOST, "--port", str(port), "--module-name", _MODULE]
    code_server_cli.main(["start", *options, "--use-python-environment-entry-point", "--log-level", "warning"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
