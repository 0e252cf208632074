"""Dagster's code server for the pipeline files, which loads them anew as soon as one of them has changed.

Dagster's daemon would otherwise start a new server each minute, to see whether code has changed: a tenth of a core, for ever.
`python -m hudi_ingest.orchestration.code_server PORT` serves on 127.0.0.1 until it is ended.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

from dagster._cli.code_server import code_server_cli
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from hudi_ingest.home import Home
from hudi_ingest.pipeline_file import folder_version

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_LOOK_SECONDS = 1.0
_RELOAD_SECONDS = 120
_MODULE = "hudi_ingest.orchestration.definitions"


def _watch(home: Home, port: int) -> None:
    """Loads the pipelines anew when their files have changed and have been as they are for a second."""
    loaded = before = folder_version(home.pipelines)
    while True:
        time.sleep(_LOOK_SECONDS)
        now = folder_version(home.pipelines)
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
    threading.Thread(target=_watch, args=(Home.from_environment(), port), name="pipeline-files", daemon=True).start()
    options = ["--host", _HOST, "--port", str(port), "--module-name", _MODULE]
    code_server_cli.main(["start", *options, "--use-python-environment-entry-point", "--log-level", "warning"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
