"""A single-node Kafka 4.1 broker (KRaft) in its own process, on the loopback interface only."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import logging
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, log_tail, require_port_free, start, stop, wait_until
from hudi_ingest.spark.jars import kafka_jars
from hudi_ingest.spark.java import find_java

START_TIMEOUT_SECONDS = 120.0
FORMAT_TIMEOUT_SECONDS = 60.0
TOPIC_TIMEOUT_SECONDS = 30.0
REACH_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 2.0

_silent = logging.Logger("hudi_ingest.local.broker.silent")
_silent.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class BrokerSettings:
    """`home` holds everything of the broker: its records, log, settings and cluster id. `port` is for clients. `more`:
    server.properties that override ours."""

    home: Path
    port: int
    controller_port: int
    heap_megabytes: int = 512
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.home / "broker.log"


def properties(settings: BrokerSettings) -> str:
    """Return the text of server.properties. One node is broker and controller, so everything has a replication factor of 1."""
    values = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@{LOOPBACK}:{settings.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listeners": f"BROKER://{settings.bootstrap},CONTROLLER://{LOOPBACK}:{settings.controller_port}",
        "advertised.listeners": f"BROKER://{settings.bootstrap}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": java_property(str(settings.home.absolute() / "data")),
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # By default the controller writes a record every half second that shows other brokers that it lives: two fifths of an idle
        # broker's CPU.
        "metadata.max.idle.interval.ms": "10000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "33554432",
        "log.segment.bytes": "268435456",
        "log.index.size.max.bytes": "2097152",
    }
    return "".join(f"{key}={value}\n" for key, value in {**values, **settings.more}.items())


def start_broker(settings: BrokerSettings, report: Callable[[str], None]) -> ProcessRecord:
    """Start the broker and wait until it answers clients. Data of an earlier start on the same home is kept.

    `report` gets progress lines. Raises EnvironmentProblem if Java, the jars, the ports or the home are unusable, or if
    the broker does not answer in time; then nothing is left running.
    """
    jars, java = _requirements(settings, report)
    with _only_starter(settings.home):
        record = _launch(settings, java, jars, report)
        try:
            await_broker(settings, record, report)
        except BaseException:
            stop([record])
            raise
    return record


def launch_broker(settings: BrokerSettings, report: Callable[[str], None]) -> ProcessRecord:
    """Start the broker without waiting for it; the caller ensures that no other is started on its home meanwhile.

    Raises EnvironmentProblem as `start_broker` does.
    """
    jars, java = _requirements(settings, report)
    with _only_starter(settings.home):
        return _launch(settings, java, jars, report)


def await_broker(settings: BrokerSettings, record: ProcessRecord, report: Callable[[str], None]) -> None:
    """Wait until the broker answers clients. Raises ProcessEnded or EnvironmentProblem; what runs is left running."""
    client = _admin(settings.bootstrap)
    condition = f"the embedded Kafka broker answers on {settings.bootstrap}"
    wait_until(
        lambda: _answers(client), what=condition, timeout_seconds=START_TIMEOUT_SECONDS, records_to_watch=[record]
    )
    report(f"the embedded Kafka broker answers on {settings.bootstrap}")


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic unless it exists, and wait until each of its partitions has a leader.

    `config` is used only if the topic is created now. Raises EnvironmentProblem if no broker answers, if the broker
    refuses, or if the topic exists with another number of partitions.
    """
    client = _admin(bootstrap)
    new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    try:
        client.list_topics(timeout=REACH_TIMEOUT_SECONDS)
    except KafkaException as problem:
        raise EnvironmentProblem(
            f"No broker answered at {bootstrap} within {REACH_TIMEOUT_SECONDS:.0f} seconds, so topic {topic} could not be "
            f"created ({problem.args[0].str()}); check the address and that the broker is running, then try again."
        ) from problem
    try:
        client.create_topics([new_topic], request_timeout=TOPIC_TIMEOUT_SECONDS)[topic].result()
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise EnvironmentProblem(
                f"The broker at {bootstrap} did not create topic {topic} ({problem.args[0].str()}); change the topic's "
                "name, number of partitions or configuration if that says so, else try again."
            ) from problem
    existing = wait_until(
        lambda: _led_partitions(client, topic),
        what=f"all partitions of topic {topic} at {bootstrap} have a leader",
        timeout_seconds=TOPIC_TIMEOUT_SECONDS,
    )
    if existing != partitions:
        raise EnvironmentProblem(
            f"Topic {topic} at {bootstrap} already exists with {counted(existing, 'partition')} instead of {partitions}, and was left "
            f"unchanged; ask for {counted(existing, 'partition')}, choose another topic name, or delete the topic first."
        )


