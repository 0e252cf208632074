"""Columns, ids and bounds in Iceberg's terms: what a reader may skip by them never has a row that it asks for."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.hudi.iceberg import columns as columns_module
from hudi_ingest.hudi.iceberg.columns import data_file, fields_by_path, iceberg_schema, name_mapping, partition_spec
from hudi_ingest.hudi.iceberg.field_ids import BEYOND, LEAST, field_id, paths_of
from hudi_ingest.hudi.iceberg.statistics import column_statistics
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.iceberg_model import DDL

pytestmark = pytest.mark.fast


def footer_of(table: pa.Table, rows_of_a_group: int = 3) -> pq.FileMetaData:
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=rows_of_a_group, store_schema=False)
    return pq.ParquetFile(content).metadata


def test_each_field_has_the_id_of_its_path_wherever_it_is_asked_for() -> None:
    columns = parse_ddl(DDL)
    schema = iceberg_schema(columns)
    assert schema.field_ids == {field_id(path) for path in paths_of(columns)}
    assert {path: field.field_id for path, field in fields_by_path(schema).items()} == {
        path: field_id(path) for path in paths_of(columns)
    }
    assert all(LEAST <= number < BEYOND for number in schema.field_ids)
    # What these ids are must never change: files have them.
    assert (field_id("id"), field_id("customer.tags.element")) == (1978531289, 1249524472)


def test_the_types_are_those_that_arrow_reads(tmp_path: object) -> None:
    columns = parse_ddl(DDL)
    read = schema_to_pyarrow(iceberg_schema(columns), include_field_ids=False)
    for column in columns:
        found = read.field(column.name)
        assert found.nullable == column.nullable
        assert str(found.type).replace("large_", "") == str(column.type), column.name


def test_two_columns_with_one_id_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "field_id", lambda path: 7 if path in ("a", "b.x") else field_id(path))
    with pytest.raises(SchemaProblem, match=r"a and b\.x have the same id in Iceberg, by chance: rename one"):
        iceberg_schema(parse_ddl("a int, b struct<x: int>"))


def test_the_mapping_has_hudis_columns_and_all_names_ever_used() -> None:
    first = name_mapping(iceberg_schema(parse_ddl("a int, gone struct<x: int>")))
    second = json.loads(name_mapping(iceberg_schema(parse_ddl("a int, b long")), first))
    names = [entry["names"][0] for entry in second]
    assert sorted(names) == sorted({*names})
    assert {"a", "b", "gone", "_hoodie_commit_time", "_hoodie_file_name"} <= {*names}
    (gone,) = (entry for entry in second if entry["names"] == ["gone"])
    assert gone["fields"][0] == {"names": ["x"], "field-id": field_id("gone.x")}


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
    | st.text("\U0010ffff\ud7ff".encode("utf-16", "surrogatepass").decode("utf-16"), min_size=14, max_size=20),
    pa.binary(): st.binary(max_size=40) | st.just(b"\xff" * 20),
    pa.decimal128(12, 2): st.decimals(-(10**9), 10**9, places=2),
    pa.decimal128(38, 4): st.decimals(-(10**30), 10**30, places=4),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(__import__("datetime").timezone.utc)),
}


@given(st.data())
def test_bounds_are_around_every_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*VALUES]))
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=9))
    table = pa.table(
        {"c": pa.array(values, kind), "s": pa.array([{"x": each} for each in values], pa.struct([("x", kind)]))}
    )
    found = {column.path: column for column in column_statistics(footer_of(table))}
    assert {*found} == {"c", "s.x"}
    field_type = iceberg_schema(pa.schema([("c", kind)])).find_type("c")
    written = table["c"].to_pylist()
    for column in found.values():
        assert (column.values, column.nulls) == (len(values), values.count(None))
        for bound, holds in ((column.lower, lambda value, b: b <= value), (column.upper, lambda value, b: value <= b)):
            if bound is not None:
                limit = from_bytes(field_type, bytes.fromhex(bound))
                assert len(bound) <= 2 * 16 * 4
                for value in written:
                    # NaN is greater than all, or in no order with them.
                    if value is not None and (value == value or bound is column.upper):
                        assert holds(_comparable(value, kind), limit), (bound, value)


def _comparable(value: Any, kind: pa.DataType) -> Any:
    """As pyiceberg has it: days and microseconds since 1970."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.scalar(value, kind).cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).as_py()
    return value


def test_bounds_follow_a_widened_column_and_partitions_are_whole_values() -> None:
    table = pa.table({"dt": ["x" * 40] * 2, "n": pa.array([-5, 7], pa.int32()), "mixed": pa.array([None, ""])})
    statistics = column_statistics(footer_of(table), ["dt", "mixed"])
    schema = iceberg_schema(pa.schema([("dt", pa.string()), ("n", pa.int64()), ("mixed", pa.string())]))
    fields = fields_by_path(schema)
    file = data_file("file:///f", 10, 2, statistics, fields, partition_spec(schema, ["dt"]))
    assert (file.spec_id, [*file.partition]) == (1, ["x" * 40])
    assert file.lower_bounds[field_id("n")] == (-5).to_bytes(8, "little", signed=True)
    assert data_file("file:///f", 10, 2, statistics, fields, partition_spec(schema, ["dt", "mixed"])).spec_id == 0
    assert data_file("file:///f", 10, 2, (), fields, partition_spec(schema, ["dt"])).spec_id == 0
