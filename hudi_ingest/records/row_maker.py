"""Turns records of one Kafka partition into rows of the table, and accounts for every other record. Pure.

Write tasks and `hudi-ingest sample` both use this module, so a sample shows what a transaction would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import MOST_NAMED, FieldsSeen
from hudi_ingest.records.changes import (
    DELETED,
    LEFT_OUT,
    OLD_KEY,
    Changes,
    KeyedRows,
    apply_chain,
    changes_of,
    marked_deletes,
    unapplicable,
    without_idle_moves,
)
from hudi_ingest.records.convert.connect.debezium import EXPECTED_VALUE, KeyChanges
from hudi_ingest.records.convert.converter import Converter, Decoded, NamesFields, Rejected, shortened
from hudi_ingest.records.convert.values import beside, decode_keys
from hudi_ingest.records.convert.wire_format import with_schema_ids
from hudi_ingest.records.hudi_keys import MAX_FOLDER_BYTES, UNSAFE, escape, folder_bytes, keyless
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.kafka_keys import KeyGuard
from hudi_ingest.records.routing import RecordType, Routing
from hudi_ingest.records.schema.evolution import table_rows
from hudi_ingest.records.times import EXPECTED_KAFKA_TIME, kafka_times, outside_years, table_times, wrong_time_text
from hudi_ingest.records.transform.chain import HIDDEN, Chain

Tombstones = Literal["skip", "fail", "row", "delete"]
"""The ways to treat a record without a value; only a keyed table's rows can be deleted."""

_DELETED_FIELD = pa.field(DELETED, pa.bool_(), nullable=False)
_READ_OVER = "._"
"""Readers pass over folders that begin so; Hudi's own begin so, too."""

_EXPECTED_FOR_TOMBSTONES = {
    "fail": "a value, because on_tombstone is fail",
    "delete": "a value, because without source.key a record does not say which key it deletes",
}

_MOST_NAMES_BYTES = 1024 * 1024
"""The size of records whose fields are named; larger ones take longer to parse than to decode."""

