"""Admin clients of one Kafka cluster, and those that a process keeps: connecting and logging in costs more than most questions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from hudi_ingest.home.folder import file_version
from hudi_ingest.kafka.client_settings import (
    Trouble,
    answer_text,
    client_logger,
    confluent_options,
    librdkafka_options,
    unusable_settings,
)
from hudi_ingest.pipeline.sections.source import KafkaSource

_Client = TypeVar("_Client")
_COORDINATOR_MILLISECONDS = 10
_POLL_SECONDS = 0.05
_IDLE_SECONDS = 60.0
_OLDEST_SECONDS = 300.0
"""A broker asks for a login only when a client connects, so clients connect anew to notice that theirs was revoked."""


class GroupClient:
    """Reads and sets the offsets of a consumer group, and never joins it.

    An admin client cannot: once its question to a dead coordinator has timed out, librdkafka (2.16) aborts the process when the
    coordinator is back, and closing the client before that takes for ever.
    """

    consumer: Consumer

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answers: list[tuple[KafkaError | None, list[TopicPartition]]] = []

    def take(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """The answer to a commit."""
        self._answers.append((error, places))

    def committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        found: list[TopicPartition] = self.consumer.committed(places, timeout=self._seconds)
        return found

    def commit(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return the places with their errors."""
        # Not synchronously: that waits for a coordinator that hangs as long as it does.
        self.consumer.commit(offsets=places, asynchronous=True)
        deadline = time.monotonic() + self._seconds
        while not self._answers:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            self.consumer.poll(_POLL_SECONDS)
        error, answered = self._answers.pop()
        if error is not None:
            raise KafkaException(error)
        return answered


