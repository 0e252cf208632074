"""What every converter must keep to, whatever it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hudi_ingest.records.convert.converter import Converter, Decoded


def outcome(decoded: Decoded, count: int, schema: pa.Schema) -> list[tuple[str, Any]]:
    """Per input value its row or its rejection, after checking all that holds for every Decoded."""
    assert decoded.rows.schema.equals(schema, check_metadata=True)
    decoded.rows.validate(full=True)
    for field, column in zip(schema, decoded.rows.columns, strict=True):
        assert field.nullable or not column.null_count
    kept = list(range(count)) if decoded.kept is None else decoded.kept.to_pylist()
    assert decoded.kept is None or decoded.kept.type == pa.int64()
    assert (decoded.kept is None) == (not decoded.rejected)
    assert decoded.rows.num_rows == len(kept)
    out = [each.index for each in decoded.rejected]
    assert out == sorted(out)
    assert kept == sorted(kept)
    assert sorted(kept + out) == list(range(count))
    found: list[tuple[str, Any]] = [("", None)] * count
    for place, index in enumerate(kept):
        found[index] = ("row", decoded.rows.slice(place, 1))
    for each in decoded.rejected:
        assert 0 < len(each.found) <= 80
        assert 0 < len(each.expected) <= 300, "it may hold the remedy"
        (each.field + each.expected + each.found).encode("utf-8")
        assert "\n" not in each.found
        found[each.index] = ("rejected", (each.field, each.expected, each.found))
    return found


def outcomes(converter: Converter, schema: pa.Schema, messages: Sequence[bytes]) -> list[tuple[str, Any]]:
    """The outcomes of a batch, after checking that each message has the same one alone."""
    values = pa.array(messages, pa.binary())
    whole = outcome(converter.decode(values), len(values), schema)
    alone = [outcome(converter.decode(values.slice(i, 1)), 1, schema)[0] for i in range(len(values))]
    assert comparable(whole) == comparable(alone)
    return whole


def comparable(found: Sequence[tuple[str, Any]]) -> list[Any]:
    """Outcomes in which NaN equals itself and -0.0 is not 0.0."""
    return [repr(what.to_pylist()) if kind == "row" else what for kind, what in found]


def rows_of(found: Sequence[tuple[str, Any]]) -> list[Any]:
    """Rows as dictionaries, rejections as they are."""
    return [what.to_pylist()[0] if kind == "row" else what for kind, what in found]
