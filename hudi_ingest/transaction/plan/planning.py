"""The next step of one pipeline: reads the table's committed offsets and the broker's watermarks, and plans.

No JVM: committed offsets come from hudi-rs, watermarks from confluent-kafka.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

from hudi_ingest.exceptions import LeaderMissing, NothingToDo, OffsetsLost, RangeRefused, TableUnreachable
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.storage.storage import advice, durability_of
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.take_over import find_take_over
from hudi_ingest.kafka.cluster import KafkaCluster, kept_cluster
from hudi_ingest.kafka.records import compare_logs, first_times
from hudi_ingest.kafka.shared_clusters import HeldOffsets
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import UNKNOWN, Completeness, Mark, mark_of, next_states
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan, LogCut, LossReason, OffsetLoss, TakeOver, TransactionPlan
from hudi_ingest.model.transaction import found_committed
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.dead_letters.copies import LetterCopies
from hudi_ingest.transaction.plan.arithmetic import (
    SHOWN,
    Lag,
    Limits,
    backlog_limit,
    fair_shares,
    find_losses,
    is_stopped,
    lag,
    leaderless_text,
    limits_of,
    reason_to_wait,
    require_held,
    require_offset_order,
    resumed,
    slice_starts,
    sources_text,
    stop_text,
    undisturbed,
)
from hudi_ingest.transaction.plan.cut_logs import LogComparer, cut_logs
from hudi_ingest.transaction.ports import listener_of

ASKED_PARTITIONS = 100
_COMPARE_SECONDS = 3.0
"""How long a look waits for the last records of partitions whose log was cut. It asks only while there are some."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of the table and the broker at one moment."""

    committed: CommittedState
    watermarks: Mapping[TopicPartition, Watermarks]
    first: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    take_over: TakeOver | None = None
    """Where the pipeline continues a table that another system wrote, until its own first commit."""
    lateness_seconds: float | None = None
    """The pipeline's `source.lateness_seconds`."""
    cuts: Mapping[TopicPartition, LogCut] = field(default_factory=dict)
    """The partitions whose log was found to be cut, now or before."""
    chosen: Mapping[TopicPartition, OffsetLoss] = field(default_factory=dict)
    """Losses with the places where a person wants their partitions to go on, if not at the broker's first offsets."""
    planned_at: datetime | None = None
    """When the last committed transaction was planned, if that is known."""

    @property
    def last_at(self) -> datetime | None:
        """The time from which the interval to the next transaction counts: when the last one was planned, which fixed its end offsets or,
        if that is unknown, when it began."""
        began_at = self.committed.last_began_at
        # A plan from after its begin is one of a clock that was set back since.
        return min(self.planned_at, began_at) if self.planned_at and began_at else began_at

    @property
    def marks(self) -> dict[TopicPartition, Mark]:
        """Where partitions end, and since when; without those of whose timestamps nothing is known."""
        marks = {source: mark_of(marks, self.lateness_seconds) for source, marks in self.watermarks.items()}
        return {source: mark for source, mark in marks.items() if mark is not None}

    @property
    def complete(self) -> dict[TopicPartition, Completeness]:
        """Up to which Kafka timestamp each partition is complete now: as of the last commit, or of this look if it has nothing to
        read. Empty before the first commit. Raises KafkaUnreachable."""
        checkpoint = self.committed.checkpoint
        if checkpoint is None:
            return {}
        losses, starts = self.losses, self.starts
        positions = {source: starts[source] for source in self.watermarks if not is_stopped(source, losses)}
        return {
            **{source: checkpoint.complete.get(source, UNKNOWN) for source in checkpoint.offsets},
            **next_states(checkpoint.complete, checkpoint.topics, positions, self.marks, not_asked=self.leaderless),
        }

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the broker's records end, of each partition with a leader."""
        return {source: marks.end for source, marks in self.watermarks.items() if marks.led}

    @property
    def leaderless(self) -> tuple[TopicPartition, ...]:
        """Partitions without a leader: what is waiting there is unknown, and the others continue without them."""
        return tuple(source for source, marks in sorted(self.watermarks.items()) if not marks.led)

    @property
    def losses(self) -> tuple[OffsetLoss, ...]:
        """Committed offsets that the broker cannot honour. Raises KafkaUnreachable."""
        losses = find_losses(self.committed.checkpoint, self.watermarks, self.topic_ids, self.cuts)
        return tuple(self.chosen.get(loss.source, loss) for loss in losses)

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """Where each partition continues, a stopped one if its loss were accepted. Raises KafkaUnreachable."""
        return slice_starts(self.committed.checkpoint, self.watermarks, self.first, self.losses)

    @property
    def lag(self) -> Lag:
        """Raises KafkaUnreachable."""
        return lag(self.starts, self.watermarks)


