"""The changes that records make to a keyed table: the rows they write and delete, several per record if its row moves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.model.counts import added
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.convert.values import Indexes
from hudi_ingest.records.hudi_keys import ambiguous, keyless
from hudi_ingest.records.kafka_columns import OFFSET
from hudi_ingest.records.transform.chain import Chain

DELETED = "_hudi_ingest_deleted"
"""The last column of a keyed table's rows: whether the row deletes its key. The table does not have it."""
BEFORE = "_hudi_ingest_before"
"""A struct that change formats decode beside a record's fields: some of them, as they were before the change."""

LEFT_OUT = "_hudi_ingest_left_out"
"""Lists of names: the columns whose values the database left out of a change, and for which something else stands there. Null, and
the column missing, for a change that has all values."""
OLD_KEY = "_hudi_ingest_old_key"
"""The column of a row that lacks values and is new because the database changed its key: the offset of the delete of the old key, in the same Kafka
partition; -1 if that is not known. Null, and the column missing, for all others."""

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """How a keyed table tells its rows apart."""

    key: tuple[str, ...]
    ordering: str = OFFSET
    """The column whose greatest value wins."""
    delete_field: str | None = None
    """A boolean column of the chain's output that is true for deletes."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows to write and to delete."""

    rows: pa.RecordBatch
    records: Indexes
    """The place of each row's record in the batch, ascending. A record has two rows if its row moves: first the delete."""
    deleted: _Flags
    left_out: pa.Array | None = None
    """The columns that each row lacks, as in LEFT_OUT; None if all rows have all values."""

    def of(self, chosen: _Flags) -> Changes:
        """Return the chosen rows."""
        if chosen.all():
            return self
        left_out = None if self.left_out is None else self.left_out.filter(pa.array(chosen))
        return Changes(self.rows.filter(pa.array(chosen)), self.records[chosen], self.deleted[chosen], left_out)


