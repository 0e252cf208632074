"""The broker's edge: partitions, watermarks, first offsets, consumer-group offsets, and client settings."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from hudi_ingest.config import KafkaSource
from hudi_ingest.exceptions import KafkaUnreachable, TopicMissing
from hudi_ingest.model import Offsets, Slice, TopicPartition, Watermarks

_logger = logging.getLogger(__name__)

_COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""A group's coordinator is being found, as at a group's first commit or after a broker's restart: ask again."""
_COORDINATOR_SECONDS = 0.2


class KafkaCluster:
    """One Kafka cluster as a pipeline's source names it. Every call asks the broker and waits at most
    `request_timeout_seconds`. Raises KafkaUnreachable from every method."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._seconds = source.request_timeout_seconds
        self._admin = AdminClient(librdkafka_options(source), logger=_logger)

    def watermarks(self) -> dict[TopicPartition, Watermarks]:
        """First offset and last stable offset of every partition of the source's topics. Raises TopicMissing."""
        partitions = [
            TopicPartition(topic, number) for topic in self._source.topics for number in self._partitions(topic)
        ]
        begins = self._list_offsets(partitions, OffsetSpec.earliest())
        ends = self._list_offsets(partitions, OffsetSpec.latest())
        return {each: Watermarks(begins[each], max(begins[each], ends[each])) for each in partitions}

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        """Where `starting_offsets` lets partitions begin that were never committed."""
        policy = self._source.starting_offsets
        if policy == "earliest":
            return {source: marks.begin for source, marks in watermarks.items()}
        if policy == "latest":
            return {source: marks.end for source, marks in watermarks.items()}
        at = getattr(policy, "timestamp", None)
        if isinstance(at, datetime):
            return self._offsets_at(at, watermarks)
        named: Any = policy
        return {
            source: int(named.get(source.topic, {}).get(source.partition, marks.begin))
            for source, marks in watermarks.items()
        }

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets, without partitions that have none."""
        request = ConsumerGroupTopicPartitions(group)
        answers = self._admin.list_consumer_group_offsets([request], request_timeout=self._seconds)
        found = self._result(answers[group], f"read the offsets of consumer group {group}")
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.offset >= 0
        }

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None:
        """Sets the group's offsets (the next ones to read), so that tools that watch consumer lag see ours."""
        wanted = [KafkaTopicPartition(each.topic, each.partition, offset) for each, offset in sorted(offsets.items())]
        deadline = time.monotonic() + self._seconds
        while True:
            refused = self._alter_group_offsets(group, wanted)
            if refused is None:
                return
            if refused.error.code() not in _COORDINATOR_MOVES or time.monotonic() > deadline:
                raise KafkaUnreachable(
                    f"consumer group {group}: the offset of {refused.topic}:{refused.partition} was not accepted: "
                    f"{refused.error.str()}. The table is not affected; the next commit sets it again."
                )
            time.sleep(_COORDINATOR_SECONDS)

    def _alter_group_offsets(self, group: str, wanted: list[KafkaTopicPartition]) -> KafkaTopicPartition | None:
        """The first offset that was refused, None when all were accepted."""
        answers = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=self._seconds
        )
        found = self._result(answers[group], f"commit offsets of consumer group {group}")
        return next((each for each in found.topic_partitions if each.error is not None), None)

    def _partitions(self, topic: str) -> Sequence[int]:
        try:
            found = self._admin.list_topics(topic, timeout=self._seconds).topics[topic]
        except KafkaException as error:
            raise self._unreachable("list topics", error) from error
        if found.error is not None or not found.partitions:
            raise TopicMissing(
                f"topic {topic} is not on the broker at {self._source.bootstrap_servers}: "
                f"{found.error.str() if found.error else 'it has no partitions'}. "
                "Create it, or correct source.topics in the pipeline file."
            )
        return sorted(found.partitions)

    def _list_offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        wanted = {KafkaTopicPartition(each.topic, each.partition): spec for each in partitions}
        if not wanted:
            return {}
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._seconds
        )
        return {
            TopicPartition(each.topic, each.partition): self._result(answer, f"read offsets of {each.topic}").offset
            for each, answer in answers.items()
        }

    def _offsets_at(self, at: datetime, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        found = self._list_offsets(watermarks, OffsetSpec.for_timestamp(int(at.timestamp() * 1000)))
        # -1: no record is as new as that, so the partition begins with what comes next.
        return {each: found[each] if found[each] >= 0 else marks.end for each, marks in watermarks.items()}

    def _result(self, answer: Future[Any], doing: str) -> Any:
        try:
            return answer.result(timeout=self._seconds)
        except (KafkaException, TimeoutError) as error:
            raise self._unreachable(doing, error) from error

    def _unreachable(self, doing: str, error: Exception) -> KafkaUnreachable:
        cause = error.args[0] if error.args else error
        reason = cause.str() if hasattr(cause, "str") else str(cause) or type(error).__name__
        return KafkaUnreachable(
            f"could not {doing} at Kafka {self._source.bootstrap_servers} within {self._seconds:g} s: {reason}. "
            "Check source.bootstrap_servers and source.security, and that the broker runs."
        )


def librdkafka_options(source: KafkaSource) -> dict[str, Any]:
    """Settings for confluent-kafka clients; with the password in clear, so never to be printed."""
    options: dict[str, Any] = {
        "bootstrap.servers": source.bootstrap_servers,
        "socket.timeout.ms": int(source.request_timeout_seconds * 1000),
    }
    security = source.security
    if security is not None:
        options["security.protocol"] = security.protocol
        if security.ca_file is not None:
            options["ssl.ca.location"] = str(security.ca_file)
        if security.sasl_mechanism is not None and security.password is not None:
            options["sasl.mechanism"] = security.sasl_mechanism
            options["sasl.username"] = security.username
            options["sasl.password"] = security.password.get_secret_value()
    return options


def spark_options(source: KafkaSource, slices: Iterable[Slice], min_partitions: int) -> dict[str, str]:
    """Options of Spark's Kafka source for exactly `slices`; with the password in clear, so never to be printed."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in slices:
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    options = {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "assign": json.dumps({topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        # The range is there already, so there is nothing to wait for. The client asks for more behind the range's end while
        # it reads, and at the default of 500 ms its next request would stand behind that one: half a second for each slice.
        "kafka.fetch.max.wait.ms": "10",
        "minPartitions": str(min_partitions),
    }
    security = source.security
    if security is not None:
        options["kafka.security.protocol"] = security.protocol
        if security.ca_file is not None:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = str(security.ca_file)
        if security.sasl_mechanism is not None and security.password is not None:
            module = "plain.PlainLoginModule" if security.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
            options["kafka.sasl.mechanism"] = security.sasl_mechanism
            options["kafka.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required "
                f"username={_quoted(security.username or '')} password={_quoted(security.password.get_secret_value())};"
            )
    return options


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