def _requirements(settings: BrokerSettings, report: Callable[[str], None]) -> tuple[tuple[Path, ...], Path]:
    """Return the jars and Java. Raises EnvironmentProblem if they or the ports are not available."""
    jars = kafka_jars(report)
    java = find_java()
    require_port_free(settings.port, "the embedded Kafka broker", "--kafka-port")
    require_port_free(
        settings.controller_port, "the controller of the embedded Kafka broker", "--kafka-controller-port"
    )
    return jars, java


def _launch(
    settings: BrokerSettings, java: Path, jars: tuple[Path, ...], report: Callable[[str], None]
) -> ProcessRecord:
    config = _prepare(settings)
    if not (settings.home / "data" / "meta.properties").exists():
        report(f"formatting the storage of the embedded Kafka broker in {settings.home}")
        _format(settings, java, jars, config)
    report(f"starting the embedded Kafka broker on {settings.bootstrap}")
    memory = (f"-Xms{min(settings.heap_megabytes, 256)}m", f"-Xmx{settings.heap_megabytes}m")
    options = [*memory, "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", *logging_options(), "-cp", _class_path(jars)]
    command = [str(java), *options, "kafka.Kafka", str(config)]
    return start("kafka", command, log=settings.log, env=os.environ, cwd=settings.home)


@contextlib.contextmanager
def _only_starter(home: Path) -> Iterator[None]:
    """Hold `home` against other starters until the broker has taken its own lock on its data.

    A second broker must not even start on the same data: it would truncate the first one's metadata log before it
    reaches that lock. Raises EnvironmentProblem if another start is under way or a broker is running there.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / "start.lock").open("ab") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError), (home / "data" / ".lock").open("r+b") as running:
                fcntl.lockf(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError as problem:
        raise EnvironmentProblem(
            f"A Kafka broker is running or starting with its files in {home}, and a second one would destroy them; "
            "use the first one, or stop it."
        ) from problem
    except OSError as problem:
        raise EnvironmentProblem(
            f"The embedded Kafka broker cannot keep its files in {home} ({problem}); make that folder writable and check "
            "that its disk has space, or choose another folder."
        ) from problem


def _prepare(settings: BrokerSettings) -> Path:
    """Write server.properties and, the first time, the cluster id. Returns the path of server.properties."""
    config = settings.home.absolute() / "server.properties"
    config.write_text(properties(settings), encoding="utf-8")
    if not _cluster_id_file(settings).exists():
        _cluster_id_file(settings).write_text(_new_cluster_id(), encoding="utf-8")
    return config


def _format(settings: BrokerSettings, java: Path, jars: tuple[Path, ...], config: Path) -> None:
    tool = [str(java), "-Xmx128m", "-XX:TieredStopAtLevel=1", *logging_options(), "-cp", _class_path(jars)]
    tool += ["kafka.tools.StorageTool", "format", "--config", str(config), "--ignore-formatted"]
    tool += ["--cluster-id", _cluster_id_file(settings).read_text(encoding="utf-8").strip()]
    with settings.log.open("ab") as output, contextlib.suppress(subprocess.TimeoutExpired):
        result = subprocess.run(
            tool,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=FORMAT_TIMEOUT_SECONDS,
            check=False,
        )
        if result.returncode == 0:
            return
    raise EnvironmentProblem(
        f"The storage of the embedded Kafka broker in {settings.home} could not be formatted; Kafka's storage tool said: "
        f"{' | '.join(log_tail(settings.log)) or 'nothing'}; correct that, or delete {settings.home} if its data is "
        f"not needed, and start again (full log: {settings.log})."
    )


def logging_options() -> tuple[str, ...]:
    prefix = "-Dorg.slf4j.simpleLogger."
    return (
        f"{prefix}defaultLogLevel=warn",
        f"{prefix}showDateTime=true",
        f"{prefix}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    )


def _class_path(jars: tuple[Path, ...]) -> str:
    return os.pathsep.join(str(jar) for jar in jars)


def _cluster_id_file(settings: BrokerSettings) -> Path:
    return settings.home / "cluster-id"


def _new_cluster_id() -> str:
    """Return a random Kafka uuid: 16 bytes in URL-safe base64, never with a leading -, which would read as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def java_property(value: str) -> str:
    r"""Escape a value for a Java properties file, where \ begins an escape and non-ASCII is \uXXXX."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


def _admin(bootstrap: str) -> AdminClient:
    """Return a client that keeps librdkafka's complaints about a broker that is not up yet off the user's terminal."""
    settings = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "logger": _silent,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 250,
    }
    return AdminClient(settings)


def _answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).brokers)
    except KafkaException:
        return False


def _led_partitions(client: AdminClient, topic: str) -> int:
    """Return how many partitions the topic has once each has a leader, and 0 before that."""
    try:
        metadata = client.list_topics(topic, timeout=REQUEST_TIMEOUT_SECONDS).topics.get(topic)
    except KafkaException:
        return 0
    if (
        metadata is None
        or metadata.error is not None
        or any(partition.leader < 0 for partition in metadata.partitions.values())
    ):
        return 0
    return len(metadata.partitions)
