"""Values read from single pages are those that a reader of the whole file finds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hudi_ingest.hudi.files import parquet_pages
from hudi_ingest.hudi.files.parquet_pages import PageIndex

ROWS = 1_500
RNG = np.random.default_rng(34)
NUMBERS = RNG.integers(-(1 << 62), 1 << 62, ROWS).tolist()
TABLE = pa.table(
    {
        "text": [None if number % 7 == 0 else f"{number:x}" * (number % 9) for number in NUMBERS],
        "bytes": pa.array([number.to_bytes(8, "big", signed=True) for number in NUMBERS], pa.binary()),
        "few": [f"value {number % 5}" for number in NUMBERS],
        "nulls": pa.nulls(ROWS, pa.string()),
        "nested": [{"a": number, "b": "x"} for number in NUMBERS],
        "list": [[str(number)] * (number % 3) for number in NUMBERS],
        "decimal": pa.array([Decimal(number).scaleb(-5) for number in NUMBERS], pa.decimal128(38, 5)),
        "time": pa.array([number % (1 << 50) for number in NUMBERS], pa.timestamp("us", "UTC")),
        "flag": [number % 2 == 0 for number in NUMBERS],
        "double": [number / 3 for number in NUMBERS],
    }
)
NESTED = {"nested", "list"}


@cache
def written(**options: Any) -> pa.Buffer:
    stream = pa.BufferOutputStream()
    usual: dict[str, Any] = {
        "data_page_size": 512,
        "write_batch_size": 16,
        "row_group_size": 650,
        "write_page_index": True,
        "write_page_checksum": True,
    }
    pq.write_table(TABLE, stream, **usual | options)
    return stream.getvalue()


def read(
    content: pa.Buffer, group: int, name: str, places: Sequence[int] | np.ndarray, most_skipped: int = 0
) -> pa.Array | None:
    source = pa.BufferReader(content)
    schema = pq.ParquetFile(source).schema
    (leaf, *_) = [at for at in range(len(schema)) if schema.column(at).path.split(".")[0] == name]
    values = PageIndex(source, most_skipped).values(group, leaf, np.array(places))
    return None if values is None else pa.chunked_array([*values])


@settings(max_examples=30, deadline=None)
@given(
    group=st.integers(0, 2),
    share=st.sampled_from([1 / 400, 1 / 40, 1 / 3]),
    seed=st.integers(0, 1 << 20),
    compression=st.sampled_from(["zstd", "snappy", "none"]),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
    portion=st.sampled_from([1, 2_000, 1 << 25]),
    most_skipped=st.sampled_from([0, 600, 1 << 20]),
)
def test_values_are_those_of_the_file(
    group: int,
    share: float,
    seed: int,
    compression: str,
    version: str,
    dictionary: bool,
    portion: int,
    most_skipped: int,
) -> None:
    content = written(compression=compression, data_page_version=version, use_dictionary=dictionary)
    rows = pq.ParquetFile(pa.BufferReader(content)).read_row_group(group)
    places = np.flatnonzero(np.random.default_rng(seed).random(rows.num_rows) < share)
    if not len(places):
        places = np.array([rows.num_rows - 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_pages, "_PORTION_BYTES", portion)
        patch.setattr(parquet_pages, "_MOST_WANTED", 1)
        for name in TABLE.column_names:
            values = read(content, group, name, places, most_skipped)
            if name in NESTED:
                assert values is None
            else:
                assert values is not None
                assert values.to_pylist() == rows[name].take(pa.array(places)).to_pylist()


def test_most_pages_are_not_read_one_by_one() -> None:
    content = written()
    assert read(content, 0, "text", range(0, 650, 10)) is None
    assert read(content, 0, "text", [5, 600]) is not None


def test_a_file_without_a_page_index_is_left_to_arrow() -> None:
    assert read(written(write_page_index=False), 0, "text", [5]) is None


class Counting:
    """A file that remembers which bytes were read."""

    def __init__(self, content: pa.Buffer) -> None:
        self.content = content
        self.reads: list[int] = []

    def size(self) -> int:
        return len(self.content)

    def read_at(self, count: int, place: int) -> bytes:
        self.reads.append(count)
        return bytes(self.content[place : place + count])


@pytest.mark.parametrize(("most_skipped", "reads"), [(0, 2), (1 << 20, 1)])
def test_only_the_wanted_pages_are_read_and_short_gaps(most_skipped: int, reads: int) -> None:
    content = written(use_dictionary=False)
    file = Counting(content)
    index = PageIndex(file, most_skipped)
    chunk = pq.ParquetFile(pa.BufferReader(content)).metadata.row_group(0).column(0)
    file.reads.clear()
    values = index.values(0, 0, np.array([5, 600]))
    assert values is not None
    assert pa.chunked_array([*values]).to_pylist() == TABLE["text"].take(pa.array([5, 600])).to_pylist()
    # The index, and no dictionary.
    of_pages = [count for count in file.reads[1:] if count]
    assert len(of_pages) == reads
    assert sum(of_pages) < chunk.total_compressed_size
    assert most_skipped or sum(of_pages) < chunk.total_compressed_size / 4


def test_a_damaged_page_is_refused_by_its_checksum() -> None:
    content = bytearray(written(use_dictionary=False, compression="none"))
    wanted = TABLE["text"][5].as_py() or TABLE["text"][6].as_py()
    place = 5 if TABLE["text"][5].as_py() else 6
    at = content.index(wanted.encode())
    content[at] ^= 1
    with pytest.raises(OSError, match="CRC"):
        read(pa.py_buffer(bytes(content)), 0, "text", [place])


def test_an_index_in_another_order_is_left_to_arrow() -> None:
    # One location, whose size has a field header with its full number.
    usual = bytes([0x19, 0x1C, 0x16, 0x08, 0x15, 0x14, 0x16, 0x00, 0x00, 0x00])
    found = parquet_pages._locations(usual)
    assert found is not None
    assert found.tolist() == [[4, 10, 0]]
    other = bytes([0x19, 0x1C, 0x05, 0x04, 0x14, 0x16, 0x08, 0x16, 0x00, 0x00, 0x00])
    assert parquet_pages._locations(other) is None
