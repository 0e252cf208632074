"""Spark sessions: attached to the engine if one is running, otherwise in a driver of our own."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import EngineLost, EnvironmentProblem
from hudi_ingest.home.folder import Home, cut_back, write_private
from hudi_ingest.home.liveness import process_table, running_process, started_since_boot
from hudi_ingest.model.deadline import watched
from hudi_ingest.pipeline.engine import (
    ARCHIVE_FOLDER,
    EngineSettings,
    load_engine_settings,
    untried_master_warning,
)
from hudi_ingest.spark import OWN_PYTHON, note_version
from hudi_ingest.spark.driver_jvm import (
    JVM_LOCALE,
    JVM_OPTIONS,
    answers_of,
    inherited_arguments,
    name_packages,
    release_at_exit,
    require_own_spark,
    require_usable_account,
    require_usable_jvm,
    shorten_settings,
    start_jvm,
    use_system_calls,
)
from hudi_ingest.spark.executors import require_executors, require_master
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest.spark.java import find_java, java_home

_logger = logging.getLogger(__name__)
_CANCEL_SECONDS = 0.2
REPORT_SECONDS = 15.0
_ANSWER_SECONDS = 10.0
_GONE = (Py4JError, ConnectionError)
"""Errors of a call into a driver that is gone: it has nothing left to cancel or reset."""
_QUIET_SIZING = "-Djdk.attach.allowAttachSelf=true -Djol.skipHotspotSAAttach=true"
"""Hudi measures object sizes with a library that otherwise warns about processes it may not attach to."""
_EXECUTOR_VARIABLES = "spark.executorEnv."
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_JVM_OPTIONS = (_JAVA_OPTIONS, _EXECUTOR_JAVA_OPTIONS)
_DRIVER_OPTIONS = f"{JVM_OPTIONS} -XX:+ExitOnOutOfMemoryError {_QUIET_SIZING}"
_OPTIMIZE_LATE = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times the defaults. Most of what such a driver does is many small steps of Spark and Hudi; the optimizing compiler took more
CPU for them than they did themselves. Loops over a table's rows still reach the thresholds within a second."""
ENGINE_OPTIONS = {_JAVA_OPTIONS: _OPTIMIZE_LATE}
"""Settings of sessions that run transactions, on top of `session_options`."""


_examined: SparkContext | None = None
"""The context whose JVM was found usable: another program may have started it."""