@dataclass(frozen=True, slots=True)
class Applied:
    """Changes after the transforms."""

    changes: Changes
    rejected: dict[int, Rejected]
    """The reasons, by the place of their record."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """The violations of `Transformed`."""


def changes_of(decoded: pa.RecordBatch, tombstones: _Flags, moving: Collection[str]) -> Changes:
    """Return what decoded records change. `moving`: the fields that decide a row's key and table partition; where they differ
    from those in the BEFORE column, the old row is deleted."""
    names = [name for name in decoded.schema.names if name not in (DELETED, BEFORE, LEFT_OUT)]
    rows = decoded.select(names)
    left_out = decoded[LEFT_OUT] if LEFT_OUT in decoded.schema.names else None
    deleted = tombstones
    if DELETED in decoded.schema.names:
        deleted = deleted | pc.fill_null(decoded[DELETED], True).to_numpy(zero_copy_only=False)
    places = np.arange(rows.num_rows)
    if BEFORE not in decoded.schema.names:
        return Changes(rows, places, deleted, left_out)
    moved = np.flatnonzero(_moved(rows, decoded[BEFORE], moving) & ~deleted)
    if not len(moved):
        return Changes(rows, places, deleted, left_out)
    images = _old_images(rows.take(pa.array(moved)), decoded[BEFORE].take(pa.array(moved)), moving)
    # A stable sort, and the old images come first.
    order = np.argsort(np.concatenate([moved, places]), kind="stable")
    both = pa.concat_batches([images, rows]).take(pa.array(order))
    return Changes(
        both,
        np.concatenate([moved, places])[order],
        np.concatenate([np.ones(len(moved), np.bool_), deleted])[order],
        _after_whole(len(moved), left_out, order),
    )


def apply_chain(chain: Chain, changes: Changes) -> Applied:
    """Apply the transforms. Deletes skip those that leave records out on purpose: the row would stay in the table.

    Raises what Chain.apply raises, and ValueError when a transform does not account for each row.
    """
    if changes.left_out is None and not changes.deleted.any():
        return _applied(chain, changes)
    written = [_applied(each, changes.of(chosen)) for each, chosen in _judging(chain, changes)]
    deleted = _applied(chain.for_deletes, _nullable(changes.of(changes.deleted)), deletes=True)
    rows = pa.concat_batches([part.changes.rows for part in written])
    deletes = pa.RecordBatch.from_arrays(deleted.changes.rows.select(rows.schema.names).columns, schema=rows.schema)
    parts = [deleted, *written]
    records = np.concatenate([part.changes.records for part in parts])
    order = np.argsort(records, kind="stable")
    left_out = [part.changes.left_out for part in written if part.changes.left_out is not None]
    return Applied(
        Changes(
            pa.concat_batches([deletes, rows]).take(pa.array(order)),
            records[order],
            np.concatenate([part.changes.deleted for part in parts])[order],
            _after_whole(len(deleted.changes.records), pa.concat_arrays(left_out) if left_out else None, order),
        ),
        {record: refusal for part in parts for record, refusal in part.rejected.items()},
        added(part.violations for part in written),
    )


def _judging(chain: Chain, changes: Changes) -> Iterator[tuple[Chain, _Flags]]:
    """Yield which rows that are not deleted go through which chain: a rule does not judge rows that lack what it reads."""
    rest = ~changes.deleted
    lacking: dict[frozenset[str], list[int]] = {}
    if changes.left_out is not None:
        for place in np.flatnonzero(changes.left_out.is_valid().to_numpy(zero_copy_only=False) & rest).tolist():
            lacking.setdefault(frozenset(changes.left_out[place].as_py()), []).append(place)
    for fields, places in lacking.items():
        fewer = chain.without_rules_on(fields)
        if fewer is not chain:
            chosen = np.zeros(len(rest), np.bool_)
            chosen[places] = True
            rest = rest & ~chosen
            yield fewer, chosen
    yield chain, rest


def marked_deletes(changes: Changes, delete_field: str | None) -> Changes:
    """Also delete where the row's own field says so."""
    if delete_field is None:
        return changes
    marked = pc.fill_null(changes.rows[delete_field], False).to_numpy(zero_copy_only=False)
    return replace(changes, deleted=changes.deleted | marked)


def without_idle_moves(changes: Changes, columns: Sequence[str]) -> Changes:
    """Remove the deletes of rows that have not moved: `columns`, the key and the table partition, have the same values."""
    first = np.flatnonzero(changes.records[1:] == changes.records[:-1])
    if not len(first):
        return changes
    old, new = changes.rows.take(pa.array(first)), changes.rows.take(pa.array(first + 1))
    same = ~np.logical_or.reduce([_differ(old[name], new[name]) for name in columns])
    stays = np.ones(len(changes.records), np.bool_)
    stays[first[same]] = False
    return changes.of(stays)


def unapplicable(rows: pa.Table, deleted: _Flags, keyed: KeyedRows, partition_by: Sequence[str]) -> dict[int, Rejected]:
    """Return the rows, by their places in `rows`, that change no row that can be named."""
    refused: dict[int, Rejected] = {}

    def refuse(wrong: pa.ChunkedArray | pa.Array, name: str, expected: str, found: str = "null") -> None:
        for index in pc.indices_nonzero(wrong).to_pylist():
            refused.setdefault(index, Rejected(index, name, expected, found))

    for name in keyed.key:
        if rows[name].null_count:
            refuse(pc.is_null(rows[name]), name, f"a value, because table.key is {', '.join(keyed.key)}")
    refuse(keyless(rows, keyed.key), keyed.key[0], "a value, because it is the table's key", "an empty text")
    for name, found, wrong in ambiguous(rows, keyed.key):
        refuse(wrong, name, f"a text that tells the keys ({', '.join(keyed.key)}) of two rows apart", found)
    if rows[keyed.ordering].null_count:
        expected = "a value, because table.ordering decides by it which change of a key is newer"
        refuse(pc.is_null(rows[keyed.ordering]), keyed.ordering, expected)
    if deleted.any():
        for name in (name for name in partition_by if rows[name].null_count):
            expected = (
                "a value in a delete too, because the row is in a table partition of it: derive it from the key, or let the "
                "producer send the whole row before the change"
            )
            refuse(pc.and_(pc.is_null(rows[name]), pa.array(deleted)), name, expected)
    return refused