class AdminClients:
    """Connect on first use. For one thread at a time. Creating one raises KafkaRefused."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self.made_at = time.monotonic()
        self.trouble = Trouble()
        self.has_failed = False

    @cached_property
    def admin(self) -> AdminClient:
        return self._made(AdminClient, {})

    @contextmanager
    def of_group(self, group: str) -> Iterator[GroupClient]:
        """A client of a consumer group, whose methods raise KafkaException."""
        client = GroupClient(self._source.request_timeout_seconds)
        settings = {
            "group.id": group,
            "enable.auto.commit": False,
            "on_commit": client.take,
            # For how long a commit waits for the coordinator.
            "session.timeout.ms": max(1, round(self._source.request_timeout_seconds * 1000)),
            # librdkafka takes the coordinator for a broker that went away, and waits for the reconnect backoff before it first
            # connects. It doubles with each refusal, up to the other clients'.
            "reconnect.backoff.ms": _COORDINATOR_MILLISECONDS,
        }
        client.consumer = consumer = self._made(Consumer, settings)
        try:
            yield client
        except KafkaException:
            # What it met on the way, such as a group that it may not read, which it reports instead of an answer.
            met = consumer.poll(0)
            if met is not None and met.error() is not None:
                self.trouble.note(met.error())
            # It waits for the answer to a commit as long as the coordinator hangs.
            threading.Thread(target=consumer.close, name="close a consumer", daemon=True).start()
            raise
        self.trouble.answered()
        consumer.close()

    def poll(self) -> None:
        """Take up the errors that the client has met since the last time."""
        if "admin" in self.__dict__:
            self.admin.poll(0)

    def forget_trouble(self) -> None:
        """Forget errors that the client met while it was idle."""
        self.poll()
        self.trouble.clear()

    def renew_metadata(self, seconds: float) -> None:
        """Make `admin` learn from any broker that is up which ones are there, which is the controller, and which lead the partitions it
        knows."""
        # A request that waits for the metadata has no answer either then, and its own error says why.
        with suppress(KafkaException):
            self.admin.list_topics(timeout=seconds)

    def close(self) -> None:
        """Close the connections. A refused client would keep trying to log in."""
        self.__dict__.pop("admin", None)

    def _made(self, kind: Callable[..., _Client], extra: Mapping[str, Any]) -> _Client:
        options = {**confluent_options(self._source, self.trouble), **extra}
        try:
            return kind(options, logger=client_logger)
        except KafkaException as error:
            raise unusable_settings(self._source, answer_text(error)) from error


@dataclass(frozen=True, slots=True)
class _Idle:
    """Idle clients, kept for the next use."""

    settings: tuple[Any, ...]
    since: float
    clients: AdminClients

    @property
    def is_over(self) -> bool:
        now = time.monotonic()
        return now - self.since > _IDLE_SECONDS or now - self.clients.made_at > _OLDEST_SECONDS


@dataclass(frozen=True, slots=True)
class Silence:
    """The error that the last question to a cluster met, and until when it answers all others."""

    text: str
    until: float


class ProcessClients:
    """The idle clients of one process, and the clusters that were silent when it last asked them, by the clients' settings."""

    def __init__(self) -> None:
        self._idle: list[_Idle] = []
        self._silent: dict[tuple[Any, ...], Silence] = {}
        self._lock = threading.Lock()

    def silence(self, settings: tuple[Any, ...], seconds: float) -> Silence | None:
        """Return the silence that answers a question; None if the caller may ask the cluster. If it was silent, it does so for all others,
        for so many seconds."""
        now = time.monotonic()
        with self._lock:
            silence = self._silent.get(settings)
            if silence is None or silence.until > now:
                return silence
            self._silent[settings] = Silence(silence.text, now + seconds)
        return None

    def note_silence(self, settings: tuple[Any, ...], silence: Silence | None) -> None:
        """Note how a cluster's last question ended. `silence`: None if it was answered."""
        with self._lock:
            if silence is None:
                self._silent.pop(settings, None)
            else:
                self._silent[settings] = silence

    def take(self, settings: tuple[Any, ...]) -> AdminClients | None:
        with self._lock:
            over = [idle for idle in self._idle if idle.is_over]
            self._idle = [idle for idle in self._idle if idle not in over]
            fitting = next((idle for idle in reversed(self._idle) if idle.settings == settings), None)
            if fitting is not None:
                self._idle.remove(fitting)
        # Outside the lock, because closing waits for the clients' threads.
        for idle in over:
            idle.clients.close()
        return fitting.clients if fitting else None

    def put_back(self, settings: tuple[Any, ...], clients: AdminClients) -> None:
        with self._lock:
            self._idle.append(_Idle(settings, time.monotonic(), clients))


_by_process: dict[int, ProcessClients] = {}
"""A forked process has none of its parent's client threads, so it makes clients of its own and leaves its parent's alone."""


def clients_of_this_process() -> ProcessClients:
    return _by_process.setdefault(os.getpid(), ProcessClients())


@contextmanager
def kept_clients(source: KafkaSource) -> Iterator[AdminClients]:
    """Lend clients with the source's settings, to one thread at a time, and keep them for the next caller in this process unless they
    have failed. Changed settings, and certificate files that were replaced, get new ones."""
    kept, settings = clients_of_this_process(), settings_of(source)
    clients = kept.take(settings) or AdminClients(source)
    clients.forget_trouble()
    usable = False
    try:
        yield clients
        usable = not clients.has_failed
    finally:
        if usable:
            kept.put_back(settings, clients)
        else:
            clients.close()


def settings_of(source: KafkaSource) -> tuple[Any, ...]:
    """Return a key of the source's client settings, to be compared only: it has passwords. Sources with equal keys can share clients."""
    options = librdkafka_options(source)
    # Creating a client says what is wrong with a file that cannot be read.
    files = [Path(path) for key, path in sorted(options.items()) if key.endswith((".location", ".keytab"))]
    oauth = source.security.oauth if source.security else None
    # Compared by their values now.
    asked = (oauth.token_function, *sorted(oauth.options.items())) if oauth else ()
    return (*sorted(options.items()), *map(file_version, files), *asked)