DECODING = "decoding"
TRANSFORMING = "transforming"
PARTITIONING = "partitioning"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one record of a batch cannot become a row. No text holds a value that is masked."""

    index: int
    """Place in the batch."""
    stage: str
    """The step that refused it: DECODING, TRANSFORMING or PARTITIONING."""
    field: str
    """"" when the record as a whole is wrong."""
    expected: str
    found: str
    rule: str = ""
    """The expectation that it violates, if that is what is wrong."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of a batch. Each record is a row, bad, skipped or filtered."""

    rows: pa.Table
    """The rows, with the table's columns and in the records' order; those of a keyed table also have the column DELETED, and LEFT_OUT
    if a value of theirs is to be filled. In a deleted row only the key, the partition columns, the ordering and Kafka's columns count; others may be null even if they
    are NOT NULL."""
    kept: pa.Array | None
    """int64 places of the rows' records in the batch, ascending; None when every record is a row. A record whose row moves
    has two rows: the delete, then the new row."""
    bad: tuple[Refusal, ...] = ()
    """Ascending by place."""
    skipped: int = 0
    """Tombstones that are no rows, and control records."""
    control: Mapping[int, str] = field(default_factory=dict)
    """The kind of each control record by its place; they are among the skipped."""
    filtered: int = 0
    """Records that a transform left out on purpose, and those of another type than the pipeline's."""
    moves: int = 0
    """Rows beyond one per record."""
    truncated_at: int | None = None
    """The offset of the last truncate that is to be applied: all rows before it are to be deleted."""
    fields: FieldsSeen | None = None
    """The fields that the decoded records had; None where nothing was decoded, or the format's fields have no names."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """How many records violate an expectation, by its name."""


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Everything that decides which rows records become. Picklable."""

    converter: Converter
    chain: Chain
    """The steps from what a record is decoded to, `chain.record`, to the table's columns without its Kafka columns."""
    columns: pa.Schema
    """The table's columns."""
    partition_by: tuple[str, ...] = ()
    hive_style: bool = True
    escaped_folders: bool = True
    record_key: tuple[str, ...] = ()
    """The columns that make the rows' keys; none where topic, partition and offset do."""
    keyed: KeyedRows | None = None
    """How rows of a keyed table are told apart; None for a table that only grows."""
    on_tombstone: Tombstones = "skip"
    """With `row`, all columns of the values may be null."""
    lenient_converter: Converter | None = None
    """The converter of values that `converter` refuses because a row would need more of them, which a delete does not; to the same
    columns, all of which may be null. None where values delete nothing."""
    key_converter: Converter | None = None
    """The converter of the records' keys; None when they are not read."""
    key_columns: pa.Schema | None = None
    """The columns that keys become: the last columns of `chain.record`."""
    routing: Routing | None = None
    """Which records are the table's own; the others are filtered. None: all are."""
    route_converter: Converter | None = None
    """To `routing.columns`."""
    key_changes: KeyChanges | None = None
    """Finds the old keys of those that the database changed; None if no values are filled."""
    record_type: RecordType | None = None
    """The records to take; others are filtered. None takes all."""
    schema_headers: bool = False
    """Whether records may name their schemas in headers; then the batches need those."""
    own_columns: tuple[str, ...] = ()
    """The columns that fields of the records' own become, not those of keys and events."""
    applies_truncates: bool = False
    """Whether truncates are more than control records."""
    key_guard: KeyGuard | None = None
    """What the records' own keys have to be; None if the table's key does not depend on them."""

    def make(
        self, source: TopicPartition, batch: pa.RecordBatch, look_at: int = 0, before: pa.RecordBatch | None = None
    ) -> BatchOutcome:
        """`batch`: records of `source`, with columns offset, timestamp and value, and key and headers where the chain, the
        key's converter or its guard reads them. `look_at`: how many records to look at for the names of their fields, which is slow.
        `before`: the records right before them, at least MOST_BETWEEN_KEYS, if they are there.

        Raises WriteIncomplete when a converter or a transform does not account for each record, and what Chain.apply and the guard of
        the key raise.
        """
        if self.schema_headers:
            before = None if before is None else with_schema_ids(before)
            return replace(self, schema_headers=False).make(source, with_schema_ids(batch), look_at, before)
        if self.routing is not None and self.route_converter is not None:
            return self._routed(self.routing, self.route_converter, source, batch, look_at)
        whole, count = batch, batch.num_rows
        batch, places, bad, skipped = self._without_tombstones(batch)
        batch, places, others = self._without_other_types(batch, places)
        if "timestamp" in self._kafka_kinds:
            batch, places, wrong = self._without_wrong_times(batch, places)
            bad += wrong
        if not batch.num_rows:
            none = pa.array([], pa.int64())
            return BatchOutcome(self._row_columns.empty_table(), none, tuple(bad), skipped, filtered=others)

        decoded = self._decoded(batch)
        bad += _refusals(DECODING, [fault for fault in decoded.rejected if not fault.control], places)
        control = {
            fault.index if places is None else places[fault.index].as_py(): fault.control
            for fault in decoded.rejected
            if fault.control
        }
        skipped += len(control)
        _require_all(source, batch.num_rows, decoded.rows.num_rows + len(decoded.rejected), "decoded")
        fields = self._fields_seen(batch["value"], decoded.rows, look_at)
        if decoded.kept is not None:
            batch = batch.take(decoded.kept)
            places = _of(places, decoded.kept)
        if self.key_guard is not None:
            # Records that are no change of a row, like a truncate, may have another key or none.
            self.key_guard.require(source, batch)

        record = self._beside_kafka(decoded.rows, batch, source)
        if self.keyed is not None:
            outcome = self._keyed_rows(self.keyed, record, batch["value"], places)
        else:
            outcome = self._appended_rows(source, record, places)
        bad += outcome.bad
        bad.sort(key=lambda refusal: refusal.index)
        filtered = outcome.filtered + others
        accounted = outcome.rows.num_rows - outcome.moves + skipped + filtered + len(bad)
        _require_all(source, count, accounted, "accounted for")
        truncates = [place for place, kind in control.items() if kind == "truncates" and self.applies_truncates]
        outcome = replace(
            outcome,
            bad=tuple(bad),
            skipped=skipped,
            control=control,
            filtered=filtered,
            truncated_at=whole["offset"][max(truncates)].as_py() if truncates else None,
            fields=fields,
        )
        lenient = self.lenient_converter
        outcome = outcome if lenient is None else self._with_deletes(outcome, lenient, source, whole)
        if self.key_changes is None or LEFT_OUT not in outcome.rows.column_names:
            return outcome
        return _with_old_keys(self.key_changes, outcome, [part for part in (before, whole) if part is not None])

    def _fields_seen(self, values: pa.BinaryArray, rows: pa.RecordBatch, look_at: int) -> FieldsSeen | None:
        """Compare the records' fields with the columns. A tombstone has no fields, and a deleted row has only its key."""
        deletes = rows[DELETED].true_count if DELETED in rows.schema.names else 0
        if not isinstance(self.converter, NamesFields) or values.null_count + deletes >= len(values):
            return None
        names = frozenset[str]()
        if look_at:
            looked_at = values.slice(0, look_at).drop_null()
            sizes = np.cumsum(pc.binary_length(looked_at).to_numpy(zero_copy_only=False))
            names = self.converter.fields(looked_at.slice(0, int(np.searchsorted(sizes, _MOST_NAMES_BYTES)) + 1))
        absent = [name for name in self.own_columns if name not in names and rows[name].null_count == rows.num_rows]
        others = sorted(shortened(name) for name in names.difference(self.own_columns))
        return FieldsSeen(tuple(absent), tuple(others[:MOST_NAMED]), len(absent) < len(self.own_columns))

    def _routed(
        self, routing: Routing, converter: Converter, source: TopicPartition, batch: pa.RecordBatch, look_at: int
    ) -> BatchOutcome:
        """The outcome of the table's own records. Those of other tables are filtered before they are decoded: they may have other
        fields."""
        own, rejected = routing.judge(converter, batch["value"])
        outcome = replace(self, routing=None, route_converter=None).make(source, batch.take(own), look_at)
        bad = _refusals(DECODING, [self.chain.redact(refused) for refused in rejected], None)
        bad += [replace(refusal, index=own[refusal.index].as_py()) for refusal in outcome.bad]
        bad.sort(key=lambda refusal: refusal.index)
        filtered = outcome.filtered + batch.num_rows - len(own) - len(rejected)
        kept = own if outcome.kept is None else _of(own, outcome.kept)
        return replace(outcome, kept=kept, bad=tuple(bad), filtered=filtered)

    def _appended_rows(self, source: TopicPartition, record: pa.RecordBatch, places: pa.Array | None) -> BatchOutcome:
        transformed = self.chain.apply(record)
        bad = _refusals(TRANSFORMING, transformed.rejected, places)
        accounted = transformed.rows.num_rows + len(transformed.rejected) + transformed.filtered
        _require_all(source, record.num_rows, accounted, "transformed")
        if transformed.kept is not None:
            places = _of(places, transformed.kept)
        rows, places, unplaced = self._without_unplaceable(table_rows(transformed.rows, self.columns), places)
        bad += unplaced
        return BatchOutcome(rows, places, tuple(bad), filtered=transformed.filtered, violations=transformed.violations)

    def _keyed_rows(
        self, keyed: KeyedRows, record: pa.RecordBatch, values: pa.BinaryArray, places: pa.Array | None
    ) -> BatchOutcome:
        located = (*keyed.key, *self.partition_by)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        applied = apply_chain(self.chain, changes_of(record, tombstones, self.chain.sources(located)))
        changes = without_idle_moves(marked_deletes(applied.changes, keyed.delete_field), located)
        rows = table_rows(changes.rows, self.columns)
        unplaced = self._unplaceable(rows, changes.deleted)
        left_out, unfit = self._to_fill(changes, {*located, *([keyed.delete_field] if keyed.delete_field else [])})
        rejected = unfit | applied.rejected
        stages = dict.fromkeys(rejected, TRANSFORMING)
        for index in sorted(unplaced):
            at = int(changes.records[index])
            if at not in rejected:
                rejected[at], stages[at] = unplaced[index], PARTITIONING
        rows = rows.append_column(_DELETED_FIELD, pa.array(changes.deleted))
        if left_out is not None:
            rows = rows.append_column(LEFT_OUT, left_out)
        records = changes.records
        if rejected:
            # Of a record whose row moves, both rows go.
            good = ~np.isin(records, list(rejected))
            rows, records = rows.filter(pa.array(good)), records[good]
        bad = [
            refusal
            for at in sorted(rejected)
            for refusal in _refusals(stages[at], [replace(rejected[at], index=at)], places)
        ]
        moves = int(np.count_nonzero(records[1:] == records[:-1]))
        filtered = record.num_rows - (len(records) - moves) - len(bad)
        return BatchOutcome(
            rows,
            _of(places, pa.array(records)),
            tuple(bad),
            filtered=filtered,
            moves=moves,
            violations=applied.violations,
        )

    def _to_fill(self, changes: Changes, decisive: set[str]) -> tuple[pa.Array | None, dict[int, Rejected]]:
        """Which columns of each row are to be filled, as in LEFT_OUT; None if there are none. And the records whose rows cannot be
        filled: the transforms mix what the database left out with other values, or decide by it, or it is one of the `decisive`
        columns, or the row moves."""
        if changes.left_out is None:
            return None, {}
        columns: dict[frozenset[str], list[str] | None] = {}
        moved = {*changes.records[1:][changes.records[1:] == changes.records[:-1]].tolist()}
        to_fill: list[list[str] | None] = [None] * len(changes.records)
        unfit: dict[int, Rejected] = {}
        present = changes.left_out.is_valid().to_numpy(zero_copy_only=False) & ~changes.deleted
        for place in np.flatnonzero(present).tolist():
            fields, record = frozenset(changes.left_out[place].as_py()), int(changes.records[place])
            if fields not in columns:
                computed = self.chain.computed_from(fields)
                columns[fields] = (
                    None if computed is None or computed & decisive else sorted(computed & {*self.columns.names})
                )
            to_fill[place] = columns[fields] or None
            if columns[fields] is None or record in moved:
                unfit[record] = Rejected(
                    record, min(fields), EXPECTED_VALUE, "the placeholder of a value that was left out"
                )
        return pa.array(to_fill, pa.list_(pa.string())), unfit

    def _with_deletes(
        self, outcome: BatchOutcome, lenient: Converter, source: TopicPartition, batch: pa.RecordBatch
    ) -> BatchOutcome:
        """Return the outcome with the records that are bad as rows and only delete. Which ones do is known after the transforms, of which none
        may leave out the row of a record that also writes one."""
        refused = pa.array([bad.index for bad in outcome.bad if bad.stage == DECODING], pa.int64())
        if not len(refused) or outcome.kept is None:
            return outcome
        # Changed keys are looked for once, among all rows.
        maker = replace(self, converter=lenient, lenient_converter=None, chain=self.chain.for_deletes, key_changes=None)
        found = maker.make(source, batch.take(refused))
        places = np.array(refused if found.kept is None else _of(refused, found.kept))
        deleted = found.rows[DELETED].to_numpy()
        spared = ~np.isin(places, places[~deleted])
        if not spared.any():
            return outcome
        rows = pa.concat_tables([outcome.rows, found.rows.filter(pa.array(spared))], promote_options="default")
        kept = np.concatenate([np.array(outcome.kept), places[spared]])
        order = np.argsort(kept, kind="stable")
        good = {*places[spared].tolist()}
        bad = tuple(refusal for refusal in outcome.bad if refusal.index not in good)
        moves = outcome.moves + int(spared.sum()) - len(good)
        return replace(outcome, rows=rows.take(order), kept=pa.array(kept[order]), bad=bad, moves=moves)

    def _without_tombstones(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None, list[Refusal], int]:
        """The records that have a value or may do without, their places, the bad ones, and how many are skipped."""
        if not batch["value"].null_count or self.on_tombstone == "row" or self._deletes_by_key:
            return batch, None, [], 0
        valid = pc.is_valid(batch["value"])
        places = pc.indices_nonzero(valid).cast(pa.int64())
        if self.on_tombstone == "skip":
            return batch.filter(valid), places, [], batch["value"].null_count
        expected = _EXPECTED_FOR_TOMBSTONES[self.on_tombstone]
        bad = [_tombstone(place, expected) for place in pc.indices_nonzero(pc.invert(valid)).to_pylist()]
        return batch.filter(valid), places, bad, 0

    def _without_other_types(
        self, batch: pa.RecordBatch, places: pa.Array | None
    ) -> tuple[pa.RecordBatch, pa.Array | None, int]:
        """The records of the wanted type, their places, and how many others there are."""
        others = self.record_type.others(batch["value"]) if self.record_type is not None else None
        if others is None or not others.any():
            return batch, places, 0
        remaining = pa.array(np.flatnonzero(~others), pa.int64())
        return batch.take(remaining), _of(places, remaining), int(others.sum())

    def _without_unplaceable(
        self, rows: pa.Table, places: pa.Array | None
    ) -> tuple[pa.Table, pa.Array | None, list[Refusal]]:
        """The rows that the table can hold, their places, and the others."""
        homeless = self._unplaceable(rows)
        if not homeless:
            return rows, places, []
        refused = [homeless[index] for index in sorted(homeless)]
        remaining = pa.array([index for index in range(rows.num_rows) if index not in homeless], pa.int64())
        return rows.take(remaining), _of(places, remaining), _refusals(PARTITIONING, refused, places)

    def _unplaceable(self, rows: pa.Table, deleted: npt.NDArray[np.bool_] | None = None) -> dict[int, Rejected]:
        """The rows that the table cannot hold and those that delete nothing: each one's place in `rows` and the reason."""
        refused = {**self._timeless(rows, deleted), **self._homeless(rows)}
        if self.keyed is not None and deleted is not None:
            refused |= unapplicable(rows, deleted, self.keyed, self.partition_by)
        hides = self.chain.hides
        return {
            index: replace(refusal, found=HIDDEN) if hides(refusal.field) else refusal
            for index, refusal in refused.items()
        }

    def _decoded(self, batch: pa.RecordBatch) -> Decoded:
        """The columns of the values, then those of the keys. What is said of rejected records shows nothing that is masked."""
        values = self._redacted(self._decoded_values(batch["value"]))
        if self.key_converter is None or self.key_columns is None:
            return values
        keys = decode_keys(self.key_converter, self.key_columns, batch["key"])
        return beside(values, self._redacted(keys), batch.num_rows)

    def _redacted(self, decoded: Decoded) -> Decoded:
        return (
            replace(decoded, rejected=tuple(map(self.chain.redact, decoded.rejected))) if decoded.rejected else decoded
        )

    def _decoded_values(self, values: pa.BinaryArray) -> Decoded:
        """Decode the values; a tombstone becomes a row of nulls."""
        if not values.null_count:
            return self.converter.decode(values)
        of_keys = len(self.key_columns) if self.key_columns is not None else 0
        schema = pa.schema([*self.chain.record][: len(self.chain.record) - of_keys])
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        present = np.flatnonzero(valid)
        if not len(present):
            nulls = [pa.nulls(len(values), field.type) for field in schema]
            return Decoded(pa.RecordBatch.from_arrays(nulls, schema=schema), None, ())
        decoded = self.converter.decode(values.filter(pa.array(valid)))
        decoded_places = present if decoded.kept is None else present[decoded.kept.to_numpy(zero_copy_only=False)]
        picks = np.full(len(values), -1)
        picks[decoded_places] = np.arange(len(decoded_places))
        stays = ~valid
        stays[decoded_places] = True
        picks = picks[stays]
        rows = decoded.rows.take(pa.array(picks, pa.int64(), mask=picks < 0))
        kept_places = pa.array(np.flatnonzero(stays), pa.int64()) if decoded.rejected else None
        return Decoded(
            rows,
            kept_places,
            tuple(replace(refusal, index=int(present[refusal.index])) for refusal in decoded.rejected),
        )

    def _beside_kafka(self, record: pa.RecordBatch, batch: pa.RecordBatch, source: TopicPartition) -> pa.RecordBatch:
        """The decoded fields, then the Kafka columns that the transforms read and that the table has."""
        fields = [KAFKA_FIELDS[kind] for kind in self._kafka_kinds]
        columns = [_kafka_column(kind, batch, source) for kind in self._kafka_kinds]
        return pa.RecordBatch.from_arrays([*record.columns, *columns], schema=pa.schema([*record.schema, *fields]))

    @property
    def _deletes_by_key(self) -> bool:
        return self.on_tombstone == "delete" and self.key_converter is not None

    @property
    def _row_columns(self) -> pa.Schema:
        return self.columns if self.keyed is None else self.columns.append(_DELETED_FIELD)

    @property
    def _kafka_kinds(self) -> tuple[str, ...]:
        """Return the Kafka columns that the transforms read or the table has, by their keys in KAFKA_FIELDS."""
        names = set(self.columns.names)
        return tuple(kind for kind, field in KAFKA_FIELDS.items() if kind in self.chain.kafka or field.name in names)

    def _without_wrong_times(
        self, batch: pa.RecordBatch, places: pa.Array | None
    ) -> tuple[pa.RecordBatch, pa.Array | None, list[Refusal]]:
        """The records whose Kafka timestamps a table can hold, their places, and the others."""
        times = kafka_times(batch["timestamp"])
        outside = outside_years(times)
        if not outside.true_count:
            return batch, places, []
        name = KAFKA_FIELDS["timestamp"].name
        wrong = [
            Rejected(
                index,
                name,
                EXPECTED_KAFKA_TIME,
                HIDDEN if name in self.chain.masked else wrong_time_text(times[index].value),
            )
            for index in pc.indices_nonzero(outside).to_pylist()
        ]
        inside = pc.indices_nonzero(pc.invert(outside)).cast(pa.int64())
        return batch.take(inside), _of(places, inside), _refusals(DECODING, wrong, places)

    def _timeless(self, rows: pa.Table, deleted: npt.NDArray[np.bool_] | None) -> dict[int, Rejected]:
        """Rows, by their places, whose record has no Kafka timestamp although the table has a column of it that is never
        null, as older versions made it. Converters see to all other columns."""
        refused: dict[int, Rejected] = {}
        for name in (column.name for column in rows.schema if not column.nullable and rows[column.name].null_count):
            null = pc.is_null(rows[name])
            for index in pc.indices_nonzero(null if deleted is None else pc.and_(null, pa.array(~deleted))).to_pylist():
                expected = "a Kafka timestamp, because this column of the table is NOT NULL"
                refused[index] = Rejected(index, name, expected, "a record without one")
        return refused

    def _homeless(self, rows: pa.Table) -> dict[int, Rejected]:
        """Rows, by their places in `rows`, that have no record key, or that no folder of the table can be named after."""
        refused: dict[int, Rejected] = {}
        if self.record_key and self.keyed is None:
            expected = "a value, because the table's record key is made of it"
            for index in pc.indices_nonzero(keyless(rows, self.record_key)).to_pylist():
                refused[index] = Rejected(index, self.record_key[0], expected, "null or an empty text")
        for name in self.partition_by:
            column = rows[name]
            if column.type != pa.string():
                continue
            # An escaped byte becomes three, so shorter values need no closer look; that is nearly always all of them.
            most = (MAX_FOLDER_BYTES - folder_bytes(name, " ", self.hive_style) + 1) // 3
            suspect = pc.greater(pc.binary_length(column), most)
            if not self.hive_style:
                suspect = pc.or_(suspect, pc.match_substring_regex(column, f"^[{_READ_OVER}]"))
            if not self.escaped_folders:
                suspect = pc.or_(suspect, pc.match_substring_regex(column, UNSAFE))
            if not pc.any(suspect).as_py():
                continue
            for index in pc.indices_nonzero(suspect).to_pylist():
                fault = self._folder_fault(index, name, column[index].as_py())
                if fault is not None:
                    refused.setdefault(index, fault)
        return refused

    def _folder_fault(self, index: int, name: str, value: str) -> Rejected | None:
        size = folder_bytes(name, value, self.hive_style)
        if size > MAX_FOLDER_BYTES:
            expected = f"a value that makes a folder name of at most {MAX_FOLDER_BYTES} bytes, because the table is partitioned by it"
            return Rejected(index, name, expected, f"one of {size} bytes, {value[:20]!a}…")
        if not self.escaped_folders and escape(value) != value:
            expected = (
                "a value without signs like / : = %, because it is a folder's name, and the table does not escape them"
            )
            return Rejected(index, name, expected, f"{value[:20]!a}")
        if not self.hive_style and value.startswith(tuple(_READ_OVER)):
            expected = (
                "a value that does not begin with . or _, because it is a folder's name, and table.hive_style is false"
            )
            return Rejected(index, name, expected, f"{value[:20]!a}")
        return None


