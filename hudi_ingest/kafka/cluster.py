"""The broker's edge: asks for partitions, watermarks and first offsets, reads and commits the offsets of consumer groups."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, OffsetSpec, ResourceType

from hudi_ingest.exceptions import IngestError, KafkaRefused, KafkaUnreachable, LeaderMissing, TopicMissing
from hudi_ingest.exceptions.problems import suggestion
from hudi_ingest.kafka.admin_clients import AdminClients, GroupClient, kept_clients
from hudi_ingest.kafka.client_settings import Trouble, answer_text
from hudi_ingest.model.complete_through import BROKER_TIME_SECONDS
from hudi_ingest.model.offsets import Offsets, TopicPartition, Watermarks
from hudi_ingest.pipeline.sections.source import KafkaSource

_logger = logging.getLogger(__name__)
_COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""The group's coordinator is being elected, as on a new broker, at a group's first commit or after a restart: retry."""
_NO_COORDINATOR = {*_COORDINATOR_MOVES, KafkaError._WAIT_COORD, KafkaError._TIMED_OUT}
_LEADER_MOVES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""The partition's leader is being elected, as for a new topic or after a broker's restart: retry."""
_AGAIN_SECONDS = 0.2
_ELECTION_SECONDS = 2.0
"""How long partitions without a leader are waited for where the others can be read without them."""
_NOT_A_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, *_NOT_A_TOPIC}
_PRODUCERS_SECONDS = 300.0
"""How long producers are believed to set a topic's timestamps; that the broker does is asked for in each look."""
_LISTEN_SECONDS = 0.05
_ASK_AGAIN_SECONDS = 1.0
_Answer = TypeVar("_Answer")
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the broker describes it. `topic_id` is new whenever a topic is created, and "" if the broker has no ids."""

    topic_id: str
    partitions: tuple[TopicPartition, ...]


@contextmanager
def kept_cluster(source: KafkaSource) -> Iterator[KafkaCluster]:
    """The source's cluster, with clients that this process may have connected before.

    Ask a new one for `topics` first, which waits for the controller. Once librdkafka knows the real brokers it drops the
    bootstrap broker with all that is queued for it, and asks for lost metadata again only after 0.5, 1 or 3 s.
    """
    with kept_clients(source) as clients:
        yield KafkaCluster(source, clients)


class KafkaCluster:
    """The Kafka cluster of a pipeline's source. Connects on first use; every call asks the broker and waits at most
    `request_timeout_seconds`. Every method raises KafkaUnreachable and KafkaRefused."""

    def __init__(self, source: KafkaSource, clients: AdminClients | None = None) -> None:
        """`clients`: clients with the source's settings, if there are some already."""
        self._source = source
        self._seconds = source.request_timeout_seconds
        self._clients = clients or AdminClients(source)

    @property
    def silence(self) -> str:
        """Why the last question had no answer, if that is because no broker accepts connections; otherwise ""."""
        trouble = self._clients.trouble
        if not (self._clients.has_failed and trouble.all_down) or trouble.refusal:
            return ""
        return str(trouble.explained("connect", "", self._source))

    def require_answer(self) -> None:
        """Ask whether the cluster answers at all."""
        try:
            self._await_answer()
        except (KafkaException, TimeoutError) as error:
            raise self._failed("describe the cluster", error) from error

    def topic_names(self, committed: Iterable[str] = ()) -> tuple[str, ...]:
        """The source's topics now: those it lists, or those on the broker that match its pattern. Of the `committed` topics those
        that match count too, so that one that disappeared is missed."""
        source = self._source
        if source.topics_pattern is None:
            return source.topics
        return tuple(sorted(filter(source.reads, {*self._on_broker(), *committed})))

    def _on_broker(self) -> set[str]:
        try:
            # The list comes from a call that does not notice a refused login, and would wait for its whole timeout.
            self._await_answer()
            return set(self._clients.admin.list_topics(timeout=self._seconds).topics)
        except (KafkaException, TimeoutError) as error:
            self._clients.has_failed = True
            raise self._failed("list the topics", error) from error

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]:
        """The source's topics, as `topic_names`. Raises TopicMissing."""
        names = list(self.topic_names(committed))
        if not names:
            return {}
        answers = self._described(names)
        return {name: self._topic(name, answers[name]) for name in names}

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """The topic's settings, such as `cleanup.policy`; none if the broker does not let this login read them."""
        return answered(self._each_settings([topic])[topic])

    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """First offset, last stable offset and end of each partition."""
        answers = self._once_led(partial(self.each_watermarks, [*partitions]), self._seconds)
        return {source: answered(answer) for source, answer in answers.items()}

    def led_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return what `watermarks` does, without the partitions that have had no leader for two seconds."""
        seconds = min(_ELECTION_SECONDS, self._seconds)
        return with_leader(self._once_led(partial(self.each_watermarks, [*partitions]), seconds))

    def each_topic(self, names: Iterable[str]) -> dict[str, Topic | IngestError]:
        """Each topic, or why it could not be described, by one request for all."""
        names = list(names)
        if not names:
            return {}
        answers = self._described(names)
        return {name: _or_error(partial(self._topic, name, answers[name])) for name in names}

    def without_read_access(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the existing topics that the broker does not let this login read; none if it has no access control."""
        names = list(names)
        if not names:
            return ()
        answers = self._described(names, include_authorized_operations=True)
        try:
            operations = {name: self._wait(answers[name]).authorized_operations for name in names}
        except (KafkaException, TimeoutError) as error:
            raise self._failed("ask for access rights", error) from error
        return tuple(
            name for name, allowed in operations.items() if allowed is not None and AclOperation.READ not in allowed
        )

    def each_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks | IngestError]:
        """Return what `watermarks` does, or why a partition's offsets could not be read, by three requests to each broker for all, and
        up to three more for topics with the broker's timestamps."""
        partitions = list(partitions)
        by_broker = self._with_broker_time({source.topic for source in partitions})
        begins = self._each_offset(partitions, OffsetSpec.earliest())
        asked_at = _milliseconds()
        # A partition that gave no answer is not asked again: it would be waited for each time.
        hiding = self._hiding(_with_offset(begins), by_broker, asked_at)
        written = self._each_offset(_with_offset(begins), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        # Asked last, so that records written meanwhile count as readable and not as undecided.
        ends = self._each_offset(_with_offset(written), OffsetSpec.latest())
        kinds = self.broker_sets_times({source.topic for source in _with_offset(ends)}.intersection(by_broker))
        marks: dict[TopicPartition, Watermarks | IngestError] = {}
        for source in partitions:
            answers = [asked[source] for asked in (begins, ends, written) if source in asked]
            offsets = [answer for answer in answers if isinstance(answer, int)]
            errors = [answer for answer in answers if isinstance(answer, IngestError)]
            marks[source] = (
                errors[0] if errors else _marks(offsets, asked_at, kinds.get(source.topic, False), source in hiding)
            )
        return marks

    def each_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks | IngestError]:
        """Return what `each_watermarks` does, by half of the requests: the last stable offset of each partition counts as its first, too."""
        ends = self._each_offset(partitions, OffsetSpec.latest())
        return {source: Watermarks(end, end) if isinstance(end, int) else end for source, end in ends.items()}

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        """Where partitions without a commit start, according to `starting_offsets`."""
        policy = self._source.starting_offsets
        if policy == "earliest":
            return {source: marks.begin for source, marks in watermarks.items()}
        if policy == "latest":
            return {source: marks.end for source, marks in watermarks.items()}
        at = getattr(policy, "timestamp", None)
        if isinstance(at, datetime):
            return self.offsets_at(at, watermarks)
        named: Any = policy
        return {
            source: int(named.get(source.topic, {}).get(source.partition, marks.begin))
            for source, marks in watermarks.items()
        }

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets of these partitions, without those that have none."""
        places = [KafkaTopicPartition(source.topic, source.partition) for source in sorted(partitions)]
        answers = self._of_group(group, lambda client: client.committed(places)) if places else []
        return {TopicPartition(place.topic, place.partition): place.offset for place in answers if place.offset >= 0}

    def commit_group_offsets(self, group: str, offsets: Offsets) -> None:
        """Set the group's offsets (the next ones to read), so that lag monitoring tools see them."""
        places = [
            KafkaTopicPartition(source.topic, source.partition, offset) for source, offset in sorted(offsets.items())
        ]
        for place in self._of_group(group, lambda client: client.commit(places)):
            # A partition that no longer exists has no lag to watch.
            if place.error and place.error.code() not in _NOT_A_TOPIC:
                raise KafkaUnreachable(
                    f"consumer group {group}: the offset of {place.topic}:{place.partition} was not accepted: "
                    f"{place.error.str()}. The table is not affected; the next commit sets it again.",
                    servers=self._source.bootstrap_servers,
                    topic=place.topic,
                    partition=place.partition,
                )

    def _of_group(
        self, group: str, ask: Callable[[GroupClient], Sequence[KafkaTopicPartition]]
    ) -> Sequence[KafkaTopicPartition]:
        """The answer of the group's coordinator, retried while the coordinator is being elected."""
        deadline = time.monotonic() + self._seconds
        trouble = self._clients.trouble
        while True:
            try:
                with self._clients.of_group(group) as client:
                    return ask(client)
            except KafkaException as error:
                if _is_of(error, _NOT_A_TOPIC):
                    return []
                if not _is_of(error, _COORDINATOR_MOVES) or time.monotonic() > deadline:
                    explained = trouble.explained(
                        f"ask for the offsets of consumer group {group}",
                        answer_text(error),
                        self._source,
                        operation="Read",
                        topic=", ".join(sorted(self._source.topics)),
                        group=group,
                    )
                    if isinstance(explained, KafkaRefused) or trouble.all_down or not _is_of(error, _NO_COORDINATOR):
                        raise explained from error
                    raise KafkaUnreachable(
                        f"consumer group {group} has no coordinator at Kafka {self._source.bootstrap_servers}: "
                        f"{answer_text(error)}. The broker that keeps its offsets is down, or their partition of __consumer_offsets has no "
                        "leader: `kafka-topics.sh --describe --unavailable-partitions` shows which; start its brokers. Tables are not "
                        "affected, only tools that show the group's lag; its offsets are set once it has a coordinator.",
                        servers=self._source.bootstrap_servers,
                    ) from error
            time.sleep(_AGAIN_SECONDS)

    def _topic(self, name: str, answer: Future[Any]) -> Topic:
        try:
            description = self._wait(answer)
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, TimeoutError) or error.args[0].code() not in _NOT_A_TOPIC:
                raise self._failed(f"describe topic {name}", error, name) from error
            pattern = self._source.topics_pattern
            similar = suggestion(name, self._on_broker()) if pattern is None else ""
            remedy = (
                "Create it, or correct source.topics in the pipeline file. If the file is a template that found it, and it was "
                f"deleted for good, use `hudi-ingest topics <file> --forget {name}`."
                if pattern is None
                else "The table has committed offsets of it. If it was deleted for good, exclude it in the pipeline file: "
                f"source.topics_pattern: '(?!{re.escape(name)}$){pattern}'."
            )
            raise TopicMissing(
                f"topic {name} is not on the broker at {self._source.bootstrap_servers}: {answer_text(error)}{similar or '.'} {remedy}"
            ) from error
        # A broker without topic ids returns the id zero.
        has_id = description.topic_id.get_most_significant_bits() or description.topic_id.get_least_significant_bits()
        partitions = tuple(sorted(TopicPartition(name, partition.id) for partition in description.partitions))
        return Topic(str(description.topic_id) if has_id else "", partitions)

    def _described(self, names: Collection[str], **more: bool) -> Mapping[str, Future[Any]]:
        collection = TopicCollection(names)
        return self._asked(
            lambda seconds: self._clients.admin.describe_topics(collection, request_timeout=seconds, **more)
        )

    def _once_led(
        self, ask: Callable[[], dict[TopicPartition, _Answer | IngestError]], seconds: float
    ) -> dict[TopicPartition, _Answer | IngestError]:
        """The answers when all partitions have a leader or, if that is all that is wrong, after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            answers = ask()
            errors = {type(answer) for answer in answers.values() if isinstance(answer, IngestError)}
            if errors != {LeaderMissing} or time.monotonic() > deadline:
                return answers
            time.sleep(_AGAIN_SECONDS)

    def _with_broker_time(self, topics: Collection[str]) -> list[str]:
        """Return the topics whose records have had the broker's timestamps, as far as is known. It is not asked where the file declares how
        late records are, and unknown if the broker does not let this login read the topic's settings."""
        if self._source.lateness_seconds is not None:
            return []
        long_ago = time.monotonic() - _PRODUCERS_SECONDS
        known = {topic: _kinds.get((self._source.bootstrap_servers, topic), (False, -math.inf)) for topic in topics}
        unknown = [topic for topic, (by_broker, asked_at) in known.items() if not by_broker and asked_at < long_ago]
        asked = self.broker_sets_times(unknown)
        return [topic for topic, (by_broker, _) in known.items() if asked.get(topic, by_broker)]

    def broker_sets_times(self, topics: Collection[str]) -> dict[str, bool | None]:
        """Whether each topic's records get the broker's timestamps now; None where it does not answer.

        The setting may be altered at any time. If the records of a while are to have such timestamps, ask before it and after it.
        """
        answers = self._each_settings(topics)
        asked_at = time.monotonic()
        kinds: dict[str, bool | None] = dict.fromkeys(answers)
        for topic, answer in answers.items():
            if isinstance(answer, IngestError):
                _logger.info("%s: whether the broker sets the timestamps is unknown: %s", topic, answer)
            else:
                kinds[topic] = by_broker = answer.get(_TYPE_SETTING) == "LogAppendTime"
                _kinds[self._source.bootstrap_servers, topic] = (by_broker, asked_at)
        return kinds

    def _each_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str] | IngestError]:
        """The settings of each topic, as `topic_settings`, or why there is no answer."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        if not resources:
            return {}
        answers = self._asked(lambda seconds: self._clients.admin.describe_configs(resources, request_timeout=seconds))
        return {each.name: _or_error(partial(self._settings, each.name, answer)) for each, answer in answers.items()}

    def _settings(self, topic: str, answer: Future[Any]) -> dict[str, str]:
        failed_before = self._clients.has_failed
        try:
            return {name: str(entry.value) for name, entry in self._wait(answer).items()}
        except (KafkaException, TimeoutError) as error:
            if not _is_of(error, _REFUSED):
                raise self._failed(f"read the settings of topic {topic}", error, topic) from error
            _logger.info("%s: its settings are unknown: %s", topic, answer_text(error))
            # An answer: the client is as good as before.
            self._clients.has_failed = failed_before
            return {}

    def _hiding(
        self, partitions: Iterable[TopicPartition], by_broker: Collection[str], asked_at: int
    ) -> frozenset[TopicPartition]:
        """Return the partitions with the broker's timestamps that may hide records older than two seconds at `asked_at`, and empty ones.

        A broker shows no record that its replicas lack, perhaps for half a minute after one of them has died, but knows of it: it does
        not answer a question whose answer is such a record. Its timestamps do not fall, so if it shows a record of the last two seconds
        it hides no older one, and if it shows the newest one it hides none. The end must be asked for after this.
        """
        since = OffsetSpec.for_timestamp(asked_at - round(BROKER_TIME_SECONDS * 1000))
        left = [source for source in partitions if source.topic in by_broker]
        for question in (since, OffsetSpec.max_timestamp()):
            answers = self._each_offset(left, question, IsolationLevel.READ_UNCOMMITTED)
            left = [source for source, answer in answers.items() if not isinstance(answer, int) or answer < 0]
        return frozenset(left)

    def _each_offset(
        self,
        partitions: Iterable[TopicPartition],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int | IngestError]:
        answers = self._offsets(partitions, spec, isolation)
        return {source: _or_error(partial(self._offset, source, answer)) for source, answer in answers.items()}

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, Future[Any]]:
        requests = {KafkaTopicPartition(source.topic, source.partition): spec for source in partitions}
        if not requests:
            return {}
        answers = self._asked(
            lambda seconds: self._clients.admin.list_offsets(
                requests, isolation_level=isolation, request_timeout=seconds
            )
        )
        return {TopicPartition(place.topic, place.partition): answer for place, answer in answers.items()}

    def _offset(self, partition: TopicPartition, answer: Future[Any]) -> int:
        try:
            return int(self._wait(answer).offset)
        except (KafkaException, TimeoutError) as error:
            if _is_of(error, _LEADER_MOVES):
                raise LeaderMissing(
                    f"could not read offsets at Kafka {self._source.bootstrap_servers}: {partition}: {answer_text(error)}. The "
                    "partition has no leader. If one is being elected, as after a topic was created or a broker restarted, the "
                    "next tick succeeds. Otherwise the brokers that have the partition are down: start them; "
                    "`kafka-topics.sh --describe --unavailable-partitions` names them.",
                    servers=self._source.bootstrap_servers,
                    topic=partition.topic,
                    partition=partition.partition,
                ) from error
            raise self._failed(f"read offsets of {partition.topic}", error, partition.topic) from error

    def offsets_at(self, at: datetime, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        """Each partition's first offset whose record's timestamp is not before `at`; its end if there is none."""
        spec = OffsetSpec.for_timestamp(int(at.timestamp() * 1000))
        answers = self._once_led(lambda: self._each_offset(watermarks, spec), self._seconds)
        offsets = {source: answered(answer) for source, answer in answers.items()}
        # -1: no record is that recent, so the partition starts with the next one.
        return {source: offsets[source] if offsets[source] >= 0 else marks.end for source, marks in watermarks.items()}

    def _await_answer(self) -> None:
        """Raises what `_wait` raises."""
        ask = self._clients.admin.describe_cluster
        self._wait(self._asked(lambda seconds: {"": ask(request_timeout=seconds)})[""])

    def _asked(self, ask: Callable[[float], Mapping[_Key, Future[Any]]]) -> Mapping[_Key, Future[Any]]:
        """The answers to what `ask` asks within so many seconds. All of them come at once.

        librdkafka waits for the broker that led the partitions, or was the controller, when it last saw the metadata, even if that
        one has died since. So this asks anew every second, with metadata from any broker that is up, and takes the answers that
        come first. If none come, the returned ones are not done.
        """
        deadline = time.monotonic() + self._seconds
        asked = [ask(self._seconds)]
        while True:
            ask_again_at = time.monotonic() + _ASK_AGAIN_SECONDS
            while (now := time.monotonic()) < min(ask_again_at, deadline):
                done, _ = wait([next(iter(each.values())) for each in asked], _LISTEN_SECONDS, FIRST_COMPLETED)
                self._clients.poll()
                if done or self._clients.trouble.is_final:
                    return next((each for each in asked if done.intersection(each.values())), asked[0])
            if now >= deadline:
                return asked[0]
            self._clients.renew_metadata(min(_ASK_AGAIN_SECONDS, deadline - now))
            asked.append(ask(max(deadline - time.monotonic(), _LISTEN_SECONDS)))

    def _wait(self, answer: Future[Any]) -> Any:
        """The answer. Raises KafkaException if it is an error, TimeoutError if none comes in time, or at once when every
        broker has refused the client, which would otherwise keep trying."""
        deadline = time.monotonic() + self._seconds
        try:
            while not answer.done():
                left = deadline - time.monotonic()
                if self._clients.trouble.is_final or left <= 0:
                    raise TimeoutError("no answer came")
                wait([answer], timeout=min(_LISTEN_SECONDS, left))
                self._clients.poll()
            result = answer.result()
        except BaseException:
            self._clients.has_failed = True
            raise
        self._clients.trouble.answered()
        return result

    def _failed(self, action: str, error: Exception, topic: str = "") -> KafkaRefused | KafkaUnreachable:
        return self._clients.trouble.explained(action, answer_text(error), self._source, topic=topic)


def unanswered(action: str, source: KafkaSource, trouble: Trouble, topics: Iterable[str]) -> IngestError:
    """The error for a read that got no answer. The client is not told that it may no longer describe a topic, so that is asked here."""
    error = trouble.explained(action, "no answer", source)
    if trouble.last or trouble.all_down or isinstance(error, KafkaRefused):
        return error
    try:
        answers = KafkaCluster(source).each_topic(sorted(set(topics)))
    except IngestError:
        return error
    return next((answer for answer in answers.values() if isinstance(answer, (KafkaRefused, TopicMissing))), error)


_TYPE_SETTING = "message.timestamp.type"
_kinds: dict[tuple[str, str], tuple[bool, float]] = {}
"""Known kinds of timestamps, by brokers and topic: whether they are the broker's, and when that was asked."""