def observe(pipeline: Pipeline, cluster: HeldOffsets | None = None, table: PipelineTable | None = None) -> Situation:
    """Read the pipeline's situation from the table and the broker. `cluster` and `table`: those of the caller, if it has opened them.

    Raises KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable; OffsetsLost if the table lost its checkpoint or
    one of our commits; TableMismatch if another system writes it, or wrote it and it cannot be taken over.
    """
    if cluster is None:
        with kept_cluster(pipeline.source) as cluster:
            return observe(pipeline, cluster, table)
    table = table or PipelineTable(pipeline)
    # After a crash left them empty, no transaction could be planned that would restore them.
    table.timeline.restore_properties()
    committed = table.committed()
    take_over = find_take_over(pipeline, table.timeline) if committed.checkpoint is None else None
    topic_ids, watermarks = held_offsets(cluster, committed.checkpoint)
    if take_over is not None:
        require_held(take_over, watermarks, pipeline.name)
    known = committed.checkpoint.offsets if committed.checkpoint else take_over.offsets if take_over else {}
    new = {source: marks for source, marks in watermarks.items() if source not in known}
    # "latest" places only the partitions of a first start; one that appears later is new data from its first offset.
    first = (
        {source: marks.begin for source, marks in new.items()} if known else (cluster.first_offsets(new) if new else {})
    )
    if take_over is not None:
        first = {**first, **take_over.offsets}
    cuts = cut_logs(table.storage, committed.checkpoint, watermarks, topic_ids, log_comparer(pipeline))
    return Situation(committed, watermarks, first, topic_ids, take_over, pipeline.source.lateness_seconds, cuts)


def losses_now(pipeline: Pipeline, table: PipelineTable, checkpoint: Checkpoint | None) -> tuple[OffsetLoss, ...]:
    """Committed offsets that the broker cannot honour at this moment.

    Raises KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    with kept_cluster(pipeline.source) as cluster:
        topic_ids, watermarks = held_offsets(cluster, checkpoint)
    cuts = cut_logs(table.storage, checkpoint, watermarks, topic_ids, log_comparer(pipeline))
    return find_losses(checkpoint, watermarks, topic_ids, cuts)


def log_comparer(pipeline: Pipeline) -> LogComparer:
    """Return what asks the pipeline's broker whether it still has records."""
    seconds = min(_COMPARE_SECONDS, pipeline.source.request_timeout_seconds)
    return lambda last: compare_logs(pipeline.source, pipeline.group_id, last, seconds)


def confirmed_marks(source: KafkaSource, marks: Mapping[TopicPartition, Mark]) -> dict[TopicPartition, Mark]:
    """Return those of a plan's marks that are true at this moment: not those of topics whose timestamps producers set by now. If the
    broker does not answer, they have no time."""
    if source.lateness_seconds is not None or not marks:
        return dict(marks)
    with kept_cluster(source) as cluster:
        kinds = cluster.broker_sets_times({partition.topic for partition in marks})
    return {
        partition: mark if kinds[partition.topic] else Mark(mark.offset, 0)
        for partition, mark in marks.items()
        if kinds[partition.topic] is not False
    }


