"""Records with keys: a separate converter turns the key into columns, which are joined with the value's into one row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert.converter import Converter, Decoded, Rejected
from hudi_ingest.records.convert.values import decoded, regrouped


def decode_keys(converter: Converter, schema: pa.Schema, keys: pa.BinaryArray) -> Decoded:
    """Decode `keys`, binary and null where a record has none. The key's columns, which are `schema`, are then null; if one of
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
