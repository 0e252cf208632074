"""Audits a table: compares its rows, and its topics' records as far as the broker has them, with the certificates of its commits; and
row by row where those differ or are missing. Reads with Arrow, without a JVM. docs/guarantees.md has the rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.file_groups import decode
from hudi_ingest.hudi.options import ESCAPED_FOLDERS_PROPERTY, record_key_of
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import column_range
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.stretches import Stretch, stretches_of
from hudi_ingest.operations.requests.asked_ranges import in_time
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.hudi_keys import partition_path, record_keys
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.schema.evolution import table_rows
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.planning import Situation, observe

_BATCH_ROWS = 64 * 1024
_MOST_COMPARED = 5_000_000
"""Offsets whose rows are compared at once."""
_FOLDER = "_hoodie_partition_path"
_KEYED = (
    "rows of a keyed table: later changes, deletes and compactions replace them, so no sum over its files is that of what was written. "
    "Its records were compared with what was read"
)
Numbers = npt.NDArray[np.int64]
Hashed = tuple[Numbers, Numbers]
"""Offsets, and the hash of the row of each."""
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
    """Of each partition, the offset up to which everything that was asked for is as it was written."""
    unexamined: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(fault.kind for fault in self.faults))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "counts": self.counts}


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
    pipeline: Pipeline, from_time: datetime | None, to_time: datetime | None, report: Callable[[str], None]
) -> Audit:
    """Audit all that the table covers, or the slices that have records of these Kafka timestamps. `report` gets lines on the progress.

    Raises NothingToDo, KafkaUnreachable, KafkaRefused, LeaderMissing, TableUnreachable, and what `proposed_schema` raises.
    """
    table = PipelineTable(pipeline)
    situation = observe(pipeline, table=table)
    checkpoint, timeline = situation.committed.checkpoint, table.timeline
    if checkpoint is None:
        raise NothingToDo(pipeline.name, "the pipeline has not committed anything yet")
    commits = {
        commit.accounting(pipeline.transaction_key).sequence: commit
        for commit in situation.committed.commits
        if pipeline.transaction_key in commit.metadata
    }
    accountings = [commit.accounting(pipeline.transaction_key) for commit in commits.values()]
    stretches = [*stretches_of(accountings, checkpoint)]
    slices = in_time(pipeline, situation, from_time, to_time) if from_time is not None else ()
    chosen = [each for each in stretches if from_time is None or any(map(each.overlaps, map(Stretch.of, slices)))]
    recreated = {topic for topic, version in checkpoint.topics.items() if version.generation}
    unexamined = [
        f"topic {topic}: recreated, moved or cut, so its offsets name several records" for topic in sorted(recreated)
    ]
    schema = timeline.schema()
    for index, stretch in enumerate(stretches):
        commit = commits.get(stretch.sequence)
        change = changed_columns(json.loads(commit.metadata["schema"]), schema) if commit is not None else ""
        if change:
            unexamined.append(f"{stretch}: its certificate, because columns were {change}")
            stretches[index] = stretch.uncertified

    def read(slices: Collection[Slice], columns: Collection[str]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        # Imported here because it loads compiled code.
        from hudi_ingest.kafka.range_reader import read_ranges

        with closing(read_ranges(pipeline.source, pipeline.group_id, slices, columns)) as batches:
            yield from batches

    def maker() -> RowMaker:
        topics = {stretch.source.topic for stretch in stretches}
        return row_maker_of(pipeline.reading(topics), proposed_schema(pipeline, timeline), datetime.now(timezone.utc))

    return Auditor(
        pipeline.name,
        table.storage,
        [] if pipeline.table.is_keyed else timeline.base_file_paths(),
        stretches,
        frozenset(
            index
            for index, each in enumerate(stretches)
            if each.source.topic not in recreated and any(map(each.overlaps, chosen))
        ),
        frozenset(index for index, each in enumerate(stretches) if _is_readable(situation, each)),
        read,
        maker,
        report,
        pipeline.table,
        record_key_of(timeline.properties()),
        timeline.properties().get(ESCAPED_FOLDERS_PROPERTY, "false") == "true",
        any(commit.operation == "DELETE_PARTITION" for commit in situation.committed.commits),
        unexamined=unexamined,
    ).run()


def changed_columns(written: Mapping[str, Any], schema: pa.Schema) -> str:
    """Say which columns of a commit, whose schema is Avro's, digests have no longer as they were written; "" if there are none."""
    columns = {field["name"]: json.dumps(field["type"]) for field in written["fields"]}
    gone = [name for name in columns if not name.startswith("_hoodie_") and name not in schema.names]
    whole = [name for name, kind in columns.items() if '"int"' in kind or '"long"' in kind]
    floats = [name for name in whole if name in schema.names and pa.types.is_floating(schema.field(name).type)]
    return f"dropped: {', '.join(gone)}" if gone else f"widened: {', '.join(floats)}" if floats else ""