def held_offsets(
    cluster: HeldOffsets, checkpoint: Checkpoint | None
) -> tuple[dict[str, str], dict[TopicPartition, Watermarks]]:
    """Each topic's id and, read after it, the offsets that the broker holds of each partition.

    A partition without a leader does not stop the others if it certainly continues later where it is committed.
    """
    committed = checkpoint.offsets if checkpoint else {}
    topics = cluster.topics({source.topic for source in committed})
    topic_ids = {topic: described.topic_id for topic, described in topics.items()}
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    if checkpoint is None:
        # Where the first transaction leaves a partition out, `starting_offsets` would not decide where it begins.
        return topic_ids, cluster.watermarks(partitions)
    led = cluster.led_watermarks(partitions)
    leaderless = [partition for partition in partitions if partition not in led]
    if leaderless and not (led and all(_continues(source.topic, checkpoint, topic_ids) for source in leaderless)):
        # Waits for the leaders.
        return topic_ids, cluster.watermarks(partitions)
    offsets = {source: committed.get(source, 0) for source in leaderless}
    return topic_ids, {**led, **{source: Watermarks(offset, offset, led=False) for source, offset in offsets.items()}}


def _continues(topic: str, checkpoint: Checkpoint, topic_ids: Mapping[str, str]) -> bool:
    """Whether it is known without the partitions' offsets that the topic is the committed one, or that none is committed."""
    version = checkpoint.topics.get(topic)
    is_the_same = version is not None and bool(version.topic_id) and version.topic_id == topic_ids.get(topic)
    return is_the_same or all(source.topic != topic for source in checkpoint.offsets)


def oldest_waiting_seconds(pipeline: Pipeline, situation: Situation, now: datetime) -> float | None:
    """The age of the oldest waiting record by its Kafka timestamp, in seconds; 0 when none is waiting.

    Asks the broker for the first waiting record of up to ASKED_PARTITIONS partitions, those with the largest backlog. None
    (unknown) if these have no timestamps, or timestamps in the future, or if none waits but a partition has no leader. Raises
    KafkaUnreachable, KafkaRefused.
    """
    waiting = {source: count for source, count in situation.lag.by_partition.items() if count}
    if not waiting:
        return None if situation.leaderless else 0.0
    sources = sorted(waiting, key=lambda source: -waiting[source])[:ASKED_PARTITIONS]
    starts = situation.starts
    ranges = [
        Slice(source.topic, source.partition, starts[source], situation.watermarks[source].end) for source in sources
    ]
    times = first_times(pipeline.source, pipeline.group_id, ranges).values()
    oldest = now.timestamp() - min(times) / 1000 if times else None
    return oldest if oldest is not None and oldest >= 0 else None


def stopped_partitions(pipeline: Pipeline, situation: Situation) -> tuple[OffsetLoss, ...]:
    """Losses that a person has to accept. Raises KafkaUnreachable."""
    return tuple(loss for loss in situation.losses if not _is_skipped(pipeline, situation, loss))


def _is_skipped(pipeline: Pipeline, situation: Situation, loss: OffsetLoss) -> bool:
    """Whether the pipeline's `on_data_loss` accepts the loss without a person.

    If a topic's ids are unknown, a broker with stale metadata looks like a recreated topic, and skipping would read all of
    it twice.
    """
    if pipeline.source.on_data_loss != "skip_to_earliest":
        return False
    if loss.source in situation.leaderless:
        # Where its records begin is unknown.
        return False
    checkpoint = situation.committed.checkpoint
    version = checkpoint.topics.get(loss.topic) if checkpoint else None
    ids = version is not None and version.topic_id and situation.topic_ids.get(loss.topic)
    return loss.reason is not LossReason.RECREATED or bool(ids)


