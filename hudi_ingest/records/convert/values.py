"""Shared by all converters: checking their input and options, putting rows back in order, joining a key's columns with the value's, and
requiring a column for each field: a row without one would erase its value in a keyed table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.converter import Converter, Decoded, Options, Rejected, shortened
from hudi_ingest.records.schema.evolution import absent, is_within
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import UNKNOWN

Indexes = npt.NDArray[np.int64]
"""Indexes in a batch, ascending."""


def require_values(values: pa.BinaryArray) -> None:
    """Raise TypeError or ValueError unless `values` is binary without nulls: that would be the caller's mistake."""
    if not pa.types.is_binary(values.type):
        raise TypeError(f"values must be binary, found {values.type}")
    if values.null_count:
        raise ValueError(f"values must hold no nulls, found {values.null_count}: remove tombstones first")


def value_bytes(values: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes below `values` without copying them, and where in them each value begins, followed by the end of the
    last. `values` has no nulls."""
    _, offsets, data = values.buffers()
    length = len(values)
    starts = (
        np.frombuffer(offsets, np.int32)[values.offset : values.offset + length + 1].astype(np.int64)
        if length
        else np.zeros(1, np.int64)
    )
    return (np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)), starts


def without_prefix(values: pa.BinaryArray, sizes: npt.NDArray[np.int64], indexes: Indexes | None) -> pa.BinaryArray:
    """Remove the first bytes of the values at `indexes` (None for all).

    `sizes`: how many bytes to remove from each value in `values`, at most its length. One gather over an array that
    alternates prefixes and remainders and shares the bytes of `values`. Arrow's `binary_slice` does the same, but some
    releases fail when all remainders are empty.
    """
    _, starts = value_bytes(values)
    offsets = np.empty(2 * len(values) + 1, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts[:-1] + sizes
    data = values.buffers()[2]
    alternating = pa.BinaryArray.from_buffers(pa.binary(), 2 * len(values), [None, pa.py_buffer(offsets), data])
    selected = np.arange(len(values)) if indexes is None else indexes
    return alternating.take(pa.array(2 * selected + 1))


def decoded(rows: pa.RecordBatch, count: int, rejected: Sequence[Rejected]) -> Decoded:
    """Return the outcome of a batch of `count` values: `rows` are all but the `rejected`, which are ascending by index."""
    if not rejected:
        return Decoded(rows, None, ())
    kept = np.ones(count, np.bool_)
    kept[[value.index for value in rejected]] = False
    return Decoded(rows, pa.array(np.flatnonzero(kept), pa.int64()), tuple(rejected))


def without_faults(read: Decoded, rows: pa.RecordBatch, count: int, faults: Mapping[int, Rejected]) -> Decoded:
    """Return the outcome of a batch of `count` values without those rows in which a later step found `faults`. `rows`: what that
    step made of the rows of `read`; `faults`: by the places of those rows."""
    if not faults:
        return replace(read, rows=rows)
    places = np.arange(count) if read.kept is None else read.kept.to_numpy(zero_copy_only=False)
    good = np.ones(rows.num_rows, np.bool_)
    good[list(faults)] = False
    late = [replace(fault, index=int(places[index])) for index, fault in faults.items()]
    return decoded(rows.filter(pa.array(good)), count, sorted([*read.rejected, *late], key=attrgetter("index")))


def regrouped(
    schema: pa.Schema, count: int, groups: Sequence[tuple[Indexes | None, Decoded]], rejected: Sequence[Rejected]
) -> Decoded:
    """Combine the outcomes of a batch of `count` values that was decoded in groups.

    `groups`: the indexes of a group's values in the batch, None for all of them, and their outcome. `rejected` are values
    outside all groups. Each index is in one group or rejected.
    """
    faults = list(rejected)
    batches: list[pa.RecordBatch] = []
    places: list[Indexes] = []
    for indexes, part in groups:
        if indexes is None or len(indexes) == count:
            return part
        kept = indexes if part.kept is None else indexes[part.kept.to_numpy(zero_copy_only=False)]
        faults += [replace(value, index=int(indexes[value.index])) for value in part.rejected]
        if len(kept):
            batches.append(part.rows)
            places.append(kept)
    if not batches:
        rows = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    elif len(batches) == 1:
        rows = batches[0]
    else:
        rows, indexes = pa.concat_batches(batches), np.concatenate(places)
        if (np.diff(indexes) < 0).any():
            rows = rows.take(pa.array(np.argsort(indexes)))
    return decoded(rows, count, sorted(faults, key=attrgetter("index")))


def decode_keys(converter: Converter, schema: pa.Schema, keys: pa.BinaryArray) -> Decoded:
    """Decode `keys`, which a converter of their own turns into columns; binary, null where a record has none. The key's columns, which are `schema`, are then null; if one of
    them is NOT NULL, the record is rejected."""
    if not keys.null_count:
        return converter.decode(keys)
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    present, absent = np.flatnonzero(has_key), np.flatnonzero(~has_key)
    groups = [(present, converter.decode(keys.drop_null()))] if len(present) else []
    required = [column.name for column in schema if not column.nullable]
    if required:
        rejected = [
            Rejected(index, required[0], "a value, because it is NOT NULL", "no key") for index in absent.tolist()
        ]
        return regrouped(schema, len(keys), groups, rejected)
    nulls = pa.RecordBatch.from_arrays([pa.nulls(len(absent), column.type) for column in schema], schema=schema)
    return regrouped(schema, len(keys), [*groups, (absent, Decoded(nulls, None, ()))], ())


def beside(values: Decoded, keys: Decoded, count: int) -> Decoded:
    """Join the outcomes of values and keys: a row if both are rows, otherwise the value's fault, or else the key's, with
    `key` before its field."""
    schema = pa.schema([*values.rows.schema, *keys.rows.schema])
    good_values, good_keys = _kept(values, count), _kept(keys, count)
    both = good_values & good_keys
    value_rows = _only(values.rows, both[good_values])
    key_rows = _only(keys.rows, both[good_keys])
    faults = {fault.index: replace(fault, field=f"key.{fault.field}".rstrip(".")) for fault in keys.rejected}
    faults.update((fault.index, fault) for fault in values.rejected)
    rows = pa.RecordBatch.from_arrays([*value_rows.columns, *key_rows.columns], schema=schema)
    return decoded(rows, count, [faults[index] for index in sorted(faults)])


def _kept(part: Decoded, count: int) -> npt.NDArray[np.bool_]:
    accepted = np.ones(count, np.bool_)
    if part.rejected:
        accepted[[fault.index for fault in part.rejected]] = False
    return accepted


def _only(rows: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    return rows if mask.all() else rows.filter(pa.array(mask))


Chosen = TypeVar("Chosen")


def read_options(kind: type[Chosen], format: str, options: Options) -> Chosen:
    """Read `options` as `kind`, a dataclass. Raises ValueError that lists every unknown, missing or wrong option."""
    known = [option.name for option in fields(kind)]  # type: ignore[arg-type]
    problems = [
        f"option {quoted(name)} is not known; known are: {', '.join(known)}{suggestion(name, known)}"
        for name in options
        if name not in known
    ]
    recognized = {name: value for name, value in options.items() if name in known}
    chosen = None
    try:
        chosen = TypeAdapter(kind).validate_python(recognized)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in details["loc"])
            text = str(details["msg"]).removeprefix("Value error, ")
            problems.append(f"option {place}: {text}" if place else text)
    if problems or chosen is None:
        raise ValueError(f"format {format}: {'; '.join(problems)}")
    return chosen


def refuse_options(format: str, options: Options) -> None:
    """Raise ValueError when there are any options."""
    if options:
        raise ValueError(f"format {format} has no options, found {', '.join(map(quoted, options))}; remove them")


def one_option(format: str, options: Options, name: str) -> Any:
    """Return the value of a format's only, required option. Raises ValueError when it is missing or there are others."""
    if [*options] != [name]:
        found = ", ".join(map(quoted, options)) or "none"
        raise ValueError(f"format {format} needs its only option, {quoted(name)}; found {found}")
    return options[name]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the records of one schema are bad as rows. Deletes, which have no columns to erase, are spared later; see RowMaker."""

    fault: Rejected

    def of(self, read: Decoded, count: int) -> Decoded:
        """The outcome of `count` records of the schema; `read`: the same by their bytes alone."""
        faults = {index: replace(self.fault, index=index) for index in range(read.rows.num_rows)}
        rejected = tuple(
            replace(self.fault, index=each.index) if each.field == self.fault.field else each for each in read.rejected
        )
        return without_faults(replace(read, rejected=rejected), read.rows, count, faults)


def after_refusal(read: Decoded, refusal: Refusal | None, count: int) -> Decoded:
    """The outcome of `count` records of a schema, with its refusal if there is one; `read`: the same by their bytes alone."""
    return read if refusal is None else refusal.of(read, count)


def optional_fields_text(fields: Sequence[str], topic: str) -> str:
    """The setting that has these fields. `topic`: as in RequiredFields."""
    listed = f"optional_fields: [{', '.join(fields)}]"
    return f"`{listed}` for {topic} under `tables`" if topic else f"`source.{listed}`"


_GENERATED = "; if it is a generated column of PostgreSQL, which only snapshots have, leave it out at the connector (`column.exclude.list`)"


@dataclass(frozen=True, slots=True)
class RequiredFields:
    """The columns of a keyed table that a record's schema has to have."""

    row: pa.Schema
    optional: frozenset[str] = frozenset()
    """Paths of columns that a schema may lack: they are null then."""
    within: str = ""
    """The event's field that holds the row; "" if the record is the row."""
    versions: tuple[tuple[RegisteredSchema, ...], ...] | None = None
    """The versions of each subject, ascending. A column is required if a version before the record's has it, because then the source
    has lost it; all are if None, because nothing shows what was before."""
    recent: frozenset[str] = frozenset()
    """Paths of columns that a schema may lack for now without being made optional."""
    of_payloads: bool = False
    """Whether a record without a schema has to have them, too: its producer writes every field that the source has."""
    topic: str = ""
    """The topic below `tables` that has optional fields of its own; "" if the pipeline file has one table."""

    @property
    def record(self) -> pa.StructType:
        """The row where it is in a record."""
        row = pa.struct(list(self.row))
        return pa.struct([pa.field(self.within, row)]) if self.within else row

    def refusal_of(
        self,
        shape: pa.DataType,
        is_written: Callable[[RegisteredSchema], bool] = lambda version: False,
        shape_of: Callable[[RegisteredSchema], pa.DataType] = lambda version: UNKNOWN,
    ) -> Refusal | None:
        """Why records with a schema of this shape are bad; None if they are not. `is_written`: whether a version is that schema;
        `shape_of`: a version's shape, UNKNOWN if no record can be read with it."""
        found = self._row_of(shape)
        if found is None:
            return None
        lacking = [path for path in absent(self.row, found) if path not in self.optional | self.recent]
        if lacking and self.versions is not None:
            rows = map(self._row_of, map(shape_of, self._before(is_written)))
            lacked = [absent(self.row, row) for row in rows if row is not None]
            lacking = [path for path in lacking if not all(is_within(path, paths) for paths in lacked)]
        if not lacking:
            return None
        place = "record" if self.of_payloads else "record's schema"
        fields = optional_fields_text([*sorted(self.optional), *lacking], self.topic)
        expected = (
            f"it in the {place}, because a row without it would erase its value in the table; if the source renamed it, "
            "declare the new name; if the source dropped it or got "
            f"it later, set {fields}: it is null then{_GENERATED if self.within else ''}"
        )
        new = [field.name for field in found if field.name not in self.row.names]
        others = f"; not among the columns: {', '.join(new)}" if new else ""
        path = f"{self.within}.{lacking[0]}".lstrip(".")
        return Refusal(Rejected(0, path, expected, shortened(f"no such field{others}")))

    def _before(self, is_written: Callable[[RegisteredSchema], bool]) -> Iterator[RegisteredSchema]:
        """The versions before the one that `is_written`; all of a subject without it, because it was registered since."""
        own = [versions for versions in self.versions or () if any(map(is_written, versions))]
        for versions in own or self.versions or ():
            yield from takewhile(lambda version: not is_written(version), versions)

    def _row_of(self, shape: pa.DataType) -> pa.StructType | None:
        if self.within and pa.types.is_struct(shape):
            place = shape.get_field_index(self.within)
            shape = shape.field(place).type if place >= 0 else UNKNOWN
        return shape if pa.types.is_struct(shape) and shape.num_fields else None
