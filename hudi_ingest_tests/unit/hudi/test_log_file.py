"""Blocks of log files, read again by a decoder of their own; what they mean to Hudi is for the tests with Spark to show."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.log_file import avro_block, delete_block, log_file_name, parquet_block
from hudi_ingest_tests.support.log_blocks import AVRO, read_log

INSTANT = "20261121120000000"
HUDIS_PATTERN = re.compile(r"^\.([^._]+)_([^.]*)\.(log|archive)\.(\d+)(_((\d+)-(\d+)-(\d+))(\.cdc)?)?$")
"""HoodieLogFile.LOG_FILE_PATTERN."""

ORDERINGS: dict[str, tuple[pa.DataType, Any]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "decimal": (pa.decimal128(30, 15), st.decimals(-(10**15) + 1, 10**15 - 1, places=15)),
}


def test_a_name_is_one_that_hudi_takes_apart() -> None:
    name = log_file_name("00000003-0000-0000-0000-000000000000-0", INSTANT, "7-0-12")
    match = HUDIS_PATTERN.match(name)
    assert match is not None
    assert match.group(1, 2, 4, 6) == ("00000003-0000-0000-0000-000000000000-0", INSTANT, "1", "7-0-12")


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), max_size=5),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(sorted(ORDERINGS)), min_size=1, max_size=3),
    st.data(),
)
def test_deletes_are_read_as_they_were_written(
    keys: list[str], path: str, kinds: list[str], data: st.DataObject
) -> None:
    columns = [
        data.draw(st.lists(ORDERINGS[kind][1], min_size=len(keys), max_size=len(keys)), label=kind) for kind in kinds
    ]
    arrays = [pa.array(column, ORDERINGS[kind][0]) for kind, column in zip(kinds, columns, strict=True)]
    (block,) = read_log(delete_block(INSTANT, "{}", path, pa.array(keys, pa.string()), arrays))
    values = [[*zip(kinds, row, strict=True)] for row in zip(*columns, strict=True)]
    assert block.deletes == [
        (key, path, row if len(kinds) > 1 else row[0]) for key, row in zip(keys, values, strict=True)
    ]
    assert (block.instant, block.schema, block.rows) == (INSTANT, "{}", None)


def test_rows_are_a_parquet_file_in_a_block_and_blocks_follow_each_other() -> None:
    table = pa.table({"id": ["a", "ä"], "n": [1, None]})
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream)
    keys = pa.array(["b"])
    content = parquet_block(INSTANT, '{"ü": 1}', stream.getvalue().to_pybytes())
    content += delete_block(INSTANT, '{"ü": 1}', "", keys, [pa.array([5])])
    rows, deletes = read_log(content)
    assert rows.rows is not None
    assert rows.rows.equals(table)
    assert deletes.deletes == [("b", "", ("long", 5))]
    assert rows.schema == deletes.schema == '{"ü": 1}'


def test_rows_are_avro_datums_in_a_block() -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "long"]}]}'
    table = pa.table({"n": [1, None, 300], "id": ["a", "ä", ""]})
    rows, again = read_log(2 * avro_block(INSTANT, schema, table))
    assert rows.rows is not None
    assert rows.rows.equals(table.select(["id", "n"]))
    assert (rows.kind, rows.instant, rows.schema) == (AVRO, INSTANT, schema)
    assert again.rows == rows.rows


@pytest.mark.parametrize("kind", [pa.float64(), pa.int32(), pa.date32(), pa.decimal128(38, 15), pa.decimal128(20, 16)])
def test_a_type_without_an_order_or_an_encoding_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="cannot order changes"):
        delete_block(INSTANT, "{}", "", pa.array(["a"]), [pa.nulls(1, kind)])


def test_a_delete_without_an_ordering_value_is_refused() -> None:
    with pytest.raises(ValueError, match="is null"):
        delete_block(INSTANT, "{}", "", pa.array(["a"]), [pa.nulls(1, pa.int64())])


def test_a_decimal_keeps_all_its_digits() -> None:
    value = Decimal("-999999999999999.123456789012345")
    ordering = pa.array([value], pa.decimal128(30, 15))
    (block,) = read_log(delete_block(INSTANT, "{}", "", pa.array(["a"]), [ordering]))
    assert block.deletes == [("a", "", ("decimal", value))]


def test_a_timestamp_is_a_number_of_microseconds_as_in_rows_that_spark_reads() -> None:
    ordering = pa.array([1_700_000_000_000_001], pa.timestamp("us", tz="UTC"))
    (block,) = read_log(delete_block(INSTANT, "{}", "", pa.array(["a"]), [ordering]))
    assert block.deletes == [("a", "", ("long", 1_700_000_000_000_001))]