def mark_if_committed(table: PipelineTable, ledger: Ledger, transaction_id: str) -> bool:
    """Record a commit in the ledger, and tell lineage of it, if it landed but its op died before it could. Returns whether this
    call did: False if it has not landed, or is recorded.

    Raises TableUnreachable, LedgerUnreachable.
    """
    table.timeline.restore_properties()
    pipeline = table.pipeline
    instant = table.instant_of(transaction_id)
    if instant is None:
        return False
    try:
        # The op may have died before it had flushed it.
        durability_of(table.storage, pipeline.table.fsync).sync_changes(frozenset())
    except OSError as error:
        raise TableUnreachable(
            f"the commit {instant} of the table at {pipeline.table.base_path} could not be flushed to disk: {error}. "
            f"{advice(error)} The next tick tries again."
        ) from error
    recorded = ledger.transactions.mark_committed_as_found(transaction_id, instant)
    if recorded:
        listener_of(pipeline)(found_committed(transaction_id))
    return recorded


def leased_until_of(table: PipelineTable, instant: str) -> datetime | None:
    """When the lease of an open instant ends; None if it no longer has one. Raises TableUnreachable."""
    path = heartbeat_path(instant)
    try:
        heartbeat = table.storage.file(path)
    except OSError as error:
        raise TableUnreachable(
            f"cannot read {table.pipeline.table.base_path}/{path}: {error}. Check the path, its permissions and the storage; the next "
            "tick tries again."
        ) from error
    lease = timedelta(seconds=table.pipeline.transaction.timeout_seconds)
    return heartbeat.modified + lease if heartbeat else None


def keep_group_told(pipeline: Pipeline, situation: Situation, cluster: KafkaCluster | None = None) -> bool:
    """Set the consumer group's offsets to the table's if they differ, and return whether they did. `cluster`: as for `observe`.

    A commit is durable before it updates the group, and the broker may be unreachable at that moment; while records keep
    coming, the next commit updates it anyway. Raises KafkaUnreachable, KafkaRefused.
    """
    checkpoint = situation.committed.checkpoint
    if checkpoint is None:
        return False
    # A partition that is not on the broker has no lag to watch.
    committed = {source: offset for source, offset in checkpoint.offsets.items() if source in situation.watermarks}
    cluster = cluster or KafkaCluster(pipeline.source)
    group_offsets = cluster.group_offsets(pipeline.group_id, committed)
    differs = any(group_offsets.get(source) != offset for source, offset in committed.items())
    if differs:
        cluster.commit_group_offsets(pipeline.group_id, committed)
    return differs


def keep_letters_copied(pipeline: Pipeline, situation: Situation) -> int:
    """Copy the dead letters that a commit left uncopied to the pipeline's dead-letter topic, if any; returns how many.

    While records keep coming, the next commit copies them anyway. Raises KafkaUnreachable, KafkaRefused, TableUnreachable.
    """
    checkpoint = situation.committed.checkpoint
    return LetterCopies(pipeline).catch_up(checkpoint.letters if checkpoint else None)


