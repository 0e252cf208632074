"""Change events of Debezium: `before`, `after` and `op`, as its connectors for PostgreSQL and MySQL write them.

r (snapshot), c (insert) and u (update) write the row `after`; d (delete) deletes the row `before`. Of `before` only those fields
are read that name a row: its key, its table partition and its ordering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.connect.unavailable import WHOLE_ROWS
from hudi_ingest.records.convert.converter import Converter, Decoded, NamesFields, Rejected
from hudi_ingest.records.convert.mismatch import ABSENT
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

_WRITES = pa.array(["r", "c", "u"])
_OPERATIONS = "r, c, u or d"
_EVENT = (
    "an event with `op`; a flattened record (ExtractNewRecordState) has none (remove `source.envelope`), nor has a heartbeat, a "
    "transaction's boundary or a schema change (leave its topic out)"
)
_DOCUMENT = "; MongoDB's connector sends text: flatten it (ExtractNewDocumentState), and remove `source.envelope`"
_TRUNCATE = (
    "r, c, u or d; a truncate is not applied: delete the table's rows with Spark SQL, then skip this record "
    "(`on_bad_record`), or have Debezium leave truncates out (`skipped.operations`)"
)


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
        self, events: Converter, row: pa.Schema, naming: NamingFields, fields: Mapping[str, str] | None = None
    ) -> None:
        self._events = events
        self._row = row
        self._naming = naming
        self._fields = dict(fields or {})

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises what `events` raises; bad content never raises."""
        read = self._events.decode(values)
        read = replace(read, rejected=tuple(map(_of_row, read.rejected)))
        return without_faults(read, self._changes(read.rows), len(values), self._faults(read.rows))

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self._events.fields(values, within or "after") if isinstance(self._events, NamesFields) else frozenset()

    def _changes(self, events: pa.RecordBatch) -> pa.RecordBatch:
        deleted = pc.equal(events["op"], "d")
        after = events["after"]
        columns = [pc.struct_field(after, [place]) for place in range(len(self._row))]
        columns += [_event_field(events, path) for path in self._fields.values()]
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

    def _faults(self, events: pa.RecordBatch) -> dict[int, Rejected]:
        """Events that cannot be applied, by their places."""
        faults: dict[int, Rejected] = {}

        def refuse(wrong: pa.Array, field: str, expected: str, found: str) -> None:
            for index in pc.indices_nonzero(wrong).to_pylist():
                faults.setdefault(index, Rejected(index, field, expected, found))

        operations, after = events["op"], events["after"]
        deletes, writes = pc.equal(operations, "d"), pc.is_in(operations, value_set=_WRITES)
        if not pc.all(pc.or_(deletes, writes), min_count=0).as_py():
            refuse(pc.equal(operations, "t"), "op", _TRUNCATE, "t, a truncate")
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
