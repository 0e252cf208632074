"""Change events of Debezium: `before`, `after` and `op`, as its connectors for PostgreSQL and MySQL write them.

r (snapshot), c (insert) and u (update) write the row `after`; d (delete) deletes the row `before`. Of `before` only those fields
are read that name a row: its key, its table partition and its ordering. t (truncate) has neither, and concerns all rows.

Where the database left a value out of an update, Debezium writes a placeholder in the shape of the column's type. AvailableValues
refuses rows that have one, or says where they have it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.changes import BEFORE, DELETED, LEFT_OUT
from hudi_ingest.records.convert.converter import ABSENT, Converter, Decoded, NamesFields, Rejected
from hudi_ingest.records.convert.values import without_faults

EVENT_FIELDS: Mapping[str, pa.DataType] = {
    "op": pa.string(),
    "ts_ms": pa.int64(),
    "source.ts_ms": pa.int64(),
    "source.lsn": pa.int64(),
    "source.txId": pa.int64(),
    "source.gtid": pa.string(),
    "source.file": pa.string(),
    "source.pos": pa.int64(),
    "source.db": pa.string(),
    "source.schema": pa.string(),
    "source.table": pa.string(),
}
"""The fields of an event itself that can be columns, and their types."""

# Arrays only where records are: Arrow imports pandas for the first that it makes of a list, and most processes have no other use for it.
_WRITES = ("r", "c", "u")
_INSERTS = ("r", "c")
_OF_ROWS = ("r", "c", "u", "d")
_OPERATIONS = "r, c, u or d"
_ONLY_INSERTS = (
    "r or c, because with `table.mode: append` rows are only inserted: list columns that identify a row as `table.key`, with "
    "`table.mode: upsert`, for a table whose rows change"
)
_EVENT = "an event with `op`; a flattened record (ExtractNewRecordState) has none (remove `source.envelope`)"
_DOCUMENT = "; MongoDB's connector sends text: flatten it (ExtractNewDocumentState), and remove `source.envelope`"
_TRUNCATE = (
    "; skip it (`source.on_truncate: skip`) and then delete the table's rows with Spark SQL that are older, or have Debezium leave "
    "truncates out (`skipped.operations`)"
)
TRUNCATES_FAIL = "`source.on_truncate` is fail (`apply` deletes the table's rows)"
_OF_BOUNDARIES = {"status", "id", "event_count", "data_collections"}
_OF_DDL = {"source", "databaseName", "ddl", "tableChanges"}
_OF_MESSAGES = {"op", "source", "message"}


def control_kind(fields: Collection[str]) -> str:
    """Return which of CONTROL a record of the connector with these fields is; "" if it is none, or only its `op` tells. A row without its
    envelope, whose columns may have any names, must not be taken for one."""
    names = frozenset(fields)
    if names == {"ts_ms"}:
        return "heartbeats"
    if _OF_BOUNDARIES <= names <= _OF_BOUNDARIES | {"ts_ms"}:
        return "boundaries"
    if names >= _OF_DDL:
        return "ddl"
    return "messages" if names >= _OF_MESSAGES and "after" not in names else ""


@dataclass(frozen=True, slots=True)
class NamingFields:
    """The fields of `before` that name a row.

    PostgreSQL sends only the key unless told otherwise, and Debezium fills the rest: null, but 0, "", 1970-01-01 or the column's
    default where it is NOT NULL. An event does not say which of its values are such, so the pipeline has to.
    """

    names: tuple[str, ...]
    """Fields of the record's values that the table's key, partitions and ordering are computed from."""
    whole: bool = False
    """Whether `before` is the whole row. Then an update without one shows that it is not."""


SOURCE_TABLE_FIELDS = ("source.db", "source.schema", "source.table")
"""The EVENT_FIELDS that say which table an event is of. MySQL's has no schema."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The source's table that changes are of."""

    owner: str
    """Its schema, or its database if that has none."""
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    @classmethod
    def of(cls, events: pa.RecordBatch, index: int) -> SourceTable | None:
        """Return the table of the event at a place; None if it does not say."""
        owners, names = _tables(events)
        owner, name = owners[index].as_py(), names[index].as_py()
        return None if owner is None or name is None else cls(owner, name)

    @property
    def expected(self) -> str:
        return (
            f"a change of {self}, whose rows the table has: rows of two tables with the same key would overwrite each other. Debezium makes "
            "one topic of tables whose names differ in signs that a topic cannot have; rename one, or give it a topic of its own (transform "
            "RegexRouter). If several tables are merged on purpose, or the table got another name, let its rows say where they are "
            "from: `source.event_columns: {source_table: source.table}`"
        )

    def others(self, events: pa.RecordBatch) -> pa.Array:
        """Return which events are of another table. `events`: with SOURCE_TABLE_FIELDS."""
        owners, names = _tables(events)
        differ = pc.or_(pc.not_equal(owners, self.owner), pc.not_equal(names, self.name))
        return pc.fill_null(differ, False)


def _tables(events: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The owner and the name of each event's table; null if it does not say."""
    databases, schemas, names = (_event_field(events, path) for path in SOURCE_TABLE_FIELDS)
    return pc.coalesce(schemas, databases), names


