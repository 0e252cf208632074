"""Spark sessions: attached to the engine when one runs, else one of our own."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem
from hudi_ingest.home.folder import Home, write_private
from hudi_ingest.home.process_identity import running_process
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest.spark.java import find_java, java_home

_logger = logging.getLogger(__name__)
_CANCEL_SECONDS = 0.2
_ANSWER_SECONDS = 10.0
_GONE = (Py4JError, ConnectionError)
"""What a call into a driver raises that is no more: it has nothing left to cancel or to reset."""
_QUIET_SIZING = "-Djdk.attach.allowAttachSelf=true -Djol.skipHotspotSAAttach=true"
"""Hudi measures objects' sizes with a library that otherwise warns about what it may not attach to."""


@dataclass(frozen=True, slots=True)
class EngineConnection:
    """How to reach a running engine: its py4j port on this machine, the secret, and the process that serves there, by its
    pid and its start in seconds since the machine's boot."""

    port: int
    secret: str
    pid: int
    started: float

    def write(self, path: Path) -> None:
        """Publishes the connection to this user only, at once or not at all."""
        write_private(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> EngineConnection | None:
        """The connection of an engine that is alive, else None.

        Raises EnvironmentProblem when others could have written the file or can read it: it names a program that runs
        whatever it is told, and that tells this process what to run.
        """
        try:
            with path.open() as file:
                facts = os.fstat(file.fileno())
                if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                    raise EnvironmentProblem(
                        f"{path} is not private: it belongs to user {facts.st_uid} with mode "
                        f"{stat.filemode(facts.st_mode)}, and must be this user's ({os.geteuid()}) and nobody else's. "
                        "Stop the engine, delete the file and start the engine again, as the user who runs the ops."
                    )
                found = cls(**json.load(file))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return found if found.is_alive() else None

    def is_alive(self) -> bool:
        return running_process(self.pid, self.started) is not None

    def serves(self, session: SparkSession) -> bool:
        """Whether the session is one of this engine's driver."""
        gateway: Any = session.sparkContext._gateway
        return bool(gateway.gateway_parameters.port == self.port)

    def __repr__(self) -> str:
        return f"EngineConnection(port={self.port}, secret='****', pid={self.pid})"


def session_options(jars: Sequence[Path], master: str, driver_memory: str) -> dict[str, str]:
    """Settings that a session of ours needs; pure."""
    return {
        "spark.master": master,
        "spark.app.name": "hudi-ingest",
        "spark.driver.memory": driver_memory,
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Dates before 1582 and times before 1900 are what they are, in files of any writer of ours; Spark's default is to refuse
        # them, which would stop clustering.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError {_QUIET_SIZING}",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Spark keeps a batch's Kafka consumers for the next one, which never takes them: its consumer group is another.
        "spark.kafka.consumer.cache.capacity": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]key|jaas|keystore[.]key",
        **(_LOCAL_OPTIONS if is_local(master) else {}),
    }


_LOCAL_OPTIONS = {
    # The driver's RPC port takes commands and serialized objects. Spark makes the secret itself, and keeps it in the JVM.
    "spark.authenticate": "true",
}