def plan_transaction(
    *,
    pipeline: str,
    suffix: str,
    situation: Situation,
    limits: Limits,
    now: datetime,
    accepts: Callable[[OffsetLoss], bool] = lambda loss: False,
    starts_at_ends: bool = False,
) -> IngestPlan:
    """The next transaction. Pure.

    `suffix` makes the transaction's id unique among attempts at the same sequence. `next_due` and `max_wait_seconds` say when it is due
    after the table's last one; the first transaction and a full one do not wait. Every partition gets a slice, an empty one if idle; all
    are empty when a first start is pinned at the topics' ends. A partition whose committed offset the broker cannot honour
    is reset if `accepts` says so (for all partitions of a recreated topic, or for none), else it is stopped: the plan
    names it and gives it no slice. One without a leader gets an empty slice where it is committed, and none if it is not.
    `starts_at_ends`: `situation.first` holds the topics' ends, which move on until they are committed.

    Raises NothingToDo when none is due; OffsetsLost instead when a partition is stopped; and KafkaUnreachable.
    """
    checkpoint, watermarks = situation.committed.checkpoint, situation.watermarks
    losses = situation.losses
    resets = tuple(loss for loss in losses if accepts(loss))
    stopped = tuple(loss for loss in losses if not accepts(loss))
    committed = checkpoint.offsets if checkpoint else {}
    readable = {
        source: marks
        for source, marks in watermarks.items()
        if not is_stopped(source, stopped) and (marks.led or source in committed)
    }
    starts = slice_starts(checkpoint, readable, situation.first, resets)
    backlog = lag(starts, readable)
    most = backlog_limit(limits, checkpoint.record_bytes if checkpoint else 0)
    # A first start at a topic's end must be committed, or each tick would find a later end and never read anything; at the end of
    # an empty topic, too, or the records that come before the next tick would be skipped. A take-over must be, so that the table
    # belongs to this pipeline from then on, and an accepted loss too, or it would stay invisible until the next record.
    has_to_commit = bool(resets or situation.take_over) or (
        checkpoint is None
        and (starts_at_ends or any(starts[source] > marks.begin for source, marks in readable.items()))
    )
    wait = "no topic on the broker matches source.topics_pattern yet"
    if readable:
        led = len(backlog.by_partition)
        wait = reason_to_wait(backlog.total, most, led, has_to_commit, limits, now, situation.last_at)
    leaderless = situation.leaderless
    if wait and leaderless:
        wait += f"; it is unknown how many records wait in {listed(leaderless, SHOWN)}, which {'has' if len(leaderless) == 1 else 'have'} no leader"
    if wait:
        raise _lost_for_now(pipeline, stopped, wait if readable else "") if stopped else NothingToDo(pipeline, wait)
    shares = fair_shares(backlog.by_partition, most)
    sequence = checkpoint.sequence + 1 if checkpoint else 1
    return IngestPlan(
        pipeline=pipeline,
        transaction_id=f"{pipeline}-{sequence:06d}-{suffix}",
        sequence=sequence,
        slices=tuple(
            Slice(source.topic, source.partition, starts[source], starts[source] + shares.get(source, 0))
            for source in sorted(readable)
        ),
        topics={
            topic: _version(topic, checkpoint, situation.topic_ids, resets)
            for topic in sorted({source.topic for source in readable})
        },
        resets=resets,
        stopped=stopped,
        leaderless=leaderless,
        take_over=situation.take_over,
        marks={source: mark for source, mark in situation.marks.items() if source in readable},
    )


def _lost_for_now(pipeline: str, stopped: Sequence[OffsetLoss], others_wait: str) -> OffsetsLost:
    others = f"\nThe other partitions continue; now: {others_wait}." if others_wait else ""
    return OffsetsLost(
        f"pipeline {pipeline}: the broker no longer has the next offset of {sources_text(stopped)}. Nothing was "
        f"written.\n{stop_text(pipeline, stopped)}{others}",
        topic=stopped[0].topic,
        partition=stopped[0].partition,
        offset=stopped[0].committed,
    )


def _version(
    topic: str, checkpoint: Checkpoint | None, topic_ids: Mapping[str, str], resets: Iterable[OffsetLoss]
) -> TopicVersion:
    version = checkpoint.topics.get(topic, TopicVersion("")) if checkpoint else TopicVersion("")
    repeats = any(loss.topic == topic and loss.repeats for loss in resets)
    return TopicVersion(topic_ids.get(topic) or version.topic_id, version.generation + repeats)


def plan_next(
    pipeline: Pipeline,
    situation: Situation,
    *,
    now: datetime | None = None,
    at_once: bool = False,
    accepts: Callable[[OffsetLoss], bool] = lambda loss: False,
) -> IngestPlan:
    """The next transaction. `at_once` ignores the interval and min_records; `accepts` names losses
    to accept in addition to those accepted by the pipeline's `on_data_loss`. Raises NothingToDo, OffsetsLost, KafkaUnreachable;
    TableMismatch if a keyed table's offsets no longer order its records."""
    limits = limits_of(pipeline)
    plan = plan_transaction(
        pipeline=pipeline.name,
        suffix=secrets.token_hex(3),
        situation=situation,
        limits=replace(limits, interval_seconds=0, min_records=1) if at_once else limits,
        now=now or datetime.now(timezone.utc),
        accepts=lambda loss: _is_skipped(pipeline, situation, loss) or accepts(loss),
        starts_at_ends=pipeline.source.starting_offsets == "latest",
    )
    require_offset_order(pipeline, situation.committed.checkpoint, plan)
    return plan