def _kafka_column(kind: str, batch: pa.RecordBatch, source: TopicPartition) -> pa.Array:
    if kind == "topic":
        return pa.repeat(source.topic, batch.num_rows)
    if kind == "partition":
        return pa.repeat(pa.scalar(source.partition, KAFKA_FIELDS[kind].type), batch.num_rows)
    if kind == "timestamp":
        return table_times(kafka_times(batch[kind]))
    return batch[kind].cast(KAFKA_FIELDS[kind].type)


def _tombstone(place: int, expected: str) -> Refusal:
    return Refusal(place, DECODING, "", expected, "a tombstone, which has none")


def _refusals(stage: str, rejected: Iterable[Rejected], places: pa.Array | None) -> list[Refusal]:
    return [
        Refusal(
            refusal.index if places is None else places[refusal.index].as_py(),
            stage,
            refusal.field,
            refusal.expected,
            refusal.found,
            refusal.rule,
        )
        for refusal in rejected
    ]


def _of(places: pa.Array | None, kept: pa.Array) -> pa.Array:
    return kept if places is None else places.take(kept)


def _require_all(source: TopicPartition, records: int, accounted: int, done: str) -> None:
    if accounted != records:
        raise WriteIncomplete(f"{source}: of {records} records {accounted} were {done}; nothing of them is visible")


def _with_old_keys(key_changes: KeyChanges, outcome: BatchOutcome, records: list[pa.RecordBatch]) -> BatchOutcome:
    """Add OLD_KEY to the rows of the last of the `records`."""
    lacking = np.flatnonzero(outcome.rows[LEFT_OUT].is_valid().to_numpy())
    places = lacking if outcome.kept is None else np.array(outcome.kept)[lacking]
    first = sum(part.num_rows for part in records[:-1])
    offsets, values = (pa.concat_arrays([part[name] for part in records]) for name in ("offset", "value"))
    found = key_changes.old_keys(offsets, values, (places + first).tolist())
    old_keys = pa.nulls(outcome.rows.num_rows, pa.int64())
    old_keys = pc.replace_with_mask(old_keys, pa.array(np.isin(np.arange(len(old_keys)), lacking)), found)
    return replace(outcome, rows=outcome.rows.append_column(OLD_KEY, old_keys))
