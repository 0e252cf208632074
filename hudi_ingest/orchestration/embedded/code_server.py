"""Dagster's code server for the pipeline files. It reloads them as soon as one of them has changed, and can fork the runs that Dagster's
own launcher asks it for.

Dagster's daemon would otherwise start a new server each minute to see whether code has changed, which costs a tenth of a core
all the time. Dagster's own code server forwards all requests to a child that has loaded the code, and does not notice when that
child dies; this one starts another. It also keeps the logs of the embedded stack short.

`python -m hudi_ingest.orchestration.embedded.code_server SOCKET` serves on a Unix socket until it is stopped. Anyone who can connect to it
can start runs, so only this user may have access to its folder.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import dagster._grpc.server
import psutil
from dagster._cli.code_server import code_server_cli
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from hudi_ingest.home.folder import Home, cut_back, file_version, stack_logs
from hudi_ingest.pipeline.folder import folder_version

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_RELOAD_SECONDS = 600
"""Hundreds of pipelines take a minute to load on a busy machine."""
_LOGS_SECONDS = 60.0
_MODULE = "hudi_ingest.orchestration.definitions"
LOCATION = "hudi_ingest"
_FORKS_RUNS = "from hudi_ingest.orchestration.embedded.forked_runs import serve; serve()"


def _watch(home: Home, client: DagsterGrpcClient, ends: threading.Event) -> None:
    """Reload the pipelines when their files have changed and then been stable for a second, and when the child that had
    loaded them has died, until this process `ends` it."""
    loaded = before = _version(home)
    child, had_child = _Child(), False
    while not ends.wait(_LOOK_SECONDS):
        now = _version(home)
        has_child = child.is_alive()
        if ends.is_set():
            return
        if had_child and not has_child:
            _log.warning("The process that had loaded the pipelines has died; starting another")
        if (now == before and now != loaded) or (had_child and not has_child):
            try:
                client.reload_code(timeout=_RELOAD_SECONDS)
                loaded = now
            except DagsterUserCodeUnreachableError as problem:
                # It is still starting, or is stopping, or has replaced a dead child, which could not be ended. If
                # nothing was loaded, the next round tries again.
                _log.info("Dagster did not confirm that it has loaded the pipelines: %s", problem)
        had_child = had_child or has_child
        before = now


def _version(home: Home) -> tuple[object, ...]:
    """Differs once a settings file has changed or a template has other topics."""
    files = (home.topics_file, home.housekeeping_settings_file, home.alerts_settings_file)
    return folder_version(home.pipelines), *map(file_version, files)


class _Child:
    """The process that has loaded the code."""

    def __init__(self) -> None:
        self._known: psutil.Process | None = None

    def is_alive(self) -> bool:
        # To find it, psutil reads about every process of the machine, so it is not looked for while it lives.
        if self._known is None or not _is_running(self._known):
            self._known = next(filter(_is_running, psutil.Process().children()), None)
        return self._known is not None


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _forking_child(executable_path: str) -> Sequence[str]:
    return [executable_path, "-c", _FORKS_RUNS]


def _keep_logs_short(home: Home) -> None:
    while True:
        time.sleep(_LOGS_SECONDS)
        try:
            cut_back(stack_logs(home))
        except OSError as problem:
            _log.warning("Could not cut back the logs of %s: %s. Free space on its disk.", home.root, problem)


def serve_at_socket(socket: Path, *, forks_runs: bool = False) -> None:
    """Serve until the process is stopped. `forks_runs`: for an instance with Dagster's own launcher."""
    socket.unlink(missing_ok=True)
    client = DagsterGrpcClient(socket=str(socket))
    _serve(client, ["--socket", str(socket)], forks_runs=forks_runs)


def serve_at_port(host: str, port: int) -> None:
    """Serve until the process is stopped, for an instance with Dagster's own launcher."""
    client = DagsterGrpcClient(host=host, port=port)
    _serve(client, ["--host", host, "--port", str(port)], forks_runs=True)


def _serve(client: DagsterGrpcClient, listen: Sequence[str], *, forks_runs: bool) -> None:
    home, ends = Home.from_environment(), threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        ends.set()
        signal.default_int_handler(number, frame)

    # Dagster takes the handler of SIGINT for SIGTERM, too.
    signal.signal(signal.SIGINT, interrupt)
    # Its logger prints by itself.
    logging.getLogger("dagster").propagate = False
    threading.Thread(target=_watch, args=(home, client, ends), name="pipeline-files", daemon=True).start()
    threading.Thread(target=_keep_logs_short, args=(home,), name="logs", daemon=True).start()
    options = ["--module-name", _MODULE, "--location-name", LOCATION, "--use-python-environment-entry-point"]
    if forks_runs:
        # A constant of Dagster's: the command with which its code server starts the child that loads the code.
        dagster._grpc.server.get_python_environment_entry_point = _forking_child  # type: ignore[attr-defined]
    # The embedded stack's would only fill its log.
    log_level = "info" if forks_runs else "warning"
    code_server_cli.main(["start", *listen, *options, "--log-level", log_level])


if __name__ == "__main__":
    serve_at_socket(Path(sys.argv[1]))