def time_to_wait(
    pipeline: Pipeline, situation: Situation, now: datetime, planned: TransactionPlan | None = None
) -> tuple[float, int]:
    """Return what `undisturbed` does for a pipeline that has nothing to do although records are waiting, or once it has committed what is `planned`
    now."""
    limits, committed = limits_of(pipeline), situation.committed
    most = backlog_limit(limits, committed.checkpoint.record_bytes if committed.checkpoint else 0)
    waiting = situation.lag.total - (planned.count if planned else 0)
    return undisturbed(waiting, most, limits, now, now if planned else situation.last_at)


def plan_now(pipeline: Pipeline) -> IngestPlan:
    """Plan a transaction for the waiting offsets, whatever the interval.

    Raises NothingToDo, OffsetsLost, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable.
    """
    return plan_next(pipeline, observe(pipeline), at_once=True)


def plan_accepting(
    pipeline: Pipeline,
    partitions: Sequence[TopicPartition],
    topics: Sequence[str] = (),
    resumes: Mapping[TopicPartition, int | str] = MappingProxyType({}),
) -> IngestPlan:
    """Plan a transaction for the waiting offsets that accepts the losses of these stopped partitions and of all stopped
    partitions of these topics. `resumes`: others, and where they go on, if not at the broker's first offsets: an offset, or one of
    RESUMES.

    Raises NothingToDo unless each of them is stopped, RangeRefused if one cannot go on there; otherwise what `plan_now` raises.
    """
    situation = observe(pipeline)
    losses = {loss.source: loss for loss in situation.losses}
    # A recreated topic can only be accepted as a whole.
    recreated: dict[str, set[TopicPartition]] = {}
    for loss in losses.values():
        if loss.reason is LossReason.RECREATED:
            recreated.setdefault(loss.topic, set()).add(loss.source)
    whole = {topic for topic, sources in recreated.items() if topic in topics or sources <= resumes.keys()}
    acceptable = {source for source in losses if source.topic not in recreated.keys() - whole}
    named = {*partitions, *resumes}
    not_stopped = [str(source) for source in sorted(named) if source not in acceptable]
    not_stopped += [topic for topic in topics if topic not in {loss.topic for loss in losses.values()}]
    problems = [
        f"topic {topic} is another one now, so its partitions can only be accepted together: {_text(recreated[topic] - resumes.keys())} "
        f"must be named, too. --topic {topic} lets those that are not named begin at their first offsets"
        for topic in sorted({source.topic for source in resumes} & recreated.keys() - whole)
    ]
    if not_stopped and not problems:
        verb = "is" if len(not_stopped) == 1 else "are"
        stopped = f". Stopped partitions:\n{stop_text(pipeline.name, [*losses.values()])}" if losses else ""
        raise NothingToDo(
            pipeline.name, f"{', '.join(not_stopped)} {verb} not stopped, so there is no loss to accept{stopped}"
        )
    without = [source for source in situation.leaderless if source in named or source.topic in topics]
    if without:
        raise LeaderMissing(leaderless_text(without), topic=without[0].topic, partition=without[0].partition)
    chosen = {}
    for source, at in sorted(resumes.items()):
        try:
            chosen[source] = resumed(losses[source], at, situation.watermarks.get(source))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RangeRefused(f"pipeline {pipeline.name}: no loss was accepted", problems)
    return plan_next(
        pipeline,
        replace(situation, chosen=chosen),
        at_once=True,
        accepts=lambda loss: loss.source in named or loss.topic in topics,
    )


def _text(sources: Iterable[TopicPartition]) -> str:
    return listed(sorted(sources), SHOWN)