def is_local(master: str) -> bool:
    """Whether driver and executors of this Spark master are one JVM. On a cluster its own settings say who may join."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def own_session(
    master: str = "local[*]",
    driver_memory: str = "2g",
    more: Mapping[str, str] | None = None,
    local_dir: Path | None = None,
) -> SparkSession:
    """A session in a JVM of this process's own; `more` settings win over ours. With a local master, what it shuffles, which is
    rows, is below `local_dir`; Spark's own choice, /tmp, lets every user read it.

    Raises EnvironmentProblem when Java or the jars are missing, EngineLost when the JVM ends while it is starting.
    """
    prepare_environment()
    more = more or {}
    master = more.get("spark.master", master)
    options = session_options(spark_jars(_logger.info), master, driver_memory)
    if local_dir is not None and is_local(master):
        options["spark.local.dir"] = str(local_dir)
    builder = SparkSession.builder
    for key, value in {**options, **more}.items():
        builder = builder.config(key, value)
    try:
        with _stdout_is_stderr():
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except (Py4JError, ConnectionError, PySparkRuntimeError) as error:
        if not _has_ended(error):
            raise
        # The next try must not find what is left of this one.
        _forget_dead_context()
        raise EngineLost(
            f"Spark's JVM ended while it was starting ({error}). What it printed is above; if that is nothing, a person or the "
            f"system killed it, often for want of memory (see `dmesg`): it may take {driver_memory} and some. Free memory or "
            "start the engine by `hudi-ingest up`, then try again."
        ) from error
    return session


def _has_ended(error: Exception) -> bool:
    """Whether the error says that the JVM is gone, and not that it refused something."""
    if isinstance(error, PySparkRuntimeError):
        return bool(error.getErrorClass() == "JAVA_GATEWAY_EXITED")
    return not isinstance(error, Py4JJavaError)


@contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """A JVM started inside prints to stderr, so that it cannot mix its warnings into what a command prints as facts."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def prepare_environment() -> None:
    """What pyspark reads from the environment: Java, and the Python that runs our functions in the executors."""
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def attached_session(connection: EngineConnection) -> SparkSession:
    """A session of the engine's driver. It must never be stopped from here: it is everybody's.

    Raises EngineLost, also when the engine hangs or refuses the secret.
    """
    prepare_environment()
    _require_answer(connection)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(connection.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = connection.secret
    try:
        gateway: Any = launch_gateway()
        existing = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        context: Any = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(existing)
        with _interrupt_handler_kept():
            return SparkSession(SparkContext(gateway=gateway, jsc=context))
    except (Py4JError, ConnectionError, OSError) as error:
        raise _no_answer(connection, error) from error
    finally:
        os.environ.pop("PYSPARK_GATEWAY_PORT", None)
        os.environ.pop("PYSPARK_GATEWAY_SECRET", None)


def _require_answer(connection: EngineConnection) -> None:
    """py4j would wait for ever for a driver that hangs, so its greeting is spoken here first, with a time limit."""
    try:
        with socket.create_connection(("127.0.0.1", connection.port), _ANSWER_SECONDS) as found:
            found.settimeout(_ANSWER_SECONDS)
            found.sendall(f"A\n{connection.secret}\ne\n".encode())
            answer = found.makefile("rb").readline()
    except OSError as error:
        raise _no_answer(connection, error) from error
    if not answer.startswith(b"!y"):
        raise _no_answer(connection, "it refused the secret of its connection file")


def _no_answer(connection: EngineConnection, why: object) -> EngineLost:
    return EngineLost(
        f"the engine (pid {connection.pid}, port {connection.port}) did not answer: {why}. "
        "Start it again with `hudi-ingest up` or `hudi-ingest engine`; without it each op starts a Spark of its own."
    )


@contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """A SparkContext made inside does not keep its handler of SIGINT, which would cancel the jobs of all the engine's users."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


def current_session(home: Home, more: Mapping[str, str] | None = None) -> SparkSession:
    """This process's session if it has a live one, else the engine's, else a new one of its own with `more` settings."""
    # At DEBUG py4j logs every command with its values, and the Kafka login is one of them.
    py4j = logging.getLogger("py4j")
    py4j.setLevel(max(logging.INFO, py4j.getEffectiveLevel()))
    known = SparkSession._instantiatedSession
    if known is not None and answers(known):
        _warn_of_another_driver(known, home)
        return known
    _forget_dead_context()
    connection = EngineConnection.read(home.engine_file)
    if connection is not None:
        return attached_session(connection)
    home.make()
    return own_session(more=more, local_dir=home.spark)


def _warn_of_another_driver(session: SparkSession, home: Home) -> None:
    """Says so when an engine has come up beside the session's own driver: two drivers then write the same tables."""
    engine = EngineConnection.read(home.engine_file)
    if engine is not None and not engine.serves(session):
        _logger.warning(
            "this process has a Spark driver of its own, and the engine (pid %s) runs as well. Without table.lock only the "
            "ledger's lock keeps their commits apart: end this process, and let its next one attach to the engine.",
            engine.pid,
        )


@contextmanager
def job_group(session: SparkSession, group: str, description: str, seconds: float) -> Iterator[threading.Event]:
    """Jobs started inside belong to `group` and are cancelled when `seconds` have passed.

    The event tells afterwards whether that happened. Jobs that an earlier holder of the group left running, such as a
    killed op, are cancelled first.
    """
    context = session.sparkContext
    context.cancelJobGroup(group)
    context.setJobGroup(group, description, interruptOnCancel=True)
    expired, done = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(max(0.0, seconds)):
            return
        expired.set()
        # A job may be submitted after the first cancellation, so it is repeated until the block is left.
        with suppress(*_GONE):
            while not done.wait(_CANCEL_SECONDS):
                context.cancelJobGroup(group)

    watcher = threading.Thread(target=watch, name=f"deadline of {group}", daemon=True)
    watcher.start()
    try:
        yield expired
    except BaseException:
        # Such as a terminated run: its jobs must not go on in an engine that outlives it.
        with suppress(*_GONE):
            context.cancelJobGroup(group)
        raise
    finally:
        done.set()
        watcher.join()
        with suppress(*_GONE):
            context.setLocalProperty("spark.jobGroup.id", None)


def answers(session: SparkSession) -> bool:
    """Whether the session's driver is there and not shutting down."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, ConnectionError, OSError, AttributeError):
        return False


def _forget_dead_context() -> None:
    """pyspark keeps one context a process; one whose JVM is gone would be handed out for ever."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