def event_schema(row: pa.Schema, naming: NamingFields, event_fields: Iterable[str] = ()) -> pa.Schema:
    """The fields of an event that are read; all others are ignored. `event_fields`: keys of EVENT_FIELDS."""
    before = [field.with_nullable(True) for field in row if field.name in naming.names]
    fields = [pa.field("after", pa.struct(list(row))), pa.field("op", pa.string(), False)]
    source = []
    for path in dict.fromkeys(event_fields):
        parent, _, name = path.rpartition(".")
        if parent:
            source.append(pa.field(name, EVENT_FIELDS[path]))
        elif name != "op":
            fields.append(pa.field(name, EVENT_FIELDS[path]))
    if source:
        fields.append(pa.field("source", pa.struct(source)))
    return pa.schema([*([pa.field("before", pa.struct(before))] if before else []), *fields])


def event_columns(fields: Mapping[str, str]) -> pa.Schema:
    """The columns of fields of the event; `fields`: column -> key of EVENT_FIELDS."""
    return pa.schema([pa.field(column, EVENT_FIELDS[path]) for column, path in fields.items()])


class DebeziumConverter:
    """Decodes events to rows of `row`, then `event_columns` of `fields`, then the columns DELETED and BEFORE. `events` decodes to
    `event_schema`."""

    def __init__(
        self,
        events: Converter,
        row: pa.Schema,
        naming: NamingFields,
        fields: Mapping[str, str] | None = None,
        inserts_only: bool = False,
        refused_truncates: str = TRUNCATES_FAIL,
        source_table: SourceTable | None = None,
    ) -> None:
        """`inserts_only`: there are no columns DELETED and BEFORE, and events that are no inserts are bad. `refused_truncates`: why
        truncates are bad; if "", they are control records. `source_table`: the only one that events may be of; then `events` decodes
        SOURCE_TABLE_FIELDS, too."""
        self._events = events
        self._row = row
        self._naming = naming
        self._fields = dict(fields or {})
        self._inserts_only = inserts_only
        self._refused_truncates = refused_truncates
        self._source_table = source_table

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises what `events` raises; bad content never raises."""
        read = self._events.decode(values)
        read = replace(read, rejected=tuple(self._judged(fault, values) for fault in read.rejected))
        return without_faults(read, self._changes(read.rows), len(values), self._faults(read.rows))

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self._events.fields(values, within or "after") if isinstance(self._events, NamesFields) else frozenset()

    def _changes(self, events: pa.RecordBatch) -> pa.RecordBatch:
        deleted = pc.equal(events["op"], "d")
        after = events["after"]
        columns = [pc.struct_field(after, [place]) for place in range(len(self._row))]
        columns += [_event_field(events, path) for path in self._fields.values()]
        if self._inserts_only:
            return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*self._row, *event_columns(self._fields)]))
        fields = [*self._row, *event_columns(self._fields), pa.field(DELETED, pa.bool_(), False)]
        if "before" not in events.schema.names:
            return pa.RecordBatch.from_arrays([*columns, deleted], schema=pa.schema(fields))
        before = events["before"]
        if deleted.true_count:
            for place, field in enumerate(before.type):
                index = self._row.get_field_index(field.name)
                columns[index] = pc.if_else(deleted, pc.struct_field(before, [place]), columns[index])
        schema = pa.schema([*fields, pa.field(BEFORE, before.type)])
        return pa.RecordBatch.from_arrays([*columns, deleted, before], schema=schema)

    def _judged(self, fault: Rejected, values: pa.BinaryArray) -> Rejected:
        """The fault of a row, or of a record that can be none."""
        if not isinstance(self._events, NamesFields):
            return _of_row(fault)
        return replace(_of_row(fault), control=control_kind(self._events.fields(values.slice(fault.index, 1))))

    def _faults(self, events: pa.RecordBatch) -> dict[int, Rejected]:
        """Events that cannot be applied, by their places."""
        faults: dict[int, Rejected] = {}

        def refuse(wrong: pa.Array, field: str, expected: str, found: str, control: str = "") -> None:
            for index in pc.indices_nonzero(wrong).to_pylist():
                faults.setdefault(index, Rejected(index, field, expected, found, control))

        operations, after = events["op"], events["after"]
        if self._source_table is not None:
            own = self._source_table
            for index in pc.indices_nonzero(own.others(events)).to_pylist():
                found = SourceTable.of(events, index)
                faults[index] = Rejected(index, "source.table", own.expected, str(found))
        if not pc.all(pc.is_in(operations, value_set=pa.array(_OF_ROWS)), min_count=0).as_py():
            why = self._refused_truncates
            expected = f"{_OPERATIONS}, because {why}{_TRUNCATE}"
            refuse(pc.equal(operations, "t"), "op", expected, "t, a truncate", "" if why else "truncates")
            refuse(pc.equal(operations, "m"), "op", _OPERATIONS, "m, a message", "messages")
        if self._inserts_only:
            inserts = pc.is_in(operations, value_set=pa.array(_INSERTS))
            refuse(pc.invert(inserts), "op", _ONLY_INSERTS, "another operation")
            refuse(pc.and_(inserts, after.is_null()), "after", "a row, because op is r or c", "null")
            return faults
        deletes, writes = pc.equal(operations, "d"), pc.is_in(operations, value_set=pa.array(_WRITES))
        if not pc.all(pc.or_(deletes, writes), min_count=0).as_py():
            refuse(pc.invert(pc.or_(deletes, writes)), "op", _OPERATIONS, "another operation")
        if after.null_count:
            refuse(pc.and_(writes, after.is_null()), "after", "a row, because op is r, c or u", "null")
        if "before" in events.schema.names and events["before"].null_count:
            absent = events["before"].is_null()
            refuse(pc.and_(deletes, absent), "before", f"the deleted row's key; {WHOLE_ROWS}", "null")
            if self._naming.whole:
                expected = f"the row before the update, because of `before_image: row`; {WHOLE_ROWS}"
                refuse(pc.and_(pc.equal(operations, "u"), absent), "before", expected, "null")
        return faults


MOST_BETWEEN_KEYS = 2
"""How far before the first event of a key, which the database changed, that of the old key can be: the tombstone may be between."""


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Finds the deletes of old keys. Debezium makes two events of an update that changes a row's key, with the same position in
    PostgreSQL's log: a delete of the old key, and right after it the insert of the new one."""

    events: Converter
    """Decodes to KEY_CHANGE_FIELDS."""

    def old_keys(self, offsets: pa.Array, values: pa.BinaryArray, inserts: Sequence[int]) -> pa.Array:
        """Return of each of some records (places among those of one Kafka partition), which lack values, the offset of the old key's
        delete; -1 if it is an insert without one, null if it is none. Raises what `events` raises."""
        around = sorted({place - step for place in inserts for step in range(MOST_BETWEEN_KEYS + 1) if place >= step})
        around = [place for place in around if values[place].is_valid]
        read = self.events.decode(values.take(pa.array(around, pa.int64())))
        places = around if read.kept is None else [around[index] for index in read.kept.to_pylist()]
        changes = dict(
            zip(places, zip(*(column.to_pylist() for column in read.rows.columns), strict=True), strict=True)
        )
        found: list[int | None] = []
        for place in inserts:
            operation, source = changes.get(place, (None, None))
            position = source and source["lsn"]
            deletes = [
                offsets[before].as_py()
                for before in range(place - MOST_BETWEEN_KEYS, place)
                if position is not None and changes.get(before) == ("d", {"lsn": position})
            ]
            found.append(None if operation != "c" else deletes[-1] if deletes else -1)
        return pa.array(found, pa.int64())


