"""The columns of a table: Spark DDL or an Avro schema in, Arrow and Spark's JSON out. No JVM.

Only Arrow types that reach Parquet, Hudi's Avro schema and Spark unchanged are used. Types that would change on the way
(tinyint and smallint become int, map keys become strings) are refused, not converted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS

MAX_DEPTH = 32
"""Maximum nesting of structs, arrays and maps."""
MAX_FIELDS = 10_000
"""Maximum number of columns in a schema, including those inside structs."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
BINARY = pa.binary()

SIMPLE_DDL_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
}
DDL_TYPES = (
    "boolean, int, long, float, double, decimal(p,s), string, varchar(n), binary, date, timestamp, "
    "array<…>, map<string,…>, struct<…>"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = ("_hoodie_", "_kafka_")
_READERS_OWN: Mapping[str, str] = {
    "_tmp_metadata_row_index": "Spark's Parquet reader, which shows row numbers in its place and garbage in the other columns",
}
"""Top-level names that a reader of tables gives a meaning of its own, and whose they are. Inside a struct they are as any other."""
UNREADABLE: pa.DataType = pa.month_day_nano_interval()
"""Placeholder for a refused type, so that the parser can continue and find the next problem."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a pipeline's table, without Hudi's own."""

    record: pa.Schema
    """The user's columns, which records are decoded to."""
    columns: pa.Schema
    """The user's columns and the Kafka columns, in the table's order."""
    spark_json: str
    """`columns` as the JSON of a Spark StructType."""


def table_schema(record: pa.Schema, chosen: Collection[str]) -> TableSchema:
    """Return the columns of a table for records with the columns `record`, with the Kafka columns; `chosen` are the optional
    ones of those ("topic", "timestamp")."""
    kafka = [field for name, field in KAFKA_FIELDS.items() if name in {"partition", "offset", *chosen}]
    columns = pa.schema([*record, *kafka])
    return TableSchema(record, columns, spark_json(columns))


def spark_json(schema: pa.Schema) -> str:
    """Return the JSON of the Spark StructType, byte for byte the same as pyspark's `StructType.json()`."""
    return json.dumps(_spark_struct(schema), separators=(",", ":"), sort_keys=True)


def column_problems(columns: pa.Schema, renamable: Collection[str] = ()) -> tuple[str, ...]:
    """List why Hudi and Spark could not store columns with these names; empty when they could. `renamable`: those that may
    still get another name, or whose members may still be taken out of them."""
    return tuple(_name_problems([*columns], "", top=True, renamable=renamable))


def unreadable_names(names: Iterable[str]) -> Iterator[str]:
    """Yield a problem for each column that a reader of the table would not show as it was written."""
    for name in names:
        if owner := _READERS_OWN.get(name.lower()):
            yield f"column {name}: this name belongs to {owner}; rename it"


def columns_of(columns: pa.Schema) -> pa.Schema:
    """Return a table's columns without Hudi's own, in this module's types, whichever equivalents the reader used."""
    return pa.schema([_own_field(column) for column in columns if not column.name.startswith("_hoodie_")])


def _own_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _own_type(field.type), field.nullable)


def _own_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_own_field(field) for field in kind])
    if _is_list(kind):
        return list_of(_own_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return map_of(_own_type(kind.item_type), kind.item_field.nullable)
    return _plain(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Normalize the different forms that readers use for the same type."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def ddl_type(kind: pa.DataType) -> str:
    """Return the Spark DDL of a type, as `parse_ddl` reads it; Arrow's own name when Spark has none."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if _is_list(kind):
        return f"array<{ddl_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_type(kind.key_type)},{ddl_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(_ddl_field(field) for field in kind) + ">"
    for name, simple in SIMPLE_DDL_TYPES.items():
        if simple == _plain(kind):
            return name
    return str(kind)


def columns_to_dicts(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return each column's name, Spark DDL type and nullability, for JSON."""
    return [{"name": column.name, "type": ddl_type(column.type), "nullable": column.nullable} for column in schema]


def ddl(schema: pa.Schema) -> str:
    """Return the columns as Spark DDL, as written in a pipeline file."""
    return ", ".join(
        f"{column.name if _NAME.fullmatch(column.name) else f'`{column.name}`'} {ddl_type(column.type)}"
        + ("" if column.nullable else " NOT NULL")
        for column in schema
    )


def _ddl_field(field: pa.Field) -> str:
    return f"{field.name}:{ddl_type(field.type)}" + ("" if field.nullable else " NOT NULL")


def _spark_struct(fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": field.name, "type": _spark_type(field.type), "nullable": field.nullable, "metadata": {}}
            for field in fields
        ],
    }


_SPARK_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}


