"""Parse Avro schema files into columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import (
    BINARY,
    MAX_DEPTH,
    MAX_FIELDS,
    TIMESTAMP,
    UNREADABLE,
    checked_columns,
    decimal_type,
    list_of,
    map_of,
)

AVRO_TYPES = (
    "boolean, int, long, float, double, string, bytes, fixed, enum, record, array, map, a union of null and one type, and "
    "the logical types decimal, date, timestamp-millis, timestamp-micros"
)


def parse_avsc(text: str, renamable: bool = False) -> pa.Schema:
    """Parse the fields of an Avro record schema. Defaults and aliases are read by `avro.resolution_of`, docs by descriptions.py.

    Raises SchemaProblem, but with `renamable` not for names of columns that only Hudi refuses.
    """
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaProblem([f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"]) from None
    except (RecursionError, ValueError):
        raise SchemaProblem(["is not readable JSON: too deeply nested, or a number with too many digits"]) from None
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaProblem(['is not an Avro record; the file must hold {"type": "record", "name": …, "fields": […]}'])
    parser = _AvroParser()
    return checked_columns(parser.fields(record), parser.problems, renamable)


_AVRO_SIMPLE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
}


CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
UNKNOWN_PRECISION = 64
"""The precision that Kafka Connect's converters register for a decimal of unknown precision, such as PostgreSQL's money."""


class _AvroParser:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._named: dict[str, pa.DataType | None] = {}
        """Types by full name; None while the type's own fields are read."""
        self._fields = 0

    def fields(self, record: Mapping[str, Any]) -> list[pa.Field]:
        """Parse the fields of the outermost record."""
        columns = self._type(record, "", "", 0)
        return [*columns] if pa.types.is_struct(columns) else []

    def _refuse(self, path: str, problem: str) -> pa.DataType:
        self.problems.append(f"column {path}: {problem}" if path else problem)
        return UNREADABLE

    def _type(self, schema: object, path: str, namespace: str, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            return self._refuse(path, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(schema, str):
            return self._by_name(schema, path, namespace)
        if not isinstance(schema, dict):
            return self._refuse(path, f"no Avro type; allowed: {AVRO_TYPES}")
        kind = schema.get("type")
        logical = schema.get("logicalType")
        if isinstance(kind, (dict, list)) and logical is None:
            return self._refuse(path, "a type inside a type; write the inner one alone")
        if logical is not None:
            return self._logical(schema, kind, logical, path, namespace)
        if schema.get("connect.name") == CONNECT_DECIMAL:
            return self._refuse(
                path,
                "a decimal of Kafka Connect whose scale is not from 0 to 38; have the connector send it as string or double (Debezium's "
                "decimal.handling.mode, numeric.mapping of a JDBC source), or declare it as binary",
            )
        if kind in ("record", "enum", "fixed"):
            return self._declare(schema, path, namespace, depth)
        if kind == "array":
            return list_of(*self._nullable(schema.get("items"), f"{path}.element", namespace, depth + 1))
        if kind == "map":
            return map_of(*self._nullable(schema.get("values"), f"{path}.value", namespace, depth + 1))
        if isinstance(kind, str):
            return self._by_name(kind, path, namespace)
        return self._refuse(path, f"no Avro type; allowed: {AVRO_TYPES}")

    def _nullable(self, schema: object, path: str, namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        if not isinstance(schema, list):
            return self._type(schema, path, namespace, depth), False
        types = [branch for branch in schema if branch != "null"]
        if len(types) != 1 or len(schema) > 2:
            shown = ", ".join(_avro_name(branch) for branch in schema)
            refused = self._refuse(path, f"found a union of [{shown}]; allowed: null and one other type")
            return refused, True
        if isinstance(types[0], list):
            return self._refuse(path, "a union inside a union; allowed: null and one other type"), True
        return self._type(types[0], path, namespace, depth), len(schema) == 2

    def _by_name(self, name: str, path: str, namespace: str) -> pa.DataType:
        if name in _AVRO_SIMPLE:
            return _AVRO_SIMPLE[name]
        for full in (name if "." in name else f"{namespace}.{name}".lstrip("."), name):
            if full in self._named:
                kind = self._named[full]
                if kind == UNREADABLE:
                    return self._refuse(path, f"record {name} has no `fields`; give it at least one")
                return self._refuse(path, f"record {name} contains itself") if kind is None else kind
        return self._refuse(path, f"found type {name!r}, which is unknown; allowed: {AVRO_TYPES}")

    def _declare(
        self, schema: Mapping[str, Any], path: str, namespace: str, depth: int, fixed: pa.DataType = BINARY
    ) -> pa.DataType:
        kind, name, inner = schema["type"], schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(inner, str) or not name:
            return self._refuse(path, f"a {kind} needs a name")
        if "." in name:
            inner, _, name = name.rpartition(".")
        full = f"{inner}.{name}".lstrip(".")
        if full in self._named:
            return self._refuse(path, f"the type name {full} is declared twice; refer to the first by its name")
        if kind == "enum":
            self._named[full] = pa.string()
        elif kind == "fixed":
            self._named[full] = fixed
        else:
            self._named[full] = None
            self._named[full] = self._record(schema, path, inner, depth)
        return self._named[full]

    def _record(self, schema: Mapping[str, Any], path: str, namespace: str, depth: int) -> pa.DataType:
        declared = schema.get("fields")
        if not isinstance(declared, list) or not declared:
            return self._refuse(path, "a record needs `fields`, a list of at least one")
        fields: list[pa.Field] = []
        for index, field in enumerate(declared):
            if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
                self._refuse(path, f"fields[{index}] needs a name and a type")
                continue
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
            inner = f"{path}.{field['name']}" if path else field["name"]
            fields.append(pa.field(field["name"], *self._nullable(field["type"], inner, namespace, depth + 1)))
        return pa.struct(fields)

    def _logical(
        self, schema: Mapping[str, Any], kind: object, logical: object, path: str, namespace: str
    ) -> pa.DataType:
        known = _AVRO_LOGICAL.get((str(kind), str(logical)))
        if known is not None:
            return known
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return self._decimal(schema, path, namespace)
        return self._refuse(
            path,
            f"found logicalType {str(logical)[:60]} on {_avro_name(kind)}; allowed: decimal on bytes or fixed, date on "
            "int, timestamp-millis and timestamp-micros on long; remove the logicalType to read the plain type",
        )

    def _decimal(self, schema: Mapping[str, Any], path: str, namespace: str) -> pa.DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if precision == UNKNOWN_PRECISION:
            precision = 38
        kind = decimal_type(precision, scale) if type(precision) is int and type(scale) is int else None
        if kind is None:
            return self._refuse(
                path, "decimal needs a whole `precision` from 1 to 38 and a whole `scale` from 0 to the precision"
            )
        if schema["type"] == "fixed":
            size = schema.get("size")
            if type(size) is not int or size < 1 or 10**kind.precision > 2 ** (8 * min(size, 32) - 1):
                return self._refuse(path, f"a fixed of size {size!r} cannot hold decimal precision {kind.precision}")
            return self._declare(schema, path, namespace, 0, fixed=kind)
        return kind


def _avro_name(schema: object) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or schema.get("type"))[:60]
    return "a union" if isinstance(schema, list) else str(schema)[:60]
