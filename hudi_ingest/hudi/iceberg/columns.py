"""A Hudi table's columns, partitions and data files in Iceberg's terms. Pure; the libraries' types in and out."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.hudi.files.base_file import META_COLUMNS
from hudi_ingest.hudi.iceberg.field_ids import field_id, paths_of
from hudi_ingest.model.report import ColumnStatistics
from hudi_ingest.records.schema.columns import BINARY, TIMESTAMP, TIMESTAMP_NTZ, ddl_type

UNPARTITIONED, PARTITIONED = 0, 1
"""Ids of the table's two partition specs: a file whose rows have several values of a partition column is in none of Iceberg's partitions."""
_TYPES: Mapping[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    BINARY: BinaryType(),
    pa.date32(): DateType(),
    TIMESTAMP: TimestamptzType(),
    TIMESTAMP_NTZ: TimestampType(),
}
_WIDENED = (("int", "long"), ("float", "double"))
"""What Iceberg lets a column become, besides a decimal with more digits."""


def iceberg_schema(columns: pa.Schema, number: int = 0) -> Schema:
    """Return the schema `number` for a table's columns, which are without Hudi's own, as `columns_of` gives them. Raises SchemaProblem if
    two columns share an id."""
    ids = Counter({path: field_id(path) for path in (*paths_of(columns), *META_COLUMNS)})
    shared = {number for number, count in Counter(ids.values()).items() if count > 1}
    if twins := sorted(path for path, number in ids.items() if number in shared):
        raise SchemaProblem([f"{' and '.join(twins)} have the same id in Iceberg, by chance: rename one"])
    return Schema(*(_field(column, "") for column in columns), schema_id=number)


def _field(field: pa.Field, above: str) -> NestedField:
    path = f"{above}{field.name}"
    return NestedField(field_id(path), field.name, _type(field.type, path), required=not field.nullable)


def _type(kind: pa.DataType, path: str) -> IcebergType:
    if pa.types.is_struct(kind):
        return StructType(*(_field(member, f"{path}.") for member in kind))
    if pa.types.is_list(kind):
        below = f"{path}.element"
        return ListType(field_id(below), _type(kind.value_type, below), not kind.value_field.nullable)
    if pa.types.is_map(kind):
        key, value = f"{path}.key", f"{path}.value"
        return MapType(
            field_id(key),
            _type(kind.key_type, key),
            field_id(value),
            _type(kind.item_type, value),
            not kind.item_field.nullable,
        )
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _TYPES[kind]


def name_mapping(schema: Schema, known: str = "") -> str:
    """Return the JSON of Iceberg's name mapping, for files without ids: the schema's columns, Hudi's own, and those of the mapping `known`
    that the table no longer has. A reader may refuse files with a column that the mapping lacks."""
    mapped = json.loads(schema.name_mapping.model_dump_json())
    mapped += [{"field-id": field_id(name), "names": [name]} for name in META_COLUMNS]
    names = {entry["names"][0] for entry in mapped}
    mapped += [entry for entry in json.loads(known or "[]") if entry["names"][0] not in names]
    return json.dumps(mapped, separators=(",", ":"))


def widening_problems(before: Schema, after: Schema) -> list[str]:
    """List the changes of types that Iceberg does not have."""
    old, problems = fields_by_path(before), []
    for name, field in fields_by_path(after).items():
        was, now = old[name].field_type if name in old else None, field.field_type
        if was is None or was == now or not (was.is_primitive and now.is_primitive):
            continue
        if isinstance(was, DecimalType) and isinstance(now, DecimalType):
            if was.scale == now.scale and was.precision <= now.precision:
                continue
        elif (str(was), str(now)) in _WIDENED:
            continue
        problems.append(f"{name} was {was} and is {now}")
    return problems


def fields_by_path(schema: Schema) -> Mapping[str, NestedField]:
    """Return each field of the schema by its path, as in `field_id`."""
    return {str(schema.find_column_name(number)): schema.find_field(number) for number in sorted(schema.field_ids)}


def partition_spec(schema: Schema, columns: Sequence[str]) -> PartitionSpec:
    """Return the spec of the table's partition columns by their values."""
    fields = [
        PartitionField(schema.find_field(name).field_id, PARTITION_FIELD_ID_START + index, IdentityTransform(), name)
        for index, name in enumerate(columns)
    ]
    return PartitionSpec(*fields, spec_id=PARTITIONED if fields else UNPARTITIONED)


def data_file(
    location: str,
    size_bytes: int,
    rows: int,
    columns: Iterable[ColumnStatistics],
    fields: Mapping[str, NestedField],
    spec: PartitionSpec,
) -> DataFile:
    """Return the manifest's record of a base file. `fields`: the schema's, by path; columns that are not among them are left out."""
    known = [(fields[column.path], column) for column in columns if column.path in fields]
    by_id = {field.field_id: (field, column) for field, column in known}
    values = _partition_values(by_id, spec)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*values or ()),
        record_count=rows,
        file_size_in_bytes=size_bytes,
        column_sizes={field.field_id: column.size_bytes for field, column in known},
        value_counts={field.field_id: column.values for field, column in known},
        null_value_counts={field.field_id: column.nulls for field, column in known if column.nulls is not None},
        nan_value_counts={},
        lower_bounds={
            field.field_id: _bound(field, column.lower) for field, column in known if column.lower is not None
        },
        upper_bounds={
            field.field_id: _bound(field, column.upper) for field, column in known if column.upper is not None
        },
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = UNPARTITIONED if values is None else spec.spec_id
    return file


def _bound(field: NestedField, bound: str) -> bytes:
    """A bound of the column's type, which may have become wider since the file was written."""
    content = bytes.fromhex(bound)
    if len(content) == 4 and isinstance(field.field_type, LongType):
        return struct.pack("<q", *struct.unpack("<i", content))
    if len(content) == 4 and isinstance(field.field_type, DoubleType):
        return struct.pack("<d", *struct.unpack("<f", content))
    return content


def _partition_values(
    columns: Mapping[int, tuple[NestedField, ColumnStatistics]], spec: PartitionSpec
) -> list[Any] | None:
    """The value of each partition column, None if the file's rows have several, such as null and "", which share one of Hudi's folders, or
    if the statistics do not say."""
    values: list[Any] = []
    for part in spec.fields:
        if part.source_id not in columns:
            return None
        field, column = columns[part.source_id]
        if column.nulls == column.values:
            values.append(None)
        elif column.nulls == 0 and column.lower is not None and column.lower == column.upper:
            assert isinstance(field.field_type, PrimitiveType)
            values.append(from_bytes(field.field_type, _bound(field, column.lower)))
        else:
            return None
    return values


def refusal(table: str, problems: Sequence[str], columns: pa.Schema) -> str:
    """Say why the table's columns cannot be published, and what to do."""
    return (
        f"{'; '.join(problems)}: Iceberg reads a column of older files only if an int became a long, a float a double, or a decimal got more "
        f"digits. Readers of Iceberg keep the table as it was before. Ingest into a new table with the columns {table} has now "
        f"({', '.join(f'{column.name} {ddl_type(column.type)}' for column in columns)}), or remove `table.iceberg`."
    )