@dataclass(frozen=True, slots=True)
class EngineConnection:
    """How to reach a running engine: its py4j port on this machine, its secret, and its process (process table, pid, and start
    time in seconds since boot); `python` and `python_version` (like 3.11) are of its executors."""

    port: int
    secret: str
    host: str
    pid: int
    started: float
    python: str = sys.executable
    python_version: str = OWN_PYTHON

    @classmethod
    def of_this_process(cls, port: int, secret: str, python: str = sys.executable) -> EngineConnection:
        pid = os.getpid()
        return cls(port, secret, process_table(), pid, started_since_boot(pid), python)

    def write(self, path: Path) -> None:
        """Publish the connection atomically, to this user only."""
        write_private(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> EngineConnection | None:
        """Read the connection of a living engine, None if there is none.

        Raises EnvironmentProblem when other users could have written the file or can read it: it names a program that
        runs whatever it is sent, and that can make this process run code.
        """
        try:
            with path.open() as file:
                facts = os.fstat(file.fileno())
                if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                    raise EnvironmentProblem(
                        f"{path} is not private: it belongs to user {facts.st_uid} with mode "
                        f"{stat.filemode(facts.st_mode)}, but must belong to this user ({os.geteuid()}) alone. "
                        "Stop the engine, delete the file and start the engine again, as the user who runs the ops."
                    )
                connection = cls(**json.load(file))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return connection if connection.is_alive() else None

    def is_alive(self) -> bool:
        """Whether its process runs, as far as this one can see: not if it is in another container that shares the home."""
        return self.host == process_table() and running_process(self.pid, self.started) is not None

    def serves(self, session: SparkSession) -> bool:
        """Whether the session belongs to this engine's driver."""
        gateway: Any = session.sparkContext._gateway
        return bool(gateway.gateway_parameters.port == self.port)

    def require_same_python(self) -> None:
        """Raises EnvironmentProblem unless this process can send functions to the engine's executors."""
        if self.python_version != OWN_PYTHON:
            raise EnvironmentProblem(
                f"this process runs Python {OWN_PYTHON}, but the executors of the engine (pid {self.pid}) run Python "
                f"{self.python_version} ({self.python}), and functions cannot go from one to the other: run hudi-ingest with "
                f"Python {self.python_version}, or start the engine with Python {OWN_PYTHON}."
            )

    def __repr__(self) -> str:
        return f"EngineConnection(port={self.port}, secret='****', pid={self.pid})"


def session_options(
    jars: Sequence[Path], settings: EngineSettings, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build Spark's settings of our own session, with the `spark_conf` and then `more` on top of ours; pure."""
    options = {
        "spark.master": settings.master,
        "spark.app.name": "hudi-ingest",
        "spark.driver.memory": settings.driver_memory,
        **_jar_options(jars, settings.executor_jars),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Read and write dates before 1582 and times before 1900 as they are, as all our writers do; by default Spark
        # refuses them, which would stop clustering.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        _JAVA_OPTIONS: _DRIVER_OPTIONS,
        _EXECUTOR_JAVA_OPTIONS: JVM_OPTIONS,
        f"{_EXECUTOR_VARIABLES}LC_ALL": JVM_LOCALE,
        "spark.sql.shuffle.partitions": "2",
        # Jobs of different pools share the cores; see `in_services_pool`.
        "spark.scheduler.mode": "FAIR",
        "spark.driver.host": settings.advertised_host,
        "spark.driver.bindAddress": settings.advertised_host,
        **_without_none(
            {
                "spark.cores.max": settings.cores,
                "spark.archives": settings.archive and f"{settings.archive}#{ARCHIVE_FOLDER}",
            }
        ),
        # A base path without a scheme is on this machine's disk, whatever a core-site.xml says. YARN keeps its own: it stages there.
        **({} if settings.master.startswith("yarn") else {"spark.hadoop.fs.defaultFS": "file:///"}),
        # By name, because this room knows nothing of transactions.
        "spark.python.daemon.module": "hudi_ingest.transaction.write.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]key|jaas|keystore[.]key",
        **(_LOCAL_OPTIONS if settings.is_local else {}),
    }
    conf = {key: value.get_secret_value() for key, value in settings.spark_conf.items()}
    for key, text in (*conf.items(), *(more or {}).items()):
        # Of two contradicting options a JVM takes the later one.
        options[key] = f"{options[key]} {text}" if key in _JVM_OPTIONS else text
    return options


def _jar_options(jars: Sequence[Path], executor_jars: str | None) -> dict[str, str]:
    """Where JVMs find the jars. `spark.jars` copies all of them to each executor."""
    if executor_jars is None:
        return {"spark.jars": ",".join(map(str, jars))}
    return {
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.executor.extraClassPath": ":".join(f"{executor_jars.rstrip('/')}/{jar.name}" for jar in jars),
    }


def _without_none(options: Mapping[str, int | str | None]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if value is not None}


_LOCAL_OPTIONS = {
    # The driver's RPC port accepts commands and serialized objects. Spark generates the secret and keeps it in the JVM. Who
    # may join a cluster is for its own settings to say.
    "spark.authenticate": "true",
}


def own_session(
    settings: EngineSettings,
    more: Mapping[str, str] | None = None,
    local_dir: Path | None = None,
    report: Callable[[str], None] = _logger.info,
    log: Path | None = None,
) -> SparkSession:
    """Start a session in a JVM of this process; `more` settings override ours. With a local master, shuffle files (which
    contain rows) go below `local_dir`, because every user can read Spark's default, /tmp. The JVM prints to `log`, or else where this
    process prints its errors.

    Raises EnvironmentProblem when Java or the jars are missing, when the master or its executors cannot be used, or when user, locale
    or JVM would not do; EngineLost when the JVM ends while starting.
    """
    require_usable_account()
    require_own_spark()
    prepare_environment(settings.executors_python)
    # Asking a Java for its version starts a JVM, which a process that attaches to an engine does not need.
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    more = more or {}
    settings = settings.model_copy(update={"master": more.get("spark.master", settings.master)})
    require_master(settings.master)
    untried = untried_master_warning(settings.master)
    if untried:
        _logger.warning("%s", untried)
    options = session_options(spark_jars(report), settings, more)
    if local_dir is not None and settings.is_local:
        options.setdefault("spark.local.dir", str(local_dir))
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    report("starting Spark")
    if log is not None:
        log.parent.mkdir(mode=0o700, exist_ok=True)
        cut_back([log])
    try:
        with log.open("ab") if log is not None else nullcontext(2) as output:
            start_jvm(options, local_dir, output)
        session = builder.getOrCreate()
        _require_usable(session)
        session.sparkContext.setLogLevel("ERROR")
        use_system_calls(session.sparkContext._gateway.jvm, session.sparkContext._jsc)
        shorten_settings(session.sparkContext._gateway.jvm, session.sparkContext._jsc)
    except (Py4JError, ConnectionError, PySparkRuntimeError) as error:
        if not _has_ended(error):
            raise
        # The next try must not find the remains of this one.
        _forget_dead_context()
        raise EngineLost(
            f"Spark's JVM ended while it was starting ({error}). {inherited_arguments()}The reason is in its output{f' in {log}' if log else ' above'}. If it printed none, it was "
            f"killed, often because memory ran out (see `dmesg`): it may use {settings.driver_memory} and a bit more. Then free "
            "some memory or start the engine with `hudi-ingest up`, and try again."
        ) from error
    note_version(session.sparkContext)
    if not settings.is_local:
        try:
            require_executors(session, settings)
        except BaseException:
            session.stop()
            raise
    return session


def _has_ended(error: Exception) -> bool:
    """Whether the error means that the JVM is gone, rather than that it refused something."""
    if isinstance(error, PySparkRuntimeError):
        return bool(error.getErrorClass() == "JAVA_GATEWAY_EXITED")
    return not isinstance(error, Py4JJavaError)


def prepare_environment(python: str) -> None:
    """Set what pyspark reads from the environment beside JAVA_HOME: the `python` that runs our functions in the executors."""
    os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def attached_session(connection: EngineConnection) -> SparkSession:
    """Attach to the engine's driver. The session must never be stopped here, because all ops share it.

    Raises EngineLost, also when the engine hangs or refuses the secret; EnvironmentProblem when its executors run another
    Python than this process.
    """
    connection.require_same_python()
    prepare_environment(connection.python)
    require_answer(connection)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(connection.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = connection.secret
    try:
        gateway: Any = launch_gateway()
        release_at_exit(gateway)
        name_packages(gateway)
        existing = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        context: Any = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(existing)
        with _keeping_interrupt_handler():
            session = SparkSession(
                SparkContext(gateway=gateway, jsc=context, conf=_EngineConf(_jconf=existing.getConf()))
            )
        note_version(session.sparkContext)
        return session
    except (Py4JError, ConnectionError, OSError) as error:
        raise _no_answer(connection, error) from error
    finally:
        os.environ.pop("PYSPARK_GATEWAY_PORT", None)
        os.environ.pop("PYSPARK_GATEWAY_SECRET", None)


class _EngineConf(SparkConf):  # type: ignore[misc]
    """The engine's settings, for a context that attaches to it. It reads them all for the executors' variables, and each setting would
    take py4j four messages."""

    def getAll(self) -> list[tuple[str, str]]:
        jconf: Any = self._jconf
        return [
            (f"{_EXECUTOR_VARIABLES}{each._1()}", each._2()) for each in jconf.getAllWithPrefix(_EXECUTOR_VARIABLES)
        ]


def require_answer(connection: EngineConnection) -> None:
    """Raises EngineLost unless the engine's driver answers and takes the secret."""
    try:
        (answer,) = answers_of(("127.0.0.1", connection.port), connection.secret, (), _ANSWER_SECONDS)
    except OSError as error:
        raise _no_answer(connection, error) from error
    if not answer.startswith(b"!y"):
        raise _no_answer(connection, "it refused the secret of its connection file")


def _no_answer(connection: EngineConnection, reason: object) -> EngineLost:
    return EngineLost(
        f"the engine (pid {connection.pid}, port {connection.port}) did not answer: {reason}. "
        "Start it again with `hudi-ingest up` or `hudi-ingest engine`; without it each op starts its own Spark."
    )


@contextmanager
def _keeping_interrupt_handler() -> Iterator[None]:
    """Restore the SIGINT handler after creating a SparkContext, whose own would cancel the jobs of all the engine's users."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def current_session(
    home: Home, more: Mapping[str, str] | None = None, report: Callable[[str], None] = _logger.info
) -> SparkSession:
    """Return this process's live session, else attach to the engine, else start a session with `more` settings. On a terminal, where
    nobody could act on the warnings of Spark's libraries, its JVM prints to a log. Raises as `attached_session` and `own_session` do."""
    # At DEBUG, py4j logs every command with its values, including the Kafka login.
    py4j = logging.getLogger("py4j")
    py4j.setLevel(max(logging.INFO, py4j.getEffectiveLevel()))
    session, connection = SparkSession._instantiatedSession, EngineConnection.read(home.engine_file)
    if session is not None and connection is not None and connection.serves(session):
        # py4j would wait for an engine that hangs.
        require_answer(connection)
    if session is not None and answers(session):
        _require_usable(session)
        _warn_of_another_driver(session, connection)
        return session
    _forget_dead_context()
    if connection is not None:
        return attached_session(connection)
    home.make()
    log = home.logs / "spark.log" if os.isatty(2) else None
    return own_session(load_engine_settings(home), {**ENGINE_OPTIONS, **(more or {})}, home.spark, report, log)


def _require_usable(session: SparkSession) -> None:
    """Examine the session's JVM, once. Raises EnvironmentProblem."""
    global _examined
    if session.sparkContext is not _examined:
        require_usable_jvm(session.sparkContext._gateway.jvm)
        _examined = session.sparkContext


def has_own_driver(home: Home) -> bool:
    """Whether this process has a session that is not the engine's, or no longer."""
    session, connection = SparkSession._instantiatedSession, EngineConnection.read(home.engine_file)
    return session is not None and (connection is None or not connection.serves(session))


def _warn_of_another_driver(session: SparkSession, engine: EngineConnection | None) -> None:
    """Warn when an engine runs beside the session's own driver: two drivers then write to the same tables."""
    if engine is not None and not engine.serves(session):
        _logger.warning(
            "this process has its own Spark driver, and the engine (pid %s) is running too. Without table.lock only the "
            "ledger's lock keeps their commits apart: restart this process, and it will attach to the engine.",
            engine.pid,
        )


@contextmanager
def job_group(session: SparkSession, group: str, description: str, seconds: float) -> Iterator[threading.Event]:
    """Run the jobs started inside as `group`, and cancel them when `seconds` have passed.

    The yielded event says afterwards whether that happened. First cancels jobs that an earlier holder of the group, such
    as a killed op, left running.
    """
    context = session.sparkContext
    context.cancelJobGroup(group)
    context.setJobGroup(group, description, interruptOnCancel=True)
    expired = threading.Event()

    def watch(done: threading.Event) -> None:
        if done.wait(max(0.0, seconds)):
            return
        expired.set()
        # A job may be submitted after the first cancellation, so cancel repeatedly until the block is left.
        with suppress(*_GONE):
            while not done.wait(_CANCEL_SECONDS):
                context.cancelJobGroup(group)

    try:
        with watched(watch, f"deadline of {group}"):
            try:
                yield expired
            except BaseException:
                # For example when the run is terminated: its jobs must not continue in an engine that outlives it.
                with suppress(*_GONE):
                    context.cancelJobGroup(group)
                raise
    finally:
        with suppress(*_GONE):
            context.setLocalProperty("spark.jobGroup.id", None)


@contextmanager
def reported_tasks(
    spark: SparkSession,
    group: str,
    step: str,
    units: str,
    report: Callable[[str], None],
    of: int | None = None,
    more: Callable[[], str] = lambda: "",
) -> Iterator[None]:
    """Report every REPORT_SECONDS how many tasks of the job group's stage are done: the stage with `of` tasks, or the largest. `more`: what
    else to say then; it may raise OSError."""
    tracker = spark.sparkContext.statusTracker()

    def watch(done: threading.Event) -> None:
        while not done.wait(REPORT_SECONDS):
            # The driver may go away at any moment, and the job's own error says so.
            with suppress(*_GONE, OSError, AttributeError):
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
                stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
                found = [
                    (each.numTasks, each.numCompletedTasks) for each in stages if each and of in (None, each.numTasks)
                ]
                if found:
                    tasks, completed = max(found)
                    report(f"{step}: {completed} of {tasks} {units}{more()}")

    with watched(watch, f"progress of {step}"):
        yield


@contextmanager
def in_services_pool(session: SparkSession) -> Iterator[None]:
    """Let the jobs started inside share the cores with those of transactions. Otherwise a transaction's tasks would wait until
    none of a large table service's tasks do."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", "services")
    try:
        yield
    finally:
        with suppress(*_GONE):
            session.sparkContext.setLocalProperty("spark.scheduler.pool", None)


def start_workers(session: SparkSession) -> None:
    """Run a job of nothing, so that the first transaction finds Python workers, which take more than a second to start. A
    driver that goes away meanwhile is no error."""
    with suppress(*_GONE):
        session.sparkContext.parallelize([0], 1).map(abs).count()


def answers(session: SparkSession) -> bool:
    """Whether the session's driver is alive and not shutting down."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, ConnectionError, OSError, AttributeError):
        return False


def _forget_dead_context() -> None:
    """Reset pyspark's one context per process; otherwise it would return a context whose JVM is gone forever."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
