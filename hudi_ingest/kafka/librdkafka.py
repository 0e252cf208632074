"""librdkafka's C API, as far as transactions need it: a consumer whose messages stay in C.

confluent-kafka makes a Python object of each message, which costs more than fetching it. The library is the one that
confluent-kafka is linked with; the structures are librdkafka's public ABI.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, cimpl, libversion, version

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.kafka.client_settings import NoToken, Tokens
from hudi_ingest.model.offsets import TopicPartition

# Loading the extension module finds the symbols of the libraries it depends on, wherever they are.
_library = ctypes.CDLL(cimpl.__file__)


class Message(ctypes.Structure):
    """rd_kafka_message_t. With an error, the payload is its text, and `topic` is null unless it is a partition's."""

    _fields_ = (
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("length", c_size_t),
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )
    error: int
    topic: int | None
    partition: int
    offset: int


class _Position(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("error", c_int),
        ("private", c_void_p),
    )


def address_of(name: str) -> int:
    """A C function's address, for compiled code, which cannot be cached with the function itself."""
    address = ctypes.cast(getattr(_library, name), c_void_p).value
    assert address is not None
    return address


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function: Any = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


_ERROR_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
_LOG_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

_STATISTICS_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
_TOKEN_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)

_conf_new = _function("rd_kafka_conf_new", c_void_p)
_conf_destroy = _function("rd_kafka_conf_destroy", None, c_void_p)
_conf_set = _function("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_set_error_cb = _function("rd_kafka_conf_set_error_cb", None, c_void_p, _ERROR_CALLBACK)
_conf_set_log_cb = _function("rd_kafka_conf_set_log_cb", None, c_void_p, _LOG_CALLBACK)
_conf_set_stats_cb = _function("rd_kafka_conf_set_stats_cb", None, c_void_p, _STATISTICS_CALLBACK)
_conf_set_token_cb = _function("rd_kafka_conf_set_oauthbearer_token_refresh_cb", None, c_void_p, _TOKEN_CALLBACK)
_conf_enable_sasl_queue = _function("rd_kafka_conf_enable_sasl_queue", None, c_void_p, c_int)
_serve_sasl_queue = _function("rd_kafka_sasl_background_callbacks_enable", c_void_p, c_void_p)
_set_token = _function(
    "rd_kafka_oauthbearer_set_token",
    c_int,
    c_void_p,
    c_char_p,
    c_int64,
    c_char_p,
    ctypes.POINTER(c_char_p),
    c_size_t,
    c_char_p,
    c_size_t,
)
_set_token_failure = _function("rd_kafka_oauthbearer_set_token_failure", c_int, c_void_p, c_char_p)
_new = _function("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_set_log_queue = _function("rd_kafka_set_log_queue", c_int, c_void_p, c_void_p)
_poll_set_consumer = _function("rd_kafka_poll_set_consumer", c_int, c_void_p)
_queue_get_consumer = _function("rd_kafka_queue_get_consumer", c_void_p, c_void_p)
_queue_destroy = _function("rd_kafka_queue_destroy", None, c_void_p)
_destroy_flags = _function("rd_kafka_destroy_flags", None, c_void_p, c_int)
_list_new = _function("rd_kafka_topic_partition_list_new", c_void_p, c_int)
_list_add = _function("rd_kafka_topic_partition_list_add", ctypes.POINTER(_Position), c_void_p, c_char_p, c_int32)
_set_epoch = _function("rd_kafka_topic_partition_set_leader_epoch", None, c_void_p, c_int32)
_message_epoch = _function("rd_kafka_message_leader_epoch", c_int32, c_void_p)
_list_destroy = _function("rd_kafka_topic_partition_list_destroy", None, c_void_p)
_assign = _function("rd_kafka_assign", c_int, c_void_p, c_void_p)
_incremental_unassign = _function("rd_kafka_incremental_unassign", c_void_p, c_void_p, c_void_p)
_error_string = _function("rd_kafka_error_string", c_char_p, c_void_p)
_error_destroy = _function("rd_kafka_error_destroy", None, c_void_p)
_consume_batch = _function("rd_kafka_consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
_topic_name = _function("rd_kafka_topic_name", c_char_p, c_void_p)
_message_text = _function("rd_kafka_message_errstr", c_char_p, c_void_p)
_error_name = _function("rd_kafka_err2str", c_char_p, c_int)

_version = _function("rd_kafka_version", c_int)
_MAJOR_VERSION = 2
"""The major version of librdkafka whose structures are the ones above. Its minor versions keep them."""
_CONSUMER = 1
_WITHOUT_CLOSE = 8
"""Leaving no group and committing no offsets, closing a consumer has nothing to wait for."""
_TEXT_BYTES = 512
_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
"""Levels by syslog's number."""


class ClientRefused(Exception):
    """librdkafka does not take these settings, or cannot make a client of them."""


def require_known_version() -> None:
    """Raises EnvironmentProblem if the library may have other structures: reading them would give wrong values, not errors."""
    major = _version() >> 24
    if major != _MAJOR_VERSION:
        raise EnvironmentProblem(
            f"confluent-kafka {version()[0]} comes with librdkafka {libversion()[0]}, but hudi-ingest reads the messages of "
            f"librdkafka {_MAJOR_VERSION} in memory. Install the version that requirements.txt names."
        )


class Consumer:
    """Reads assigned partitions without a group. For one thread; `close` it when its messages are destroyed."""

    def __init__(
        self,
        options: Mapping[str, str],
        on_error: Callable[[KafkaError], None],
        on_statistics: Callable[[bytes], None],
        logger: logging.Logger,
        tokens: Tokens | None = None,
    ) -> None:
        """`on_error`, `on_statistics` and the logger are called inside `poll` only, `tokens` in a thread of librdkafka's. Raises
        ClientRefused, and EnvironmentProblem for another librdkafka."""
        require_known_version()

        def report(client: int, code: int, reason: bytes, opaque: int) -> None:
            on_error(KafkaError(code, reason.decode(errors="replace")))

        def log(client: int, level: int, facility: bytes, text: bytes) -> None:
            logger.log(_LEVELS[level], "%s: %s", facility.decode(), text.decode(errors="replace"))

        def take_statistics(client: int, text: int, size: int, opaque: int) -> int:
            on_statistics(ctypes.string_at(text, size))
            return 0

        # librdkafka has their addresses only, so they must live as long as the client.
        self._callbacks = (
            _ERROR_CALLBACK(report),
            _LOG_CALLBACK(log),
            _TOKEN_CALLBACK(_refresh(tokens)),
            _STATISTICS_CALLBACK(take_statistics),
        )
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = _conf_new()
        for name, value in {**options, "log.queue": "true"}.items():
            if _conf_set(conf, name.encode(), value.encode(), text, _TEXT_BYTES):
                _conf_destroy(conf)
                raise ClientRefused(text.value.decode(errors="replace"))
        _conf_set_error_cb(conf, self._callbacks[0])
        _conf_set_log_cb(conf, self._callbacks[1])
        _conf_set_stats_cb(conf, self._callbacks[3])
        if tokens is not None:
            _conf_set_token_cb(conf, self._callbacks[2])
            _conf_enable_sasl_queue(conf, 1)
        self._client = _new(_CONSUMER, conf, text, _TEXT_BYTES)
        if not self._client:
            _conf_destroy(conf)
            raise ClientRefused(text.value.decode(errors="replace"))
        _set_log_queue(self._client, None)
        _poll_set_consumer(self._client)
        if tokens is not None and (error := _serve_sasl_queue(self._client)):
            raise RuntimeError(f"librdkafka does not refresh tokens: {_taken_text(error)}")
        self._queue = _queue_get_consumer(self._client)
        self._topics: dict[int, str] = {}

    def assign(
        self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read these partitions, each from its offset. The client asks the broker whether the log of these leader epochs reaches there,
        and if not delivers an error; see `end_of_epoch` in client_settings.py."""
        partitions = _partitions(positions, epochs)
        try:
            code = _assign(self._client, partitions)
        finally:
            _list_destroy(partitions)
        if code:
            raise RuntimeError(f"librdkafka does not assign {sorted(positions)}: {_error_name(code).decode()}")

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read no more of these. Messages fetched before may still come."""
        unassigned = _partitions(dict.fromkeys(partitions, 0))
        try:
            error = _incremental_unassign(self._client, unassigned)
        finally:
            _list_destroy(unassigned)
        if error:
            raise RuntimeError(f"librdkafka does not unassign partitions: {_taken_text(error)}")

    def poll(self, addresses: np.ndarray[Any, np.dtype[np.int64]], milliseconds: int) -> int:
        """Wait for a message, and take as many as are there and have room. Each address is a Message's, and belongs to the
        caller, who destroys it."""
        count = _consume_batch(self._queue, milliseconds, addresses.ctypes.data, 1)
        if count > 0 and len(addresses) > 1:
            count += max(0, _consume_batch(self._queue, 0, addresses[1:].ctypes.data, len(addresses) - 1))
        return max(0, int(count))

    def topic(self, message: Message) -> str:
        """The name of a message's topic, "" for an error of no partition."""
        if message.topic is None:
            return ""
        name = self._topics.get(message.topic)
        if name is None:
            name = self._topics[message.topic] = _topic_name(message.topic).decode()
        return name

    def close(self) -> None:
        _queue_destroy(self._queue)
        _destroy_flags(self._client, _WITHOUT_CLOSE)


def _refresh(tokens: Tokens | None) -> Callable[[int, bytes, int], None]:
    def refresh(client: int, config: bytes, opaque: int) -> None:
        assert tokens is not None, "not called without"
        try:
            token = tokens.token()
        except NoToken as problem:
            _set_token_failure(client, str(problem).encode())
            return
        pairs = [part.encode() for pair in token.extensions.items() for part in pair]
        extensions = (c_char_p * len(pairs))(*pairs)
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        milliseconds, principal = int(token.expires_at * 1000), token.principal.encode()
        value = token.value.encode()
        if _set_token(client, value, milliseconds, principal, extensions, len(pairs), text, _TEXT_BYTES):
            _set_token_failure(client, text.value)

    return refresh


def _taken_text(error: int) -> str:
    """The text of an error that is destroyed."""
    text = str(_error_string(error).decode(errors="replace"))
    _error_destroy(error)
    return text


def error_text(message: Message) -> str:
    """Return the text of a message with an error."""
    return str(_message_text(ctypes.addressof(message)).decode(errors="replace"))


def epoch_of(message: int) -> int:
    """Return the leader epoch in which the message at the address was written, -1 if that is unknown."""
    return int(_message_epoch(message))


def _partitions(positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int] | None = None) -> int:
    partitions: int = _list_new(len(positions))
    for partition, offset in positions.items():
        place = _list_add(partitions, partition.topic.encode(), partition.partition)
        place.contents.offset = offset
        if epochs is not None and partition in epochs:
            _set_epoch(place, epochs[partition])
    return partitions