def _is_readable(situation: Situation, stretch: Stretch) -> bool:
    """Whether the broker still has all its offsets."""
    marks = situation.watermarks.get(stretch.source)
    if (
        marks is None
        or not marks.led
        or any(loss.source == stretch.source and loss.repeats for loss in situation.losses)
    ):
        return False
    return marks.begin <= stretch.start and stretch.end <= marks.end


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
        if self.table.is_keyed:
            self.unexamined.append(_KEYED)
        else:
            self.report("reading the table")
            for found, _, hashes in self._hashed_rows(self.asked, None, notes=True):
                rows.add(found, hashes)
        self.report("reading the topics")
        for source, found, batch in self._records(self.asked & self.readable, {"key"}):
            records.add(found, self.digests.record_hashes(source, batch))
        self._compare([index for index in sorted(self.asked) if self._judge(index, rows, records)])
        lost = sorted(fault for fault in self.faults if fault.kind == "lost")
        if lost and (self.table.ttl is not None or self.drops_partitions):
            self.faults.difference_update(lost)
            self.unexamined.append(f"{lost[0]}: and {len(lost) - 1} more; table partitions have been dropped")
        certified = [index for index in self.asked if self.stretches[index].certificate is not None]
        return Audit(
            self.name,
            int(rows.counts.sum()),
            int(records.counts.sum()),
            int(rows.counts[certified].sum()),
            tuple(sorted(self.faults)),
            self._through(),
            tuple(dict.fromkeys(self.unexamined)),
        )

    def _judge(self, index: int, rows: Sums, records: Sums) -> bool:
        """Return whether the rows of a stretch have to be compared one by one."""
        stretch, certificate, is_keyed = self.stretches[index], self.stretches[index].certificate, self.table.is_keyed
        if certificate is None:
            if is_keyed or index not in self.readable:
                self._doubt(
                    index, "no certificate" + ("" if is_keyed else ", and the broker no longer has its records")
                )
            return not is_keyed
        if index not in self.readable:
            self.unexamined.append(
                f"{stretch}: the broker no longer has its records; only its certificate was compared"
            )
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
                yield self._found(codes, offsets), offsets, self.digests.row_hashes(rows, source)

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
                        rows = pa.Table.from_batches([batch])
                        placed = pc.and_(pc.is_valid(rows[PARTITION]), pc.is_valid(rows[OFFSET]))
                        if not pc.all(placed, min_count=0).as_py():
                            self.unexamined.append(f"{path}: rows without Kafka's columns, which another writer wrote")
                            rows = rows.filter(placed)
                        codes = source_codes(rows, self.sources)
                        found = self._found(codes, rows[OFFSET].to_numpy())
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

    def _note_damaged(self, path: str, parts: Sequence[Stretch], error: Exception) -> None:
        """Note which rows the file has, if that can be read; otherwise they are lost, too."""
        try:
            with self.storage.parquet_file(path) as file:
                names = [name for name in (TOPIC, PARTITION, OFFSET) if name in file.schema_arrow.names]
                rows = file.read(names).drop_null()
            codes, offsets = source_codes(rows, self.sources), rows[OFFSET].to_numpy()
        except (OSError, KeyError, pa.ArrowException):
            self._note_unreadable(path, parts, error)
            return
        for code in np.unique(codes[codes >= 0]).tolist():
            source, own = self.sources[code], offsets[codes == code]
            self.unreadable.setdefault(source, set()).update(own.tolist())
            text = f"file {path} with {counted(len(own), 'row')} cannot be read: {error}"
            self._fault(source, "damaged", int(own.min()), int(own.max()) + 1, text)

    def _note_unreadable(self, path: str, parts: Sequence[Stretch], error: Exception) -> None:
        # Its file id says where it begins, unless another writer's clustering made it.
        origin = decode(path.rpartition("/")[2].partition("_")[0])
        own = [p for p in parts if origin and p.source.partition == origin.partition and p.end > origin.first_offset]
        part = min(own or parts, key=lambda each: (each.source, each.start))
        start = max(part.start, origin.first_offset) if origin and own else part.start
        self._fault(part.source, "damaged", start, part.end, f"file {path} cannot be read: {error}")

    def _note_misplaced(self, path: str, rows: pa.Table, codes: Numbers, found: Numbers) -> None:
        """Note rows in the folder of another table partition, those of offsets that the table does not cover, and those with another key
        than their own."""
        folder, columns = path.rpartition("/")[0], [*self.table.partition_columns]
        wrong = [(row, "moved", "the table never covered this offset") for row in np.flatnonzero(found == -1).tolist()]
        topics = rows[TOPIC].cast(pa.string()) if TOPIC in rows.column_names else self.sources[0].topic
        place = pc.binary_join_element_wise(topics, *(rows[n].cast(pa.string()) for n in (PARTITION, OFFSET)), "-")
        same = pc.equal(
            rows[RECORD_KEY].cast(pa.string()), record_keys(rows, self.record_key) if self.record_key else place
        )
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


def source_codes(rows: pa.Table, sources: Sequence[TopicPartition]) -> Numbers:
    """Return the index of each row's topic and partition in `sources`, -1 if it is not there. A table without the column of topics has
    one topic."""
    topics = (
        rows[TOPIC].cast(pa.string())
        if TOPIC in rows.column_names
        else pa.chunked_array([pa.repeat(sources[0].topic, len(rows))])
    )
    encoded, partitions = topics.combine_chunks().dictionary_encode(), rows[PARTITION].to_numpy()
    names, of_row = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    codes = np.full(len(rows), -1)
    for code, source in enumerate(sources):
        if source.topic in names:
            codes[(partitions == source.partition) & (of_row == names.index(source.topic))] = code
    return codes


def _where(flags: pa.ChunkedArray) -> list[int]:
    return pc.indices_nonzero(flags).to_pylist()  # type: ignore[no-any-return]