def _applied(chain: Chain, changes: Changes, deletes: bool = False) -> Applied:
    transformed = chain.apply(changes.rows)
    accounted = transformed.rows.num_rows + len(transformed.rejected) + transformed.filtered
    if accounted != changes.rows.num_rows:
        raise ValueError(f"of {changes.rows.num_rows} rows {accounted} were transformed")
    rejected = {int(changes.records[refusal.index]): refusal for refusal in reversed(transformed.rejected)}
    kept = slice(None) if transformed.kept is None else transformed.kept.to_numpy(zero_copy_only=False)
    records = changes.records[kept]
    if deletes and transformed.filtered:
        for record in set(changes.records.tolist()) - set(records.tolist()) - rejected.keys():
            expected = "a delete that the transforms keep: they see its key, and null in other fields"
            rejected[record] = Rejected(record, "", expected, "a delete that one of them leaves out")
    left_out = changes.left_out
    if left_out is not None and transformed.kept is not None:
        left_out = left_out.take(transformed.kept)
    changed = Changes(transformed.rows, records, changes.deleted[kept], left_out)
    return Applied(changed, rejected, transformed.violations)


def _after_whole(whole: int, left_out: pa.Array | None, order: npt.NDArray[np.int64]) -> pa.Array | None:
    """What is left out of `whole` rows that have all values and the rows after them, in this order."""
    if left_out is None:
        return None
    return pa.concat_arrays([pa.nulls(whole, left_out.type), left_out]).take(pa.array(order))


def _nullable(changes: Changes) -> Changes:
    schema = pa.schema([field.with_nullable(True) for field in changes.rows.schema])
    return replace(changes, rows=pa.RecordBatch.from_arrays(changes.rows.columns, schema=schema))


def _moved(rows: pa.RecordBatch, before: pa.StructArray, moving: Collection[str]) -> _Flags:
    differ = [_differ(rows[name], _member(before, name)) for name in moving if _has(before, name)]
    moved = np.logical_or.reduce(differ) if differ else np.zeros(rows.num_rows, np.bool_)
    known: _Flags = before.is_valid().to_numpy(zero_copy_only=False)
    return moved & known


def _old_images(rows: pa.RecordBatch, before: pa.StructArray, moving: Collection[str]) -> pa.RecordBatch:
    """The rows where they were before. All else, the ordering too, is that of the change."""
    columns = [
        _member(before, field.name) if field.name in moving and _has(before, field.name) else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _has(structs: pa.StructArray, name: str) -> bool:
    return bool(structs.type.get_field_index(name) >= 0)


def _member(structs: pa.StructArray, name: str) -> pa.Array:
    """A field of structs, null where the struct is."""
    return pc.struct_field(structs, [structs.type.get_field_index(name)])


def _differ(old: pa.Array, new: pa.Array) -> _Flags:
    one_null: _Flags = pc.xor(pc.is_null(old), pc.is_null(new)).to_numpy(zero_copy_only=False)
    if pa.types.is_struct(old.type):
        members = [_differ(_member(old, field.name), _member(new, field.name)) for field in old.type]
        return reduce(np.logical_or, members, one_null)
    if pa.types.is_nested(old.type):
        return np.array([left != right for left, right in zip(old.to_pylist(), new.to_pylist(), strict=True)], np.bool_)
    differ: _Flags = pc.fill_null(pc.not_equal(old, new), False).to_numpy(zero_copy_only=False)
    return differ | one_null
