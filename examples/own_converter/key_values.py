"""A converter of one's own, for records like `id=p1 amount=12.50 note=`: fields of a name and a value, with blanks between them."""

import json
from dataclasses import replace

import pyarrow as pa

from hudi_ingest import Decoded, Rejected
from hudi_ingest.convert import converter_for


class KeyValues:
    """Finds the fields, and leaves their types to the converter of JSON. It is pickled, and keeps nothing between two batches."""

    def __init__(self, schema: pa.Schema, options: dict) -> None:
        if options:
            raise ValueError(f"takes no options, found {', '.join(options)}")
        self._json = converter_for("json", schema)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        found = [fields(value) for value in values.to_pylist()]
        good = [index for index, record in enumerate(found) if record is not None]
        decoded = self._json.decode(pa.array([json.dumps(found[index]).encode() for index in good], pa.binary()))
        # What the other converter counts from 0 are the good ones among these.
        kept = good if decoded.kept is None else [good[index] for index in decoded.kept.to_pylist()]
        rejected = [replace(each, index=good[each.index]) for each in decoded.rejected]
        rejected += [
            Rejected(index, "", "fields like name=value", repr(values[index].as_py())[:80])
            for index, record in enumerate(found)
            if record is None
        ]
        return Decoded(decoded.rows, pa.array(kept, pa.int64()), tuple(sorted(rejected, key=lambda each: each.index)))


def fields(value: bytes) -> "dict[str, str | None] | None":
    """The fields of a record, those without a value as None; None if it has other words. Content never raises."""
    try:
        words = value.decode().split()
        pairs = dict(word.split("=", 1) for word in words)
    except ValueError:
        return None
    return {name: text or None for name, text in pairs.items()}
