"""Audits a table: compares its rows, and its topics' records as far as the broker has them, with the certificates of its commits; and
row by row where those differ or are missing, or the table is keyed. And compares what commits, ledger, consumer group and storage say of
each other. Reads with Arrow, without a JVM. docs/guarantees.md has the rules."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import NothingToDo, TableMismatch
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.current_rows import BASE_FILE, LOG_FILE
from hudi_ingest.hudi.files.file_groups import FileGroup, decode
from hudi_ingest.hudi.files.live_files import group_of, hidden_text, is_log
from hudi_ingest.hudi.options import ESCAPED_FOLDERS_PROPERTY, record_key_of
from hudi_ingest.hudi.storage.paths import EPOCH_PATH, path_in
from hudi_ingest.hudi.storage.storage import TableStorage, reaching
from hudi_ingest.hudi.timeline.ownership import require_metadata_table, require_own_table
from hudi_ingest.hudi.timeline.pipeline_table import NEWEST_COMMITS, PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Instants, Timeline, column_range
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.accounting import Accounting, Contradiction, contradictions
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, difference, ranges, union
from hudi_ingest.model.plan import LossReason, TransactionKind
from hudi_ingest.model.stretches import Stretch, stretches_of
from hudi_ingest.operations.requests.asked_ranges import in_time
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.hudi_keys import partition_path, record_keys
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.schema.evolution import table_rows
from hudi_ingest.transaction.checks import lost_commits, lost_text
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.planning import Situation, observe

_BATCH_ROWS = 64 * 1024
_MOST_COMPARED = 5_000_000
"""Offsets whose rows are compared at once."""
_FOLDER, _COMMIT_TIME = "_hoodie_partition_path", "_hoodie_commit_time"
_GENERATION = r"-g(?P<generation>\d+)$"
"""Ends the record key of a row without key columns once its topic's offsets have started over; see TopicVersion."""
GONE = "the broker no longer has its records"
NEVER_EXAMINED = "Hudi's columns but record key, partition path and commit time; the files of the metadata table, but what they list; dead letters"
"""What no audit examines."""
Numbers = npt.NDArray[np.int64]
Hashed = tuple[Numbers, Numbers]
"""Offsets, and the hash of the row of each."""
_FOREIGN = "rows without Kafka's columns, which another writer wrote"
Restarts = tuple[tuple[int, int], ...]
"""Offsets, each with the generation since which all from there on are other records than before; see TopicVersion."""
_NONE = (np.zeros(0, np.int64),) * 3


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Rows that are not as they were written. The offsets are [offset, end)."""

    topic: str
    partition: int
    offset: int
    end: int
    kind: str
    """lost, doubled, moved (to another place in Kafka, or another table partition), altered, or damaged (a file)."""
    text: str

    def is_in(self, stretch: Stretch) -> bool:
        return (
            stretch.source == TopicPartition(self.topic, self.partition) and stretch.start <= self.offset < stretch.end
        )

    def may_have(self, other: Fault) -> bool:
        same = (self.topic, self.partition) == (other.topic, other.partition)
        return same and self.offset <= other.offset < self.end

    @property
    def place(self) -> str:
        return f"{self.topic}:{self.partition} offset {self.offset}"

    def __str__(self) -> str:
        offsets = f"offset {self.offset}" if self.end == self.offset + 1 else f"offsets {self.offset} to {self.end - 1}"
        return f"{self.topic}:{self.partition} {offsets}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Audit:
    """What was examined, and all faults, ordered by topic, partition and offset."""

    pipeline: str
    rows: int = 0
    """Rows that were read in the table."""
    records: int = 0
    """Records that were read in the topics."""
    certified: int = 0
    """Rows that a certificate vouches for."""
    faults: tuple[Fault, ...] = ()
    through: Mapping[str, int] = field(default_factory=dict)
    """The offset of each partition up to which everything that was asked for is as it was written."""
    unexamined: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Facts about the table as a whole that contradict each other."""
    notes: tuple[str, ...] = ()
    """Other things that whoever reads the table should know."""
    files: int = 0
    """Base files and log files that were read."""

    @property
    def is_right(self) -> bool:
        return not self.faults and not self.problems

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked for was compared."""
        return self.is_right and not self.unexamined

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(fault.kind for fault in self.faults))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "counts": self.counts, "never_examined": NEVER_EXAMINED}


def compared(stretch: Stretch, table: Hashed, topic: Hashed | None) -> Iterator[tuple[str, int, int, str]]:
    """Yield how the rows of a stretch differ from those that its records become, or from its certificate if `topic` is None: kinds,
    first and end offsets, and texts. Both have offsets, in order, and hashes."""
    offsets, hashes = table
    certificate = stretch.certificate.rows if stretch.certificate else None
    new = np.diff(offsets, prepend=-1) != 0
    distinct, again = offsets[new], sorted({*offsets[~new].tolist()})
    faults: list[tuple[str, list[int], str]] = [("doubled", again, "the table has several rows of it")]
    if topic is not None and certificate is not None:
        # Otherwise the pipeline's file is another one now, or its transforms depend on more than the record.
        read = _are_in(topic[0], distinct)
        topic = topic if certificate in (digest(topic[1]), digest(topic[1][read])) else None
    if topic is not None:
        expected, theirs = topic
        known = _are_in(offsets, expected)
        right = hashes[known] == theirs[np.searchsorted(expected, offsets[known])]
        # Of several rows, one may be right.
        wrong = {*offsets[known][~right].tolist()} - {*offsets[known][right].tolist()} if not right.all() else set()
        lost, foreign = expected[~_are_in(expected, distinct)].tolist(), sorted({*offsets[~known].tolist()})
        faults.append(("lost", lost, "its record has a row, which is not in the table"))
        faults.append(("moved", foreign, "the table has a row, but its record has none"))
        faults.append(("altered", sorted(wrong), "its row is not the one that its record has"))
    elif stretch.rows == stretch.end - stretch.start:
        every = np.arange(stretch.start, stretch.end)
        faults.append(("lost", every[~_are_in(every, distinct)].tolist(), "the table has no row of it"))
    caveat = "" if certificate is not None else "; or the pipeline's file has changed since: no certificate says"
    for kind, places, text in faults:
        yield from ((kind, offset, offset + 1, f"{text}{caveat}") for offset in places)
    if certificate is None or stretch.rows is None or any(places for _, places, _ in faults):
        return
    missing = stretch.rows - len(offsets)
    if missing:
        text = (
            f"{missing} of {stretch.rows} rows are missing"
            if missing > 0
            else f"{-missing} rows more than were written"
        )
        yield "lost" if missing > 0 else "moved", stretch.start, stretch.end, text
    elif digest(hashes) != certificate:
        yield "altered", stretch.start, stretch.end, "the sum of its rows is not that of those that were written"


def _are_in(values: Numbers, ordered_ones: Numbers) -> npt.NDArray[np.bool_]:
    place = np.searchsorted(ordered_ones, values)
    return np.append(ordered_ones, -1)[place] == values  # type: ignore[no-any-return]


def digest(hashes: Numbers) -> int:
    return int(hashes.sum(dtype=np.int64)) & (1 << 64) - 1


def audit(
    pipeline: Pipeline,
    from_time: datetime | None,
    to_time: datetime | None,
    report: Callable[[str], None],
    ledger: Ledger | None = None,
) -> Audit:
    """Audit all that the table covers, or the slices that have records of these Kafka timestamps. `report` gets lines on the progress;
    `ledger` says which transactions were committed, if it is given.

    Raises NothingToDo, KafkaUnreachable, KafkaRefused, LeaderMissing, TableUnreachable, and what `proposed_schema` raises.
    """
    table = PipelineTable(pipeline)
    timeline, storage = table.timeline, table.storage
    # In this order, so that what is written meanwhile looks neither lost nor foreign.
    with reaching(storage, "list the files"):
        stored = storage.data_files()
    rows = ledger.transactions.history(pipeline.name, NEWEST_COMMITS) if ledger is not None else ()
    instants, before = timeline.instants(), table.committed().checkpoint
    if before is None:
        raise NothingToDo(pipeline.name, "the pipeline has not committed anything yet")
    with kept_cluster(pipeline.source) as cluster:
        group = cluster.group_offsets(pipeline.group_id, before.offsets)
    situation, groups, paths = _at_one_commit(pipeline, table)
    checkpoint, every = situation.committed.checkpoint, situation.committed.commits
    if checkpoint is None:
        raise NothingToDo(pipeline.name, "the table has been rolled back or replaced meanwhile")
    own = _own_commits(pipeline, every)
    accountings = {sequence: commit.accounting(pipeline.transaction_key) for sequence, commit in own.items()}
    wrong = [*contradictions(checkpoint, [*accountings.values()][::-1])]
    unlisted = table.unlisted(every, None)
    problems = [*_wrong_properties(pipeline, timeline, storage)]
    problems += (f"the checkpoint contradicts the accountings of its commits: {each}" for each in wrong)
    lost = lost_commits(pipeline.table.base_path, situation.committed, rows)
    problems += [lost_text(lost)] if lost else _ahead(pipeline, checkpoint, group, {each.source for each in wrong})
    problems += [hidden_text(pipeline.name, pipeline.table.base_path, unlisted)] if unlisted else []
    checkpoint = corrected(checkpoint, wrong)
    stretches = stretches_of(accountings.values(), checkpoint)
    chosen = stretches
    if from_time is not None:
        chosen = [*map(Stretch.of, in_time(pipeline, situation, from_time, to_time))]
    since, unknown = starts_over(accountings.values(), checkpoint)
    properties = timeline.properties()
    record_key = record_key_of(properties)
    if record_key:
        # Their rows do not say of which of the records they are.
        unknown |= since.keys()
    schema = timeline.schema()
    stretches, columns_at, changed = _as_written(stretches, own, schema)
    live = {*paths, *(path_in(each.partition_path, name) for each in groups for name in each.files)}
    unnamed = unnamed_files((file.path for file in stored), instants, every, live, {*_instants(own.values())})
    strays = [path for path in unnamed if storage.file(path) is not None]
    by_instant = {own[number].instant: accounting for number, accounting in accountings.items()}
    why = {index: text for index, each in enumerate(stretches) if (text := _unreadable(situation, each, wrong))}
    return Auditor(
        pipeline.name,
        storage,
        paths,
        stretches,
        frozenset(
            index
            for index, each in enumerate(stretches)
            if each.source not in unknown and any(map(each.overlaps, chosen))
        ),
        frozenset(range(len(stretches))) - why.keys(),
        partial(_read, pipeline),
        partial(_maker, pipeline, timeline, {stretch.source.topic for stretch in stretches}, len(situation.watermarks)),
        report,
        pipeline.table,
        record_key,
        properties.get(ESCAPED_FOLDERS_PROPERTY, "false") == "true",
        any(commit.operation == "DELETE_PARTITION" for commit in every),
        unexamined=[*(f"{source}: {_STARTED_OVER}" for source in sorted(unknown)), *changed],
        problems=problems,
        notes=[_strays_text(pipeline.name, strays)] if strays else [],
        why=why,
        columns_at=columns_at,
        by_instant=by_instant,
        since={source: restarts for source, restarts in since.items() if source not in unknown},
        unknown=frozenset(unknown),
        groups=groups,
        schema=schema,
        gone={
            path: f"commit {instant} published it, but the table does not list it" for path, instant in unlisted.items()
        },
        sizes=_log_sizes(own.values()),
    ).run()


def _own_commits(pipeline: Pipeline, commits: Iterable[CommittedInstant]) -> dict[int, CommittedInstant]:
    """The pipeline's commits by the numbers of their transactions, in this order."""
    key = pipeline.transaction_key
    own = {commit.accounting(key).sequence: commit for commit in commits if key in commit.metadata}
    return dict(sorted(own.items()))