KEY_CHANGE_FIELDS = pa.schema([pa.field("op", pa.string()), pa.field("source", pa.struct({"lsn": pa.int64()}))])


def _event_field(events: pa.RecordBatch, path: str) -> pa.Array:
    parent, _, name = path.rpartition(".")
    if not parent:
        return events[name]
    return pc.struct_field(events[parent], [events[parent].type.get_field_index(name)])


def _of_row(fault: Rejected) -> Rejected:
    """Name the row's field, because transforms, and what is masked, go by that name. A fault of a whole row may show any field."""
    if fault.field == "op" and fault.found.startswith(ABSENT):
        return replace(fault, expected=_EVENT)
    if fault.field in ("before", "after") and fault.found.startswith('"{'):
        return replace(fault, field="", expected=f"{fault.expected} in `{fault.field}`{_DOCUMENT}")
    place, _, rest = fault.field.partition(".")
    if place not in ("before", "after"):
        return fault
    within = "" if rest and place == "after" else f" in `{place}`"
    return replace(fault, field=rest, expected=f"{fault.expected}{within}")


UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default for `unavailable.value.placeholder`."""

WHOLE_ROWS = "`alter table … replica identity full` makes PostgreSQL send the whole row (MySQL: binlog_row_image=FULL)"
EXPECTED_VALUE = f"a value, but this one the database leaves out of updates that do not change it; {WHOLE_ROWS}, or leave this column out"
_HEX = "hex:"
_GEOMETRIES = (
    # SRID=4326;POINT(-99999999 -99999999), of a geometry
    bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1"),
    # SRID=4326;POINT(179.999999 89.999999), of a geography
    bytes.fromhex("0101000020e61000000c21e7fdff7f66401842cefbff7f5640"),
)

_Flags = npt.NDArray[np.bool_]


def placeholder_bytes(placeholder: str) -> bytes:
    """The bytes that Debezium makes of its setting. Raises ValueError if there is no hex after `hex:`."""
    if not placeholder.startswith(_HEX):
        return placeholder.encode()
    if not placeholder[len(_HEX) :].strip():
        raise ValueError("no bytes")
    return bytes.fromhex(placeholder[len(_HEX) :])


@dataclass(frozen=True)
class AvailableValues:
    """Decodes as `converter` does, and refuses rows with a placeholder in a column, or names these columns in a column LEFT_OUT if they
    are `filled` later. `placeholder`: as the connector's setting has it."""

    converter: Converter
    placeholder: str = UNAVAILABLE
    filled: bool = False

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises what `converter` raises; bad content never raises."""
        read = self.converter.decode(values)
        left_out: dict[int, list[str]] = {}
        for name, column in zip(read.rows.schema.names, read.rows.columns, strict=True):
            if name not in (DELETED, BEFORE):
                for index in np.flatnonzero(self._flags(column)).tolist():
                    left_out.setdefault(index, []).append(name)
        if self.filled and left_out:
            lists = pa.array([left_out.get(index) for index in range(read.rows.num_rows)], pa.list_(pa.string()))
            return replace(read, rows=read.rows.append_column(LEFT_OUT, lists))
        faults = {
            index: Rejected(index, names[0], EXPECTED_VALUE, self.placeholder) for index, names in left_out.items()
        }
        return without_faults(read, read.rows, len(values), faults)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self.converter.fields(values, within) if isinstance(self.converter, NamesFields) else frozenset()

    def _flags(self, column: pa.Array) -> _Flags:
        """Which values are the placeholder, or have it within."""
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return _flags(pc.is_in(column, self._texts if pa.types.is_string(kind) else self._binaries))
        if pa.types.is_struct(kind):
            flags = np.zeros(len(column), np.bool_)
            for place in range(kind.num_fields):
                flags |= self._flags(pc.struct_field(column, [place]))
            return flags
        if pa.types.is_map(kind):
            return _any_within(column, self._flags(column.keys) | self._flags(column.items))
        if not pa.types.is_list(kind):
            return np.zeros(len(column), np.bool_)
        within = _any_within(column, self._flags(column.values))
        return within | self._numbers(column) if _factors(kind.value_type) else within

    def _numbers(self, lists: pa.ListArray) -> _Flags:
        """Which lists are the placeholder's bytes, as Debezium fills arrays of numbers."""
        flags = _flags(pc.equal(pc.list_value_length(lists), len(self._codes)))
        if flags.any():
            numbers = _as_floats(lists.filter(pa.array(flags)).flatten()).reshape(-1, len(self._codes))
            same = [
                np.isclose(numbers, self._codes * factor, atol=0).all(1) for factor in _factors(lists.type.value_type)
            ]
            flags[flags] = np.logical_or.reduce(same)
        return flags

    @cached_property
    def _bytes(self) -> bytes:
        return placeholder_bytes(self.placeholder)

    @cached_property
    def _codes(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._bytes, np.int8).astype(np.float64)

    @cached_property
    def _binaries(self) -> pa.Array:
        return pa.array([self._bytes, *_GEOMETRIES], pa.binary())

    @cached_property
    def _texts(self) -> pa.Array:
        """The text itself, and what UUIDs, hstore and columns of texts for bytes make of it."""
        text = self._bytes.decode(errors="replace")
        digest = hashlib.md5(self._bytes, usedforsecurity=False).digest()
        encoded = [
            form for part in (self._bytes, *_GEOMETRIES) for form in (part.hex(), base64.b64encode(part).decode())
        ]
        hstore = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
        return pa.array([text, str(uuid.UUID(bytes=digest, version=3)), hstore, *encoded])


