"""The engine: a long-lived Spark driver that the ops of all runs attach to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import psutil

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem
from hudi_ingest.home import Home
from hudi_ingest.spark import EngineConnection, answers, own_session

_WATCH_SECONDS = 1.0


def run_engine(home: Home, *, master: str, driver_memory: str, report: Callable[[str], None]) -> None:
    """Starts the driver, publishes how to reach it in `home.engine_file`, and serves until SIGTERM or SIGINT.

    Raises EnvironmentProblem when another engine serves this home, EngineLost when the JVM ends by itself.
    """
    running = EngineConnection.read(home.engine_file)
    if running is not None:
        raise EnvironmentProblem(
            f"an engine already serves {home.root} (pid {running.pid}); stop it with `hudi-ingest down`, or set "
            "HUDI_INGEST_HOME to another folder."
        )
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    home.root.mkdir(parents=True, exist_ok=True)
    report("starting Spark")
    session = own_session(master, driver_memory)
    gateway: Any = session.sparkContext._gateway
    connection = EngineConnection(
        port=gateway.gateway_parameters.port,
        secret=gateway.gateway_parameters.auth_token,
        pid=os.getpid(),
        created=psutil.Process().create_time(),
    )
    try:
        connection.write(home.engine_file)
        report(f"engine ready: Spark {session.version} on {master}, pid {connection.pid}")
        while not stopping.wait(_WATCH_SECONDS):
            if gateway.proc.poll() is not None:
                raise EngineLost(
                    f"the engine's JVM ended by itself with code {gateway.proc.returncode}; its log is above. Start the "
                    "engine again, with more --memory if it ran out of it."
                )
            if not answers(session):
                raise EngineLost("the engine's Spark context has stopped; its log is above. Start the engine again.")
    finally:
        home.engine_file.unlink(missing_ok=True)
        if gateway.proc.poll() is None:
            session.stop()
    report("engine stopped")