def _spark_type(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _spark_type(element.type), "containsNull": element.nullable}
    if pa.types.is_map(kind):
        value = kind.item_field
        return {
            "type": "map",
            "keyType": _spark_type(kind.key_type),
            "valueType": _spark_type(value.type),
            "valueContainsNull": value.nullable,
        }
    if pa.types.is_struct(kind):
        return _spark_struct(kind)
    return _SPARK_NAMES[kind]


_OF_SPARK: Mapping[str, pa.DataType] = {name: kind for kind, name in _SPARK_NAMES.items()}


def parse_spark_json(text: str) -> pa.Schema:
    """Parse the output of `spark_json`. Raises SchemaProblem for any other text."""
    try:
        return pa.schema([_of_spark_field(field) for field in json.loads(text)["fields"]])
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaProblem([f"is not the JSON of columns: {type(error).__name__}: {error}"]) from None


def _of_spark_field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(field["name"], _of_spark_type(field["type"]), field["nullable"])


def _of_spark_type(kind: str | Mapping[str, Any]) -> pa.DataType:
    if isinstance(kind, str):
        numbers = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        return pa.decimal128(int(numbers[1]), int(numbers[2])) if numbers else _OF_SPARK[kind]
    if kind["type"] == "array":
        return list_of(_of_spark_type(kind["elementType"]), kind["containsNull"])
    if kind["type"] == "map":
        return map_of(_of_spark_type(kind["valueType"]), kind["valueContainsNull"])
    return pa.struct([_of_spark_field(field) for field in kind["fields"]])


def checked_columns(fields: Sequence[pa.Field], problems: Sequence[str], renamable: bool = False) -> pa.Schema:
    """Return the schema if there are no problems and Hudi can store these columns, `renamable` ones under other names. Raises
    SchemaProblem."""
    problems_found = [*problems]
    if fields:
        names = [field.name for field in fields] if renamable else []
        problems_found += _name_problems(fields, "", top=True, renamable=names)
    elif not problems:
        problems_found.append("has no columns; write at least one, like `id string`")
    if problems_found:
        raise SchemaProblem(problems_found)
    return pa.schema(fields)


def _name_problems(
    fields: Sequence[pa.Field], parent: str, *, top: bool = False, renamable: Collection[str] = ()
) -> Iterator[str]:
    seen: dict[str, str] = {}
    for field in fields:
        path = f"{parent}{field.name}"
        if not _NAME.fullmatch(field.name) and field.name not in renamable:
            remedy = (
                f"declare it as `{path}` in table.schema and give it another name with the transform `rename`; or, of Debezium's records, set "
                "field.name.adjustment.mode=avro at the connector"
            )
            yield (
                f"column {path}: Hudi cannot store this name; allowed: letters a-z and A-Z, digits and _, "
                f"not beginning with a digit{f' ({remedy})' if top else ''}"
            )
        reserved = _RESERVED[1:] if field.name in renamable else _RESERVED
        if top and field.name.lower().startswith(reserved):
            yield f"column {path}: names beginning with {' or '.join(_RESERVED)} belong to Hudi and hudi-ingest; rename it"
        if top and field.name not in renamable:
            yield from unreadable_names([field.name])
        first = seen.get(field.name.lower())
        seen.setdefault(field.name.lower(), field.name)
        if first is not None:
            difference = "is declared twice" if first == field.name else f"differs from {first} only in case"
            yield f"column {path}: {difference}; Spark cannot distinguish such names, so rename or remove one"
        if field.name not in renamable:
            yield from _type_name_problems(field.type, path)
    if fields and all(re.fullmatch(r"member\d+", field.name) and field.nullable for field in fields):
        where = f"column {parent.rstrip('.')}" if parent else "the schema"
        yield f"{where}: Hudi treats a struct of only nullable columns member0, member1… as a union; rename one of them"


def _type_name_problems(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _name_problems([*kind], f"{path}.")
    elif pa.types.is_list(kind):
        yield from _type_name_problems(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _type_name_problems(kind.item_type, f"{path}.value")


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and 0 <= scale <= precision else None


def list_of(element: pa.DataType, nullable: bool) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable))


def map_of(value: pa.DataType, nullable: bool) -> pa.DataType:
    return pa.map_(pa.string(), pa.field("value", value, nullable))