def _as_written(
    stretches: Sequence[Stretch], own: Mapping[int, CommittedInstant], schema: pa.Schema
) -> tuple[list[Stretch], dict[int, frozenset[str]], list[str]]:
    """Return the stretches without the certificates that a change of columns has made useless, and why; between them, by the index of a
    stretch, the columns that it was written with, if the table has others now."""
    found, columns_at, texts = [*stretches], dict[int, frozenset[str]](), list[str]()
    for index, stretch in enumerate(stretches):
        commit = own.get(stretch.sequence) or next(iter(own.values()), None)
        if commit is None or "schema" not in commit.metadata:
            continue
        written = json.loads(commit.metadata["schema"])
        names = frozenset(field["name"] for field in written["fields"])
        if not names.issuperset(schema.names):
            columns_at[index] = names
        change = changed_columns(written, schema) if stretch.sequence in own else ""
        if change:
            texts.append(f"{stretch}: its certificate, because columns were {change}")
            found[index] = stretch.uncertified
    return found, columns_at, texts


def _read(
    pipeline: Pipeline, slices: Collection[Slice], columns: Collection[str]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    # Imported here because it loads compiled code.
    from hudi_ingest.kafka.range_reader import read_ranges

    with closing(read_ranges(pipeline.source, pipeline.group_id, slices, columns)) as batches:
        yield from batches


def _maker(pipeline: Pipeline, timeline: Timeline, topics: Collection[str], partitions: int) -> RowMaker:
    columns, now = proposed_schema(pipeline, timeline), datetime.now(timezone.utc)
    return row_maker_of(pipeline.reading(topics), columns, now, partitions)


def _at_one_commit(pipeline: Pipeline, table: PipelineTable) -> tuple[Situation, list[FileGroup], list[str]]:
    """Read the situation, and the file groups of a keyed table or the base files of another. Between the two no transaction has been
    committed: otherwise a row that it deleted would look lost."""
    while True:
        situation, timeline = observe(pipeline, table=table), table.timeline
        groups = timeline.file_groups() if pipeline.table.is_keyed else []
        paths = [] if pipeline.table.is_keyed else timeline.base_file_paths()
        after, before = (each.checkpoint for each in (table.committed(), situation.committed))
        if (before.sequence if before else 0) == (after.sequence if after else 0):
            return situation, groups, paths


_STARTED_OVER = (
    "its offsets have started over, as a loss was accepted, so they name several records, and neither the rows nor the commits on the "
    "timeline say which of them are meant"
)


def _log_sizes(commits: Iterable[CommittedInstant]) -> dict[str, int]:
    return {path: size for commit in commits for path, size in commit.files.items() if is_log(path)}


def _instants(commits: Iterable[CommittedInstant]) -> Iterator[str]:
    return (commit.instant for commit in commits)


def _wrong_properties(pipeline: Pipeline, timeline: Timeline, storage: TableStorage) -> Iterator[str]:
    """Say what of Hudi's and our own small files is gone."""
    properties = timeline.properties()
    requirements = (
        partial(require_own_table, pipeline, properties),
        partial(require_metadata_table, storage, properties),
    )
    for require in requirements:
        try:
            require()
        except TableMismatch as error:
            yield str(error)
    with reaching(storage, "look for the epoch"):
        if not storage.exists(EPOCH_PATH):
            yield (
                f"the epoch, {EPOCH_PATH}, is gone, so that a writer which comes back late is not fenced until the next transaction writes "
                "it anew: files below .hoodie were deleted, or the table was copied without them"
            )


def _ahead(
    pipeline: Pipeline, checkpoint: Checkpoint, group: Offsets, known: Collection[TopicPartition]
) -> Iterator[str]:
    """Say where the consumer group, which gets offsets after their commit, is ahead of the table."""
    ahead = [
        f"{source} {offset} instead of {checkpoint.offsets[source]}"
        for source, offset in sorted(group.items())
        if source in checkpoint.offsets and source not in known and offset > checkpoint.offsets[source]
    ]
    if ahead:
        yield (
            f"the consumer group {pipeline.group_id} is ahead of the table ({listed(ahead, 5)}): the table has lost its newest commits, by a "
            "rollback, a restore, or an older copy of it, or somebody moved the group. The next transaction reads these offsets again"
        )


def corrected(checkpoint: Checkpoint, wrong: Iterable[Contradiction]) -> Checkpoint:
    """Return the checkpoint as the accountings have it, by which rows and records are compared."""
    offsets, covered = dict(checkpoint.offsets), dict(checkpoint.covered)
    for each in wrong:
        parts = covered.get(each.source, ())
        start, end = sorted((each.read_to, each.committed or 0))
        offsets[each.source] = each.read_to
        covered[each.source] = (
            union(parts, [(start, end)]) if end == each.read_to else difference(parts, ((start, end),))
        )
    return replace(checkpoint, offsets=offsets, covered=covered)


def starts_over(
    accountings: Iterable[Accounting], checkpoint: Checkpoint
) -> tuple[dict[TopicPartition, Restarts], set[TopicPartition]]:
    """Return how the offsets of partitions started over, by the resets on the timeline; and the partitions of which that is unknown,
    because resets of their topic are archived."""
    resets = [
        [loss for loss in accounting.resets if loss.repeats]
        for accounting in sorted(accountings, key=lambda each: each.sequence)
    ]
    total = Counter(topic for losses in resets for topic in {loss.topic for loss in losses})
    before = {topic: version.generation - total[topic] for topic, version in checkpoint.topics.items()}
    since: defaultdict[TopicPartition, Restarts] = defaultdict(tuple)
    known: set[TopicPartition] = set()
    seen = Counter(before)
    for losses in resets:
        seen.update({loss.topic for loss in losses})
        for loss in losses:
            since[loss.source] += ((loss.diverges_at or 0, seen[loss.topic]),)
            if loss.diverges_at is None:
                known.add(loss.source)
    unknown = {source for source in checkpoint.offsets if before.get(source.topic, 0) > 0 and source not in known}
    return dict(since), unknown


def unnamed_files(
    stored: Iterable[str],
    instants: Instants,
    commits: Sequence[CommittedInstant],
    live: Collection[str],
    own: Collection[str],
) -> Iterator[str]:
    """Yield the stored data files that readers who list folders would take for the table's, although it does not list them and no commit
    has published them. `own`: the pipeline's own instants. The arguments must have been read in their order."""
    named = {path for commit in commits for path in commit.files}
    replaced = {group for commit in commits for group in commit.replaced}
    groups = {group_of(path) for path in live}
    seen = instants.pending | instants.completed
    for path in stored:
        name = path.rpartition("/")[2]
        match = BASE_FILE.fullmatch(name) or LOG_FILE.fullmatch(name)
        if path in live or path in named or (match is None and (name[:1] in "._" or not name.endswith(".parquet"))):
            continue
        if match is not None:
            instant = match["instant"]
            if instant in instants.pending or instant > max(seen, default=""):
                continue
            is_older = group_of(path) in groups or group_of(path) in replaced
            if is_older and (instant < min(seen) or (instant in instants.completed and instant not in own)):
                # Its commit is archived, or another writer's, which names one of several log files; cleaning deletes it.
                continue
        yield path


def _strays_text(pipeline: str, paths: Sequence[str]) -> str:
    return (
        f"the table's folders have {counted(len(paths), 'data file')} that it does not list and that no commit names "
        f"({listed(paths, 3)}): readers that list folders themselves show their rows. `hudi-ingest sweep {pipeline}` judges them"
    )


def changed_columns(written: Mapping[str, Any], schema: pa.Schema) -> str:
    """Say which columns of a commit, whose schema is Avro's, digests have no longer as they were written; "" if there are none."""
    columns = {field["name"]: json.dumps(field["type"]) for field in written["fields"]}
    gone = [name for name in columns if not name.startswith("_hoodie_") and name not in schema.names]
    whole = [name for name, kind in columns.items() if '"int"' in kind or '"long"' in kind]
    floats = [name for name in whole if name in schema.names and pa.types.is_floating(schema.field(name).type)]
    return f"dropped: {', '.join(gone)}" if gone else f"widened: {', '.join(floats)}" if floats else ""


def _unreadable(situation: Situation, stretch: Stretch, wrong: Iterable[Contradiction]) -> str:
    """Say why the broker does not have all offsets of a stretch; "" if it has."""
    source, marks = stretch.source, situation.watermarks.get(stretch.source)
    if marks is None:
        return "its partition is no longer in the topic"
    if not marks.led:
        return "its partition has no leader"
    # An offset that was changed by hand says nothing of the topic.
    losses = () if any(each.source == source for each in wrong) else situation.losses
    for loss in losses:
        if loss.source == source and loss.repeats and stretch.end > (loss.diverges_at or 0):
            return "the topic was recreated since" if loss.reason is LossReason.RECREATED else "its log was cut since"
    if stretch.end > marks.end:
        return f"its partition ends at offset {marks.end}"
    return GONE if marks.begin > stretch.start else ""


@dataclass
class Auditor:
    """One audit. The edges are functions: `read` reads offsets of topics, with these columns, and `maker` returns what makes rows of
    records now."""

    name: str
    storage: TableStorage
    paths: Sequence[str]
    """The live base files."""
    stretches: Sequence[Stretch]
    """All that the table covers, ordered by partition and offset."""
    asked: frozenset[int]
    """The indices of those to examine."""
    readable: frozenset[int]
    """The indices of those whose offsets the broker still has."""
    read: Callable[[Collection[Slice], Collection[str]], Iterator[tuple[TopicPartition, pa.RecordBatch]]]
    maker: Callable[[], RowMaker]
    report: Callable[[str], None]
    table: Table
    record_key: tuple[str, ...] = ()
    """The columns that make the rows' keys; none where topic, partition and offset do."""
    escaped: bool = True
    drops_partitions: bool = False
    faults: set[Fault] = field(default_factory=set)
    unexamined: list[str] = field(default_factory=list)
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    why: Mapping[int, str] = field(default_factory=dict)
    """Why stretches are not readable, by their indices."""
    columns_at: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """The columns that the table had when stretches were written, where they were not those of today."""
    by_instant: Mapping[str, Accounting] = field(default_factory=dict)
    """The accountings of the pipeline's own commits on the timeline."""
    since: Mapping[TopicPartition, Restarts] = field(default_factory=dict)
    unknown: frozenset[TopicPartition] = frozenset()
    """The partitions whose offsets name several records."""
    groups: Sequence[FileGroup] = ()
    """The live file groups of a keyed table."""
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The table's columns, with Hudi's; of a keyed table."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Live files that are not listed, and the reason why they should be."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of the pipeline's own log files."""
    headless: list[tuple[TopicPartition | None, Fault]] = field(default_factory=list)
    """Files of which not even the footer can be read, with their Kafka partition if that is known."""
    unreadable: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets whose rows are in damaged files."""
    doubtful: set[int] = field(default_factory=set)
    """The stretches of which something is not examined."""

    def __post_init__(self) -> None:
        # Imported here because it loads compiled code, which other commands do not need.
        from hudi_ingest.records import digests

        self.digests = digests
        self.sources = sorted({stretch.source for stretch in self.stretches})
        bounds: dict[TopicPartition, list[tuple[int, int, int]]] = {source: [] for source in self.sources}
        for index, each in enumerate(self.stretches):
            bounds[each.source].append((each.start, each.end, index))
        self.bounds = [np.array(bounds[source], np.int64).T for source in self.sources]

    def run(self) -> Audit:
        rows, records = Sums(len(self.stretches)), Sums(len(self.stretches))
        count = 0
        if self.table.is_keyed:
            count = self._compare_keys(records)
            for index in sorted(self.asked):
                self._judge(index, rows, records)
        else:
            self.report("reading the table")
            for found, _, hashes in self._hashed_rows(self.asked, None, notes=True):
                rows.add(found, hashes)
            count = int(rows.counts.sum())
            self.report("reading the topics")
            for source, found, batch in self._records(self.asked & self.readable, {"key"}):
                records.add(found, self.digests.record_hashes(source, batch))
            self._compare([index for index in sorted(self.asked) if self._judge(index, rows, records)])
        self._attribute_lost()
        lost = sorted(fault for fault in self.faults if fault.kind == "lost")
        if lost and (self.table.ttl is not None or self.drops_partitions):
            self.faults.difference_update(lost)
            self.unexamined.append(f"{lost[0]}: and {len(lost) - 1} more; table partitions have been dropped")
        certified = [index for index in self.asked if self.stretches[index].certificate is not None]
        return Audit(
            self.name,
            count,
            int(records.counts.sum()),
            int(rows.counts[certified].sum()),
            tuple(sorted(self.faults)),
            self._through(),
            tuple(dict.fromkeys(self.unexamined)),
            tuple(self.problems),
            tuple(self.notes),
            len(self.paths) + sum(bool(name) for group in self.groups for name in group.files),
        )

    def _compare_keys(self, records: Sums) -> int:
        """Read the row of each key, and compare it with the newest change of the key in the topics. Returns how many rows there are."""
        # Imported here because it loads compiled code.
        from hudi_ingest.operations.keyed_audit import Comparison, Layout, NewestChanges, TableRows, doubt_texts

        layout = Layout(self.table, self.record_key, self.escaped)
        firsts = {
            self.stretches[index].source: self.stretches[index].start for index in sorted(self.asked, reverse=True)
        }
        # Later records than those that were asked for may have replaced rows.
        wanted = frozenset(
            index
            for index in self.readable
            if self.stretches[index].source not in self.unknown
            and self.stretches[index].start >= firsts.get(self.stretches[index].source, self.stretches[index].end)
        )
        changes, maker = NewestChanges(layout), self.maker()
        self.report("reading the topics")
        for source, found, batch in self._records(wanted, {"key", "headers"}):
            asked = np.isin(found, [*(self.asked & wanted)])
            hashes = self.digests.record_hashes(source, batch)
            records.add(found[asked], hashes[asked])
            batch, code = batch.filter(pa.array(np.isin(found, [*wanted]))), self.sources.index(source)
            if batch.num_rows:
                changes.note_read(code, batch["offset"].to_numpy())
                changes.add(code, maker.make(source, batch), partial(self._contents, source))
        self.report("reading the table")
        damaged: set[int] = set()
        for path, text in self.gone.items():
            self._note_damaged_group(path, text)
            damaged.add(changes.group_number(FileGroup(*group_of(path))))
        reader = TableRows(
            self.storage,
            layout,
            self.schema,
            partial(self._reduced, maker.columns),
            self._note_damaged_group,
            self.sizes,
        )
        parts = []
        for group, rows in reader.of(self.groups):
            if rows is None:
                damaged.add(changes.group_number(group))
            elif changes.group_number(group) not in damaged:
                parts.append(rows)
        if damaged:
            self.doubtful |= self.asked
        self.report("comparing the rows of each key")
        held: defaultdict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        for accounting in self.by_instant.values():
            for account in accounting.slices:
                if account.rejected:
                    held[account.slice.source].append((account.slice.start, account.slice.end))
        comparison = Comparison(
            self.sources,
            changes,
            {source: ranges((e.start, e.end) for e in self.stretches if e.source == source) for source in self.sources},
            {
                source: ranges(
                    (self.stretches[i].start, self.stretches[i].end)
                    for i in wanted
                    if self.stretches[i].source == source
                )
                for source in self.sources
            },
            {source: ranges(parts_of) for source, parts_of in held.items()},
            frozenset(self.sources.index(source) for source in self.unknown if source in self.sources),
            layout.by == OFFSET,
            damaged,
        )
        none = {name: np.zeros(0, np.int64) for name in ("code", "offset", "hash", "key")}
        table = pa.concat_tables(parts) if parts else pa.table(none)
        for code, kind, offset, text in comparison.faults(table):
            (index,) = self._found(np.array([code]), np.array([offset]))
            if index in self.asked:
                self._fault(self.sources[code], kind, offset, offset + 1, text)
        self.unexamined += doubt_texts(comparison.doubts)
        return int(table.num_rows)

    def _reduced(self, columns: pa.Schema, path: str, rows: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
        """Return the Kafka partition, the offset and the hash of rows; see TableRows."""
        rows = with_places(rows)
        placed = pc.and_(pc.is_valid(rows[PARTITION]), pc.is_valid(rows[OFFSET]))
        offsets = pc.fill_null(rows[OFFSET], -1).combine_chunks().cast(pa.int64()).to_numpy()
        codes = source_codes(rows, self.sources)
        if not pc.all(placed, min_count=0).as_py():
            self.unexamined.append(f"{path}: {_FOREIGN}")
            codes = np.where(placed.to_numpy(), codes, -1)
        own = codes >= 0
        if own.any():
            found = self._found(codes[own], offsets[own])
            found[self._is_unknown(codes[own])] = -2
            self._note_misplaced(path, rows.filter(pa.array(own)), codes[own], found)
        contents = table_rows(rows.combine_chunks().to_batches()[0], columns)
        return codes, offsets, self.digests.row_hashes(contents, self.digests.places_of(self.sources, codes))

    def _note_damaged_group(self, path: str, text: str) -> None:
        """Note a file of a keyed table that cannot be read, at the offsets that its commit read, if they are known."""
        match = LOG_FILE.fullmatch(path.rpartition("/")[2]) or BASE_FILE.fullmatch(path.rpartition("/")[2])
        accounting = self.by_instant.get(match["instant"]) if match else None
        slices = [account.slice for account in accounting.slices if account.slice.count] if accounting else []
        first = Stretch.of(slices[0]) if slices else self.stretches[min(self.asked, default=0)]
        end = first.end if slices else max(e.end for e in self.stretches if e.source == first.source)
        self._fault(
            first.source,
            "damaged",
            first.start,
            end,
            f"file {path} cannot be read, so nothing is known of its bucket's rows: {text}",
        )

    def _attribute_lost(self) -> None:
        """Make one fault of a file whose footer cannot be read, and of the rows that are lost where it may have had them."""
        for source, fault in self.headless:
            lost = {
                each
                for each in self.faults
                if each.kind == "lost" and each.end == each.offset + 1 and (source is None or fault.may_have(each))
            }
            if lost:
                first, last = min(lost), max(lost)
                text = f"{fault.text}; {counted(len(lost), 'row')} from {first.place} to {last.place} are lost with it"
                self.faults -= {fault, *lost}
                self.faults.add(replace(fault, text=text))
                self.doubtful |= {i for i, each in enumerate(self.stretches) if any(f.is_in(each) for f in lost)}

    def _judge(self, index: int, rows: Sums, records: Sums) -> bool:
        """Return whether the rows of a stretch have to be compared one by one."""
        stretch, certificate, is_keyed = self.stretches[index], self.stretches[index].certificate, self.table.is_keyed
        why = self.why.get(index, GONE)
        if index not in self.readable and is_keyed:
            self._doubt(index, f"{why}, so the rows of its keys were read, but not compared")
            return False
        if certificate is None:
            if index not in self.readable:
                self._doubt(index, f"no certificate, and {why}")
            return not is_keyed
        if index not in self.readable:
            self.unexamined.append(f"{stretch}: {why}; only its certificate was compared")
        elif records.digest(index) != certificate.read:
            missing = 0 if stretch.records is None else stretch.records - int(records.counts[index])
            if missing > 0:
                self._doubt(index, f"{missing} of its records, which the topic no longer has (compacted away)")
            else:
                unread = f"the topic has {-missing} records that were not read"
                text = unread if missing else "the topic's records are not those that were read"
                self._fault(stretch.source, "lost" if missing else "altered", stretch.start, stretch.end, text)
                return not is_keyed
        return not is_keyed and (rows.counts[index] != stretch.rows or rows.digest(index) != certificate.rows)

    def _compare(self, indices: Sequence[int]) -> None:
        """Compare the rows of these stretches with those that their records become now, some stretches at a time."""
        group: list[int] = []
        for index in indices:
            group.append(index)
            length = sum(self.stretches[each].end - self.stretches[each].start for each in group)
            if length < _MOST_COMPARED and index != indices[-1]:
                continue
            self.report(f"comparing the rows of {length} offsets")
            again = frozenset(group) & self.readable
            maker = self.maker() if again else None
            made = ordered(self._made(maker, again)) if maker else ordered([])
            rows = ordered(self._hashed_rows(frozenset(group), maker.columns if maker else None))
            for each in group:
                source = self.stretches[each].source
                unreadable = self.unreadable.get(source, ())
                for fault in compared(self.stretches[each], rows(each), made(each) if each in again else None):
                    kind, start, end, _ = fault
                    if kind != "lost" or end > start + 1 or start not in unreadable:
                        self._fault(source, *fault)
            group = []

    def _through(self) -> dict[str, int]:
        through: dict[str, int] = {}
        for index in sorted(self.asked, reverse=True):
            stretch = self.stretches[index]
            own = [f.offset for f in self.faults if f.is_in(stretch)] + [stretch.start] * (index in self.doubtful)
            through[str(stretch.source)] = min(own) if own else through.get(str(stretch.source), stretch.end)
        return through

    def _doubt(self, index: int, text: str) -> None:
        self.doubtful.add(index)
        self.unexamined.append(f"{self.stretches[index]}: {text}")

    def _fault(self, source: TopicPartition, kind: str, start: int, end: int, text: str) -> None:
        self.faults.add(Fault(source.topic, source.partition, start, end, kind, text))

    def _found(self, codes: Numbers, offsets: Numbers) -> Numbers:
        """Return the index of each row's stretch; -1 if it is in none, and -2 if it is behind all of its partition, where transactions
        go on. `codes`: the index in `sources` of each row's partition, or -1."""
        found = np.full(len(offsets), -1)
        for code in np.flatnonzero(np.bincount(codes[codes >= 0])).tolist():
            (starts, ends, indices), own = self.bounds[code], codes == code
            place = np.searchsorted(starts, offsets[own], side="right") - 1
            inside = (place >= 0) & (offsets[own] < ends[place])
            found[own] = np.where(inside, indices[place], np.where(offsets[own] >= ends[-1], -2, -1))
        return found

    def _records(
        self, wanted: frozenset[int], columns: set[str]
    ) -> Iterator[tuple[TopicPartition, Numbers, pa.RecordBatch]]:
        """Yield the records of the topics that may be of the wanted stretches, with the index of the stretch of each."""
        own = [self.stretches[index] for index in sorted(wanted)]
        firsts = {stretch.source: stretch.start for stretch in reversed(own)}
        lasts = {stretch.source: stretch.end for stretch in own}
        slices = [Slice(source.topic, source.partition, start, lasts[source]) for source, start in firsts.items()]
        for source, batch in self.read(slices, columns) if slices else ():
            codes = np.full(len(batch), self.sources.index(source))
            yield source, self._found(codes, batch["offset"].to_numpy()), batch

    def _made(self, maker: RowMaker, wanted: frozenset[int]) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """Yield what the records of stretches become: the index of each row's stretch, its offset and its hash."""
        for source, found, batch in self._records(wanted, {"key", "headers"}):
            own = batch.filter(pa.array(np.isin(found, [*wanted])))
            if own.num_rows:
                rows = maker.make(source, own).rows
                offsets, codes = rows[OFFSET].to_numpy(), np.full(len(rows), self.sources.index(source))
                yield self._found(codes, offsets), offsets, self._contents(source, rows)

    def _contents(self, source: TopicPartition, rows: pa.Table) -> Numbers:
        """Return the hashes of rows that records become now, without the columns that the table got later than them."""
        found = self._found(np.full(len(rows), self.sources.index(source)), rows[OFFSET].to_numpy())
        hashes = np.empty(len(rows), np.int64)
        for names in {self.columns_at.get(index) for index in np.unique(found).tolist()}:
            own = (
                np.array([self.columns_at.get(index) == names for index in found.tolist()])
                if self.columns_at
                else found == found
            )
            part = rows.filter(pa.array(own))
            part = part if names is None else part.select([name for name in part.column_names if name in names])
            hashes[own] = self.digests.row_hashes(part, source)
        return hashes

    def _hashed_rows(
        self, wanted: frozenset[int], columns: pa.Schema | None, notes: bool = False
    ) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """Yield the table's rows of stretches, as `_made` does: with these columns, or those of their file. `notes`: whether what is wrong
        with files, folders and keys is noted."""
        parts = [self.stretches[index] for index in wanted]
        for path in self.paths:
            try:
                with self.storage.parquet_file(path) as file:
                    partitions, offsets = (column_range(file.metadata, name) for name in (PARTITION, OFFSET))
                    if (
                        partitions
                        and offsets
                        and not any(
                            partitions[0] <= part.source.partition <= partitions[1]
                            and part.start <= offsets[1]
                            and offsets[0] < part.end
                            for part in parts
                        )
                    ):
                        continue
                    for batch in file.iter_batches(_BATCH_ROWS):
                        rows = with_places(pa.Table.from_batches([batch]))
                        placed = pc.and_(pc.is_valid(rows[PARTITION]), pc.is_valid(rows[OFFSET]))
                        if not pc.all(placed, min_count=0).as_py():
                            self.unexamined.append(f"{path}: {_FOREIGN}")
                            rows = rows.filter(placed)
                        codes = source_codes(rows, self.sources)
                        found = self._found(codes, rows[OFFSET].to_numpy())
                        found[self._is_former(rows, codes) | self._is_unknown(codes)] = -2
                        if notes and rows.num_rows:
                            self._note_misplaced(path, rows, codes, found)
                        own = np.isin(found, [*wanted])
                        rows, codes = rows.filter(pa.array(own)), codes[own]
                        if columns is not None and rows.num_rows:
                            rows = table_rows(rows.combine_chunks().to_batches()[0], columns)
                        hashes = self.digests.row_hashes(rows, self.digests.places_of(self.sources, codes))
                        yield found[own], rows[OFFSET].to_numpy(), hashes
            except (OSError, pa.ArrowException) as error:
                if notes:
                    self._note_damaged(path, parts, error)

    def _is_former(self, rows: pa.Table, codes: Numbers) -> npt.NDArray[np.bool_]:
        """Which rows are of records that were there before their partition's offsets started over, by their record keys."""
        former = np.zeros(len(codes), np.bool_)
        if self.since and len(codes):
            named = pc.extract_regex(rows[RECORD_KEY].cast(pa.string()), _GENERATION).combine_chunks()
            numbers = pc.fill_null(pc.struct_field(named, "generation"), "0").cast(pa.int64()).to_numpy()
            offsets = rows[OFFSET].to_numpy()
            for source, restarts in self.since.items():
                own = codes == self.sources.index(source) if source in self.sources else False
                for start, generation in restarts:
                    former |= own & (offsets >= start) & (numbers < generation)
        return former

    def _is_unknown(self, codes: Numbers) -> npt.NDArray[np.bool_]:
        return np.isin(codes, [self.sources.index(source) for source in self.unknown if source in self.sources])

    def _note_damaged(self, path: str, parts: Sequence[Stretch], error: Exception) -> None:
        """Note which rows the file has, if that can be read; otherwise they are lost, too."""
        has_footer = False
        try:
            with self.storage.parquet_file(path) as file:
                has_footer = True
                names = [name for name in (TOPIC, PARTITION, OFFSET) if name in file.schema_arrow.names]
                rows = file.read(names).drop_null()
            codes, offsets = source_codes(rows, self.sources), rows[OFFSET].to_numpy()
        except (OSError, KeyError, pa.ArrowException):
            self._note_unreadable(path, parts, error, has_footer)
            return
        for code in np.unique(codes[codes >= 0]).tolist():
            source, own = self.sources[code], offsets[codes == code]
            self.unreadable.setdefault(source, set()).update(own.tolist())
            text = f"file {path} with {counted(len(own), 'row')} cannot be read: {error}"
            self._fault(source, "damaged", int(own.min()), int(own.max()) + 1, text)

    def _note_unreadable(self, path: str, parts: Sequence[Stretch], error: Exception, has_footer: bool) -> None:
        # Its file id says where it begins, unless another writer's clustering made it.
        origin = decode(path.rpartition("/")[2].partition("_")[0])
        own = [p for p in parts if origin and p.source.partition == origin.partition and p.end > origin.first_offset]
        part = min(own or parts, key=lambda each: (each.source, each.start))
        start = max(part.start, origin.first_offset) if origin and own else part.start
        place = (part.source.topic, part.source.partition, start, part.end)
        fault = Fault(*place, "damaged", f"file {path} cannot be read: {error}")
        self.faults.add(fault)
        if not has_footer:
            self.headless.append((part.source if origin and own else None, fault))

    def _note_misplaced(self, path: str, rows: pa.Table, codes: Numbers, found: Numbers) -> None:
        """Note rows in the folder of another table partition, those of offsets that the table does not cover, those with another key
        than their own, and those of another commit than their file's."""
        self._note_commit_times(path, rows, codes, found)
        folder, columns = path.rpartition("/")[0], [*self.table.partition_columns]
        wrong = [(row, "moved", "the table never covered this offset") for row in np.flatnonzero(found == -1).tolist()]
        topics = rows[TOPIC].cast(pa.string()) if TOPIC in rows.column_names else self.sources[0].topic
        place = pc.binary_join_element_wise(topics, *(rows[n].cast(pa.string()) for n in (PARTITION, OFFSET)), "-")
        keys = rows[RECORD_KEY].cast(pa.string())
        if self.record_key:
            own = record_keys(rows, self.record_key, self.table.is_keyed and len(columns) > 1)
        else:
            own, keys = place, pc.replace_substring_regex(keys, _GENERATION.replace("?P<generation>", ""), "")
        same = pc.equal(keys, own)
        wrong += [
            (row, "altered", "its record key is not that of its columns")
            for row in _where(pc.invert(pc.fill_null(same, False)))
        ]
        for values in rows.select([_FOLDER, *columns]).group_by([_FOLDER, *columns]).aggregate([]).to_pylist():
            try:
                right = partition_path(columns, [values[name] for name in columns], self.table.hive_style, self.escaped)
            except ValueError as error:
                right = str(error)
            if not right == folder == values[_FOLDER]:
                parts = [pc.is_null(rows[k]) if v is None else pc.equal(rows[k], v) for k, v in values.items()]
                text = f"its row is in the folder {folder} instead of {right}"
                wrong += [(row, "moved", text) for row in _where(reduce(pc.and_, parts))]
        for row, kind, text in wrong:
            if codes[row] >= 0 and (found[row] == -1 or found[row] in self.asked):
                offset = rows[OFFSET][row].as_py()
                self._fault(self.sources[codes[row]], kind, offset, offset + 1, f"{text} (file {path})")

    def _note_commit_times(self, path: str, rows: pa.Table, codes: Numbers, found: Numbers) -> None:
        """Note rows whose commit time is not their file's instant. Copies, clustered and compacted files keep older ones."""
        name = path.rpartition("/")[2]
        match = LOG_FILE.fullmatch(name) or BASE_FILE.fullmatch(name)
        if match is None or _COMMIT_TIME not in rows.column_names:
            return
        accounting = self.by_instant.get(match["instant"])
        is_whole = accounting is not None and (is_log(path) or accounting.kind is not TransactionKind.REPLAY)
        times = rows[_COMMIT_TIME].cast(pa.string())
        is_right = pc.equal(times, match["instant"]) if is_whole else pc.less_equal(times, match["instant"])
        wrong = [
            row
            for row in _where(pc.invert(pc.fill_null(is_right, False)))
            if codes[row] >= 0 and found[row] in self.asked
        ]
        for code in {int(codes[row]) for row in wrong}:
            own = [row for row in wrong if codes[row] == code]
            offsets = [rows[OFFSET][row].as_py() for row in own]
            text = f"{counted(len(own), 'row')} with the commit time {times[own[0]]} in a file of {match['instant']}; incremental readers go by it"
            self._fault(self.sources[code], "altered", min(offsets), max(offsets) + 1, f"{text} (file {path})")


class Sums:
    """The number of rows, or records, of each stretch, and the sum of their hashes."""

    def __init__(self, stretches: int) -> None:
        self.counts, self._hashes = np.zeros(stretches, np.int64), np.zeros(stretches, np.int64)

    def add(self, found: Numbers, hashes: Numbers) -> None:
        inside = found >= 0
        self.counts += np.bincount(found[inside], minlength=len(self.counts))
        np.add.at(self._hashes, found[inside], hashes[inside])

    def digest(self, index: int) -> int:
        return digest(self._hashes[index : index + 1])


def ordered(parts: Iterable[tuple[Numbers, Numbers, Numbers]]) -> Callable[[int], Hashed]:
    """Return a function from a stretch's index to its offsets, in order, with their hashes."""
    found, offsets, hashes = (np.concatenate(column) for column in zip(_NONE, *parts, strict=True))
    order = np.lexsort((offsets, found))
    found, offsets, hashes = found[order], offsets[order], hashes[order]

    def of(index: int) -> Hashed:
        start, end = np.searchsorted(found, [index, index + 1])
        return offsets[start:end], hashes[start:end]

    return of


def with_places(rows: pa.Table) -> pa.Table:
    """Return rows with the columns of Kafka's partition and offset, which are null where another system wrote them before a take-over."""
    for name, kind in ((PARTITION, pa.int32()), (OFFSET, pa.int64())):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), kind))
    return rows


def source_codes(rows: pa.Table, sources: Sequence[TopicPartition]) -> Numbers:
    """Return the index of each row's topic and partition in `sources`, -1 if it is not there. A table without the column of topics has
    one topic."""
    topics = (
        rows[TOPIC].cast(pa.string())
        if TOPIC in rows.column_names
        else pa.chunked_array([pa.repeat(sources[0].topic, len(rows))])
    )
    partitions = pc.fill_null(rows[PARTITION], -1).to_numpy()
    encoded = pc.fill_null(topics, "").combine_chunks().dictionary_encode()
    names, of_row = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    codes = np.full(len(rows), -1)
    for code, source in enumerate(sources):
        if source.topic in names:
            codes[(partitions == source.partition) & (of_row == names.index(source.topic))] = code
    return codes


def _where(flags: pa.ChunkedArray) -> list[int]:
    return pc.indices_nonzero(flags).to_pylist()  # type: ignore[no-any-return]
