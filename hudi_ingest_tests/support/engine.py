"""A Spark engine for commands: in a process of its own, as `hudi-ingest engine` starts it, or the tests' own Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import ProcessRecord, start, stop, wait_until
from hudi_ingest.spark.session import EngineConnection, current_session
from hudi_ingest_tests.support.command_line import COMMAND, environment

_READY_SECONDS = 300


@contextmanager
def running_engine(home: Home, command: tuple[str, ...] = (*COMMAND, "engine")) -> Iterator[ProcessRecord]:
    """The home's engine, ready, and gone afterwards; its output is in `engine.log` of the home."""
    record = start("engine", command, log=home.root / "engine.log", env=environment(home))
    try:
        wait_until(
            lambda: EngineConnection.read(home.engine_file),
            what="the engine is ready",
            timeout_seconds=_READY_SECONDS,
            records_to_watch=[record],
        )
        yield record
    finally:
        stop([record])


@contextmanager
def own_spark_serves(home: Home) -> Iterator[None]:
    """Commands of the home attach to this process's Spark: where only the command's process matters, a JVM of its own costs far more
    CPU than its work."""
    gateway: Any = current_session(home).sparkContext._gateway
    parameters = gateway.gateway_parameters
    EngineConnection.of_this_process(parameters.port, parameters.auth_token).write(home.engine_file)
    try:
        yield
    finally:
        home.engine_file.unlink()
