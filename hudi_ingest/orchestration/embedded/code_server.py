"""Dagster's code server for one module, which reloads it as soon as its version has changed.

Dagster's daemon would otherwise start a new server each minute to see whether code has changed, which costs a tenth of a core
all the time. Dagster's own code server forwards all requests to a child that has loaded the code, and does not notice when that
child dies; this one starts another.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import psutil
from dagster import DagsterError
from dagster._cli.code_server import code_server_cli
from dagster._grpc.client import DagsterGrpcClient

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_RELOAD_SECONDS = 600
"""Hundreds of pipelines take a minute to load on a busy machine."""


def serve(
    address: Path | tuple[str, int], module: str, location: str, version: Callable[[], object], log_level: str
) -> None:
    """Serve the code location until the process is stopped. `address`: a Unix socket, or host and port; `version`: differs once the module
    has other definitions."""
    if isinstance(address, Path):
        address.unlink(missing_ok=True)
        client, listen = DagsterGrpcClient(socket=str(address)), ["--socket", str(address)]
    else:
        host, port = address
        client, listen = DagsterGrpcClient(host=host, port=port), ["--host", host, "--port", str(port)]
    ends = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        ends.set()
        signal.default_int_handler(number, frame)

    # Dagster takes the handler of SIGINT for SIGTERM, too.
    signal.signal(signal.SIGINT, interrupt)
    # Its logger prints by itself.
    logging.getLogger("dagster").propagate = False
    threading.Thread(target=_watch, args=(version, client, ends), name="code", daemon=True).start()
    options = ["--module-name", module, "--location-name", location, "--use-python-environment-entry-point"]
    code_server_cli.main(["start", *listen, *options, "--log-level", log_level])


def _watch(version: Callable[[], object], client: DagsterGrpcClient, ends: threading.Event) -> None:
    """Reload the code when its version has changed and then been stable for a second, and when the child that had loaded it has died,
    until this process `ends` it."""
    loaded = before = version()
    child, had_child = _Child(), False
    while not ends.wait(_LOOK_SECONDS):
        now = version()
        has_child = child.is_alive()
        if ends.is_set():
            return
        if had_child and not has_child:
            _log.warning("The process that had loaded the pipelines has died; starting another")
        if (now == before and now != loaded) or (had_child and not has_child):
            try:
                client.reload_code(timeout=_RELOAD_SECONDS)
                loaded = now
            except DagsterError as problem:
                # It is still starting, or is stopping, or has replaced a dead child, which could not be ended. If
                # nothing was loaded, the next round tries again.
                _log.info("Dagster did not confirm that it has loaded the pipelines: %s", problem)
        had_child = had_child or has_child
        before = now


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
