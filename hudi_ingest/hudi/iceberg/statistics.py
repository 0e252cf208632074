"""The statistics of a data file's columns, by its Parquet footer, as Iceberg's manifests have them: pure, without pyiceberg, because the
tasks that write files make them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from hudi_ingest.model.report import ColumnStatistics

_MOST = 16
"""Characters or bytes of a bound, as Iceberg's own writers keep them."""
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def column_statistics(footer: pq.FileMetaData, whole: Collection[str] = ()) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of the columns that are not inside a list or map, without Hudi's own. The bounds of the `whole` ones, which are
    partition columns, are not shortened."""
    found = []
    for index in range(footer.num_columns):
        column = footer.schema.column(index)
        # Iceberg has no bounds of repeated values, and their paths have parts that are no columns.
        if column.max_repetition_level or column.path.startswith("_hoodie_"):
            continue
        chunks = [footer.row_group(number).column(index) for number in range(footer.num_row_groups)]
        known = [chunk.statistics for chunk in chunks]
        counts_nulls = all(each is not None and each.has_null_count for each in known)
        lower, upper = _bounds(column, known, column.path in whole) or (None, None)
        found.append(
            ColumnStatistics(
                column.path,
                sum(chunk.total_compressed_size for chunk in chunks),
                sum(chunk.num_values for chunk in chunks),
                sum(each.null_count for each in known) if counts_nulls else None,
                lower.hex() if lower is not None else None,
                upper.hex() if upper is not None else None,
            )
        )
    return tuple(found)


def _bounds(column: pq.ColumnSchema, known: list[Any], whole: bool) -> tuple[bytes, bytes | None] | None:
    """The least and greatest value in Iceberg's single-value serialization; the greatest is None if no short one is above it. None if a row
    group does not say, or the column is of a type whose order or unit is another in Iceberg."""
    values = [*_least_and_greatest(known)]
    form = _form(column)
    if not values or form is None or any(pair is None for pair in values):
        return None
    raw = [form(each) for pair in values if pair is not None for each in pair]
    if any(isinstance(each, float) and math.isnan(each) for each in raw):
        return None
    least, greatest = min(raw), max(raw)
    if column.physical_type != "BYTE_ARRAY" or whole or _is_decimal(column):
        pack = _packer(column)
        # Parquet's statistics do not count NaN, which some engines take for the greatest number.
        return pack(least), None if column.physical_type in ("FLOAT", "DOUBLE") else pack(greatest)
    if column.logical_type.type == "STRING":
        least_text, greatest_text = least.decode(), greatest.decode()
        above = greatest_text if len(greatest_text) <= _MOST else _text_above(greatest_text[:_MOST])
        return least_text[:_MOST].encode(), None if above is None else above.encode()
    return least[:_MOST], greatest if len(greatest) <= _MOST else _bytes_above(greatest[:_MOST])


def _least_and_greatest(known: list[Any]) -> Iterator[tuple[Any, Any] | None]:
    for each in known:
        if each is not None and each.has_min_max:
            yield each.min_raw, each.max_raw
        elif each is None or not each.has_null_count or each.num_values:
            yield None


def _text_above(text: str) -> str | None:
    """The least text of at most this length that is above each that begins with it."""
    for place in range(len(text) - 1, -1, -1):
        code = ord(text[place]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CHARACTER:
            return text[:place] + chr(code)
    return None


def _bytes_above(content: bytes) -> bytes | None:
    kept = content.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _is_decimal(column: pq.ColumnSchema) -> bool:
    return bool(column.logical_type.type == "DECIMAL")


def _form(column: pq.ColumnSchema) -> Callable[[Any], Any] | None:
    """What makes a value of the statistics comparable; None if nothing does."""
    logical, physical = column.logical_type.type, column.physical_type
    if logical == "DECIMAL":
        return int if physical in ("INT32", "INT64") else lambda raw: int.from_bytes(raw, "big", signed=True)
    if logical == "TIMESTAMP":
        return int if json.loads(column.logical_type.to_json()).get("timeUnit") == "microseconds" else None
    if logical == "INT":
        return int if json.loads(column.logical_type.to_json()).get("isSigned") else None
    if logical in ("NONE", "DATE", "STRING") and physical in (*_PACKED, "BYTE_ARRAY"):
        return lambda raw: raw
    return None


_PACKED: Mapping[str, str] = {"BOOLEAN": "<?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


def _packer(column: pq.ColumnSchema) -> Callable[[Any], bytes]:
    if _is_decimal(column):
        # The shortest two's complement.
        return lambda value: value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
    if column.physical_type == "BYTE_ARRAY":
        return bytes
    return lambda value: struct.pack(_PACKED[column.physical_type], value)