def _flags(flags: pa.Array) -> _Flags:
    """Null is false."""
    array: _Flags = pc.fill_null(flags, False).to_numpy(zero_copy_only=False).copy()
    return array


def _any_within(containers: pa.Array, flags: _Flags) -> _Flags:
    """Which lists or maps have a flagged member. `flags`: of all members, also those beside a slice."""
    until = np.concatenate([[0], np.cumsum(flags)])[containers.offsets.to_numpy()]
    within: _Flags = np.diff(until) > 0
    return within & _flags(containers.is_valid())


def _factors(items: pa.DataType) -> Sequence[float]:
    """Return the factor by which Debezium's bytes become numbers of this type; none for other types."""
    if pa.types.is_integer(items) or pa.types.is_floating(items) or pa.types.is_date(items):
        return (1,)
    if pa.types.is_timestamp(items):
        return (1, 1000)
    if pa.types.is_decimal(items):
        # The bytes are the unscaled numbers of a column whose scale may be smaller than the declared one.
        return [10.0**-scale for scale in range(items.scale + 1)]
    return ()


def _as_floats(numbers: pa.Array) -> npt.NDArray[np.float64]:
    if pa.types.is_date(numbers.type):
        numbers = numbers.cast(pa.int32())
    elif pa.types.is_timestamp(numbers.type):
        numbers = numbers.cast(pa.int64())
    floats: npt.NDArray[np.float64] = numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats
