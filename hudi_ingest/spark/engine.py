"""The engine: a long-lived Spark driver that the ops of all runs attach to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from subprocess import Popen
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.session import ENGINE_OPTIONS, EngineConnection, answers, own_session, start_workers

HANG_SECONDS = 60.0
"""A JVM that does not answer for this long is killed."""
_WATCH_SECONDS = 1.0


def run_engine(home: Home, settings: EngineSettings, report: Callable[[str], None]) -> None:
    """Start the driver, publish its connection in `home.engine_file`, and serve until SIGTERM or SIGINT.

    Raises EnvironmentProblem when another engine already serves this home or no executor can be used, EngineLost when the JVM
    dies or hangs.
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
    home.make()
    session = own_session(settings, ENGINE_OPTIONS, home.spark, report)
    gateway: Any = session.sparkContext._gateway
    parameters = gateway.gateway_parameters
    connection = EngineConnection.of_this_process(parameters.port, parameters.auth_token, settings.executors_python)
    try:
        connection.write(home.engine_file)
        report(f"engine ready: Spark {session.version} on {settings.master}, pid {connection.pid}")
        threading.Thread(target=start_workers, args=(session,), name="start workers", daemon=True).start()
        with ThreadPoolExecutor(1, thread_name_prefix="watch") as executor:
            while not stopping.wait(_WATCH_SECONDS):
                _require_alive(session, gateway.proc, executor)
    finally:
        # Another engine may have taken over by now.
        if EngineConnection.read(home.engine_file) == connection:
            home.engine_file.unlink(missing_ok=True)
        if gateway.proc.poll() is None:
            session.stop()
    report("engine stopped")


def why_ended(code: int) -> str:
    """Say what an exit code of the engine's JVM means, and what to do. Pure."""
    if code == -signal.SIGKILL:
        return (
            "the engine's JVM was killed from outside (SIGKILL): by the system or the container, which had no memory left (`dmesg` says "
            "so), or by a person. A larger --memory makes that likelier: give the machine or the container more memory, or start the "
            "engine with a smaller --memory."
        )
    return (
        f"the engine's JVM exited unexpectedly with code {code}; its log is above. Start the engine again, with a larger --memory if its "
        "log has an OutOfMemoryError."
    )


def _require_alive(session: SparkSession, jvm: Popen[bytes], executor: ThreadPoolExecutor) -> None:
    """Raises EngineLost when the JVM has ended, or hung and was killed."""
    if jvm.poll() is not None:
        raise EngineLost(why_ended(jvm.returncode))
    try:
        stopped = not executor.submit(answers, session).result(HANG_SECONDS)
    except TimeoutError:
        # Kill it for certain: nothing it began may continue after other drivers take over.
        jvm.kill()
        jvm.wait()
        raise EngineLost(
            f"the engine's JVM (pid {jvm.pid}) did not answer for {HANG_SECONDS:g} s and was killed; its log is above. Start "
            "the engine again, with a larger --memory if it was busy collecting garbage."
        ) from None
    if stopped:
        raise EngineLost("the engine's Spark context has stopped; its log is above. Start the engine again.")