def _marks(offsets: Sequence[int], asked_at: int, by_broker: bool | None, hides: bool) -> Watermarks:
    """`offsets`: the first, the last stable, and the end; `by_broker`: None if that was not answered; `hides`: see `_hiding`."""
    begin, end, written = offsets
    hides = by_broker is None or (hides and begin < written)
    return Watermarks(
        begin, max(begin, end), written=written, asked_at=asked_at, broker_time=by_broker is not False, hides=hides
    )


def _milliseconds() -> int:
    return int(time.time() * 1000)


def with_leader(
    answers: Mapping[TopicPartition, Watermarks | IngestError],
) -> dict[TopicPartition, Watermarks]:
    """The partitions that have a leader. Raises the first other error."""
    led = {}
    for source, marks in answers.items():
        if isinstance(marks, Watermarks):
            led[source] = marks
        elif not isinstance(marks, LeaderMissing):
            raise marks
    return led


def answered(answer: _Answer | IngestError) -> _Answer:
    """Return the answer. Raises it if it is an error."""
    if isinstance(answer, IngestError):
        raise answer
    return answer


def _with_offset(answers: Mapping[TopicPartition, int | IngestError]) -> list[TopicPartition]:
    return [source for source, answer in answers.items() if isinstance(answer, int)]


def _or_error(ask: Callable[[], _Answer]) -> _Answer | IngestError:
    try:
        return ask()
    except IngestError as error:
        return error


def _is_of(error: Exception, codes: Collection[int]) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in codes
