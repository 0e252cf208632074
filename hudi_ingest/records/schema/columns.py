"""The columns of a table: Spark DDL or an Avro schema in, Arrow and Spark's JSON out. No JVM.

Arrow types are the ones that reach Parquet, Hudi's Avro schema and Spark without change. What would change on the
way (tinyint and smallint become int, map keys become strings) is refused, not converted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

MAX_DEPTH = 32
"""How deep structs, arrays and maps may nest."""
MAX_FIELDS = 10_000
"""How many columns a schema may have, those inside structs counted too."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
_BINARY = pa.binary()

_SIMPLE_DDL: Mapping[str, pa.DataType] = {
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
AVRO_TYPES = (
    "boolean, int, long, float, double, string, bytes, fixed, enum, record, array, map, a union of null and one type, and "
    "the logical types decimal, date, timestamp-millis, timestamp-micros"
)

_WORD = re.compile(r"[^\W\d]\w*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = ("_hoodie_", "_kafka_")
_UNREADABLE: pa.DataType = pa.month_day_nano_interval()
"""Stands for a type that was refused, so that the parser can go on and find the next problem."""


class SchemaProblem(ValueError):
    """A schema that no table can have. Carries all problems at once; each names its column."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    def __reduce__(self) -> tuple[type[SchemaProblem], tuple[tuple[str, ...]]]:
        return (SchemaProblem, (self.problems,))


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What the rows of a pipeline's table look like, without Hudi's own columns."""

    record: pa.Schema
    """The user's columns: what a record is decoded to."""
    columns: pa.Schema
    """The user's columns and the Kafka columns, in the table's order."""
    spark_json: str
    """`columns` as the JSON of a Spark StructType."""


def table_schema(record: pa.Schema, chosen: Collection[str]) -> TableSchema:
    """The columns of a table whose records have `record`'s, with the Kafka columns; `chosen` are the optional ones of
    those ("topic", "timestamp")."""
    kafka = [pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
    if "topic" in chosen:
        kafka.insert(0, pa.field("_kafka_topic", pa.string(), False))
    if "timestamp" in chosen:
        kafka.append(pa.field("_kafka_timestamp", TIMESTAMP))
    columns = pa.schema([*record, *kafka])
    return TableSchema(record, columns, spark_json(columns))


def spark_json(schema: pa.Schema) -> str:
    """The JSON of the Spark StructType, byte for byte what pyspark's `StructType.json()` gives."""
    return json.dumps(_spark_struct(schema), separators=(",", ":"), sort_keys=True)


def column_problems(columns: pa.Schema) -> tuple[str, ...]:
    """Why Hudi and Spark could not hold columns of these names; one line each, empty when they could."""
    return tuple(_name_problems([*columns], "", top=True))


def columns_of(found: pa.Schema) -> pa.Schema:
    """A table's columns without Hudi's own, in this module's types, however their reader has spelled them."""
    return pa.schema([_own_field(each) for each in found if not each.name.startswith("_hoodie_")])


def _own_field(found: pa.Field) -> pa.Field:
    return pa.field(found.name, _own_type(found.type), found.nullable)


def _own_type(found: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found):
        return pa.struct([_own_field(each) for each in found])
    if _is_list(found):
        return _list_of(_own_type(found.value_type), found.value_field.nullable)
    if pa.types.is_map(found):
        return _map_of(_own_type(found.item_type), found.item_field.nullable)
    return _plain(found)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Equal for the ways in which a reader may spell one type."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def ddl_type(kind: pa.DataType) -> str:
    """The Spark DDL of a type, as `parse_ddl` reads it; Arrow's own name when Spark has none."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if _is_list(kind):
        return f"array<{ddl_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_type(kind.key_type)},{ddl_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(_ddl_field(each) for each in kind) + ">"
    for name, simple in _SIMPLE_DDL.items():
        if simple == _plain(kind):
            return name
    return str(kind)


def columns_to_dicts(schema: pa.Schema) -> list[dict[str, Any]]:
    """Name, Spark DDL type and nullability of each column, for JSON."""
    return [{"name": each.name, "type": ddl_type(each.type), "nullable": each.nullable} for each in schema]


def ddl(schema: pa.Schema) -> str:
    """The columns as Spark DDL, as a pipeline file has them."""
    return ", ".join(f"{each.name} {ddl_type(each.type)}" + ("" if each.nullable else " NOT NULL") for each in schema)


def _ddl_field(field: pa.Field) -> str:
    return f"{field.name}:{ddl_type(field.type)}" + ("" if field.nullable else " NOT NULL")


def _spark_struct(fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": each.name, "type": _spark_type(each.type), "nullable": each.nullable, "metadata": {}}
            for each in fields
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
    """The columns that `spark_json` wrote. Raises SchemaProblem for another text."""
    try:
        return pa.schema([_of_spark_field(each) for each in json.loads(text)["fields"]])
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaProblem([f"is not the JSON of columns: {type(error).__name__}: {error}"]) from None


def _of_spark_field(found: Mapping[str, Any]) -> pa.Field:
    return pa.field(found["name"], _of_spark_type(found["type"]), found["nullable"])


def _of_spark_type(found: str | Mapping[str, Any]) -> pa.DataType:
    if isinstance(found, str):
        numbers = re.fullmatch(r"decimal\((\d+),(\d+)\)", found)
        return pa.decimal128(int(numbers[1]), int(numbers[2])) if numbers else _OF_SPARK[found]
    if found["type"] == "array":
        return _list_of(_of_spark_type(found["elementType"]), found["containsNull"])
    if found["type"] == "map":
        return _map_of(_of_spark_type(found["valueType"]), found["valueContainsNull"])
    return pa.struct([_of_spark_field(each) for each in found["fields"]])


def _finished(fields: Sequence[pa.Field], problems: Sequence[str]) -> pa.Schema:
    """The schema, when no problem was found and Hudi can hold these columns."""
    found = [*problems]
    if fields:
        found += _name_problems(fields, "", top=True)
    elif not problems:
        found.append("has no columns; write at least one, like `id string`")
    if found:
        raise SchemaProblem(found)
    return pa.schema(fields)


def _name_problems(fields: Sequence[pa.Field], parent: str, *, top: bool = False) -> Iterator[str]:
    seen: dict[str, str] = {}
    for each in fields:
        path = f"{parent}{each.name}"
        if not _NAME.fullmatch(each.name):
            yield (
                f"column {path}: Hudi cannot store this name; allowed: letters a-z and A-Z, digits and _, "
                "not beginning with a digit"
            )
        if top and each.name.lower().startswith(_RESERVED):
            yield f"column {path}: names beginning with {' or '.join(_RESERVED)} belong to Hudi and hudi-ingest; rename it"
        first = seen.get(each.name.lower())
        seen.setdefault(each.name.lower(), each.name)
        if first is not None:
            other = "is there twice" if first == each.name else f"differs from {first} in case only"
            yield f"column {path}: {other}; Spark does not tell such names apart, so rename or remove one"
        yield from _type_name_problems(each.type, path)
    if fields and all(re.fullmatch(r"member\d+", each.name) and each.nullable for each in fields):
        where = f"column {parent.rstrip('.')}" if parent else "the schema"
        yield f"{where}: Hudi takes a struct of only nullable columns member0, member1… for a union; rename one of them"


def _type_name_problems(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _name_problems([*kind], f"{path}.")
    elif pa.types.is_list(kind):
        yield from _type_name_problems(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _type_name_problems(kind.item_type, f"{path}.value")


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and 0 <= scale <= precision else None


def _list_of(element: pa.DataType, nullable: bool) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable))


def _map_of(value: pa.DataType, nullable: bool) -> pa.DataType:
    return pa.map_(pa.string(), pa.field("value", value, nullable))


def parse_ddl(text: str) -> pa.Schema:
    """Columns as Spark DDL, like `id string NOT NULL, price decimal(10,2), tags array<string>`. Raises SchemaProblem.

    Comments (SQL's and `COMMENT '…'`) are read over; `ddl_comments` has those of columns.
    """
    return _DdlParser(text).schema()


def ddl_comments(text: str) -> dict[str, str]:
    """What `COMMENT '…'` says of columns, nested fields left out. Raises SchemaProblem."""
    parser = _DdlParser(text)
    parser.schema()
    return parser.comments


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    kind: str
    """word, quoted (a name in backticks), string, or other."""


class _DdlParser:
    """Spark's grammar of columns over sqlglot's tokens.

    sqlglot's own parser is more lenient than Spark: it reads `a: int` as a column without a type, and `select a` as a
    query. So only its tokens are used, which know Spark's quoting and comments.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        self._next = 0
        self._fields = 0
        self._problems: list[str] = []
        self.comments: dict[str, str] = {}
        """Of the columns that have been read."""

    def schema(self) -> pa.Schema:
        fields: list[pa.Field] = []
        try:
            self._tokens = self._tokenize()
            if self._tokens:
                fields = self._columns("", end=None, depth=0)
        except SchemaProblem as problem:
            raise SchemaProblem([*self._problems, *problem.problems]) from None
        return _finished(fields, self._problems)

    def _tokenize(self) -> list[_Token]:
        try:
            # The parenthesis keeps sqlglot from taking a first column named `show` or `fetch` for a command.
            found = Spark().tokenize("(" + self._text + "\n")[1:]
        except SqlglotError:
            problem = (
                "is not Spark DDL: a quote, backtick or comment is not closed; write columns like `id string, ts long`"
            )
            raise SchemaProblem([problem]) from None
        tokens: list[_Token] = []
        for each in found:
            kind = "other"
            parts = [each.text]
            if each.token_type == TokenType.IDENTIFIER:
                kind = "quoted"
            elif each.token_type in (TokenType.STRING, TokenType.RAW_STRING):
                kind = "string"
            elif set(each.text) <= set("<>=:"):
                parts = list(each.text)  # `>=` and `<>` are two signs here
            else:
                parts = self._text[each.start - 1 : each.end].split()  # sqlglot joins some keywords, like GROUP BY
            for part in parts:
                is_word = kind == "other" and _WORD.fullmatch(part)
                tokens.append(_Token(part, each.start - 1, "word" if is_word else kind))
        return tokens

    def _columns(self, parent: str, *, end: str | None, depth: int) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
            fields.append(self._column(parent, depth))
            if self._take(","):
                continue
            if end is None:
                if self._peek() is not None:
                    self._expected(f"`,`, NOT NULL, COMMENT or the end after column {parent}{fields[-1].name}")
                return fields
            if not self._take(end):
                self._expected(f"`,` or `{end}` after {parent}{fields[-1].name}")
            return fields

    def _column(self, parent: str, depth: int) -> pa.Field:
        token = self._peek()
        if token is None or token.kind not in ("word", "quoted"):
            after = f" of {parent.rstrip('.')}" if parent else ""
            self._expected(f"a column name{after} (in backticks when it is not a plain word)")
        self._next += 1
        path = f"{parent}{token.text}"
        self._take(":")
        kind = self._type(path, depth)
        nullable, commented = True, False
        while True:
            if nullable and self._take("not"):
                if not self._take("null"):
                    self._expected(f"NULL after NOT of column {path}")
                nullable = False
            elif not commented and self._take("comment"):
                comment = self._peek()
                if comment is None or comment.kind != "string":
                    self._expected(f"a text in quotes after COMMENT of column {path}")
                parts = []
                while (comment := self._peek()) is not None and comment.kind == "string":
                    parts.append(comment.text)
                    self._next += 1  # 'it''s' is two tokens
                if not parent:
                    self.comments[token.text] = "'".join(parts)
                commented = True
            else:
                return pa.field(token.text, kind, nullable)

    def _type(self, path: str, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise SchemaProblem([f"column {path}: nested deeper than {MAX_DEPTH} levels"])
        token = self._peek()
        if token is None or token.kind != "word":
            self._expected(f"the type of column {path}")
        self._next += 1
        name = token.text.lower()
        if name in _SIMPLE_DDL and not self._sees("("):
            return _SIMPLE_DDL[name]
        if name in ("decimal", "dec", "numeric"):
            return self._decimal(path)
        if name == "varchar" and self._sees("("):
            self._numbers(path)
            return pa.string()
        if name == "array" and self._take("<"):
            element = self._type(f"{path}.element", depth + 1)
            self._close(path)
            return _list_of(element, True)
        if name == "map" and self._take("<"):
            key = self._type(f"{path}.key", depth + 1)
            if not self._take(","):
                self._expected(f"`,` after the key type of map {path}")
            value = self._type(f"{path}.value", depth + 1)
            self._close(path)
            if key not in (pa.string(), _UNREADABLE):
                self._problems.append(
                    f"column {path}: map keys must be string, because Hudi's Avro maps have no others; "
                    f"found {ddl_type(key)}"
                )
            return _map_of(value, True)
        if name == "struct" and self._take("<"):
            if self._take(">"):
                self._problems.append(f"column {path}: an empty struct cannot be stored; give it a column")
                return _UNREADABLE
            return pa.struct(self._columns(f"{path}.", end=">", depth=depth + 1))
        return self._refuse_type(path, token)

    def _refuse_type(self, path: str, token: _Token) -> pa.DataType:
        """Notes the problem and goes on behind the type."""
        depth = 0
        while (found := self._peek()) is not None and found.kind != "string":
            if depth == 0 and (found.text in (",", ">", ")") or found.text.lower() in ("not", "comment")):
                break
            depth += (found.text in ("<", "(")) - (found.text in (">", ")"))
            self._next += 1
        name = token.text.lower()
        if name in ("byte", "tinyint", "short", "smallint"):
            reason = "Hudi would store it as int; use `int`"
        elif name == "timestamp_ntz":
            reason = "hudi-rs, which reads tables here, cannot read it; use `timestamp`"
        elif name in ("array", "map", "struct"):
            reason = f"needs its types, like {name}<{ {'array': 'int', 'map': 'string,int', 'struct': 'a:int'}[name] }>"
        elif name in _SIMPLE_DDL:
            reason = "takes no parentheses; write the type alone"
        elif name == "varchar":
            reason = "needs a length, like varchar(20); or use `string`"
        else:
            reason = f"not a type that tables here can have; allowed: {DDL_TYPES}"
        self._problems.append(f"column {path}: found type {token.text}: {reason}")
        return _UNREADABLE

    def _decimal(self, path: str) -> pa.DataType:
        numbers = self._numbers(path) if self._sees("(") else [10, 0]
        kind = _decimal(numbers[0], numbers[1] if len(numbers) > 1 else 0) if len(numbers) < 3 else None
        if kind is None:
            shown = ",".join(map(str, numbers))
            self._problems.append(
                f"column {path}: found decimal({shown}); allowed: decimal(p,s) with p from 1 to 38 and s from 0 to p"
            )
            return _UNREADABLE
        return kind

    def _numbers(self, path: str) -> list[int]:
        self._take("(")
        numbers: list[int] = []
        while True:
            token = self._peek()
            if token is None or not re.fullmatch(r"[0-9]{1,9}", token.text) or token.kind != "other":
                self._expected(f"a whole number inside the parentheses of column {path}")
            numbers.append(int(token.text))
            self._next += 1
            if self._take(")"):
                return numbers
            if not self._take(","):
                self._expected(f"`,` or `)` in the type of column {path}")

    def _close(self, path: str) -> None:
        if not self._take(">"):
            self._expected(f"`>` after the types of column {path}")

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _sees(self, text: str) -> bool:
        token = self._peek()
        return token is not None and token.kind in ("word", "other") and token.text.lower() == text

    def _take(self, text: str) -> bool:
        seen = self._sees(text)
        self._next += seen
        return seen

    def _expected(self, what: str) -> NoReturn:
        token = self._peek()
        if token is None:
            found, at = "the end", len(self._text)
        else:
            found, at = f"`{token.text[:40]}`", token.at
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise SchemaProblem([f"is not Spark DDL at line {line}, character {column}: expected {what}; found {found}"])


def parse_avsc(text: str) -> pa.Schema:
    """The fields of an Avro record schema. Raises SchemaProblem. Docs, defaults and aliases are read over."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaProblem([f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"]) from None
    except (RecursionError, ValueError):
        raise SchemaProblem(
            ["is no JSON that can be read: too deeply nested, or a number of too many digits"]
        ) from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise SchemaProblem(['is not an Avro record; the file must hold {"type": "record", "name": …, "fields": […]}'])
    parser = _AvroParser()
    return _finished(parser.fields(found), parser.problems)


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


class _AvroParser:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._named: dict[str, pa.DataType | None] = {}
        """Types by full name; None while the type's own fields are read."""
        self._fields = 0

    def fields(self, record: Mapping[str, Any]) -> list[pa.Field]:
        """Of the outermost record."""
        found = self._type(record, "", "", 0)
        return [*found] if pa.types.is_struct(found) else []

    def _refuse(self, path: str, what: str) -> pa.DataType:
        self.problems.append(f"column {path}: {what}" if path else what)
        return _UNREADABLE

    def _type(self, found: object, path: str, namespace: str, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            return self._refuse(path, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(found, str):
            return self._by_name(found, path, namespace)
        if not isinstance(found, dict):
            return self._refuse(path, f"no Avro type; allowed: {AVRO_TYPES}")
        kind = found.get("type")
        logical = found.get("logicalType")
        if isinstance(kind, (dict, list)) and logical is None:
            return self._refuse(path, "a type inside a type; write the inner one alone")
        if logical is not None:
            return self._logical(found, kind, logical, path, namespace)
        if kind in ("record", "enum", "fixed"):
            return self._declare(found, path, namespace, depth)
        if kind == "array":
            return _list_of(*self._nullable(found.get("items"), f"{path}.element", namespace, depth + 1))
        if kind == "map":
            return _map_of(*self._nullable(found.get("values"), f"{path}.value", namespace, depth + 1))
        if isinstance(kind, str):
            return self._by_name(kind, path, namespace)
        return self._refuse(path, f"no Avro type; allowed: {AVRO_TYPES}")

    def _nullable(self, found: object, path: str, namespace: str, depth: int) -> tuple[pa.DataType, bool]:
        if not isinstance(found, list):
            return self._type(found, path, namespace, depth), False
        others = [each for each in found if each != "null"]
        if len(others) != 1 or len(found) > 2:
            shown = ", ".join(_avro_name(each) for each in found)
            refused = self._refuse(path, f"found a union of [{shown}]; allowed: null and one other type")
            return refused, True
        if isinstance(others[0], list):
            return self._refuse(path, "a union inside a union; allowed: null and one other type"), True
        return self._type(others[0], path, namespace, depth), len(found) == 2

    def _by_name(self, name: str, path: str, namespace: str) -> pa.DataType:
        if name in _AVRO_SIMPLE:
            return _AVRO_SIMPLE[name]
        for full in (name if "." in name else f"{namespace}.{name}".lstrip("."), name):
            if full in self._named:
                kind = self._named[full]
                return self._refuse(path, f"record {name} contains itself") if kind is None else kind
        return self._refuse(path, f"found type {name!r}, which is not known here; allowed: {AVRO_TYPES}")

    def _declare(
        self, found: Mapping[str, Any], path: str, namespace: str, depth: int, fixed: pa.DataType = _BINARY
    ) -> pa.DataType:
        kind, name, inner = found["type"], found.get("name"), found.get("namespace", namespace)
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
            self._named[full] = self._record(found, path, inner, depth)
        return self._named[full]

    def _record(self, found: Mapping[str, Any], path: str, namespace: str, depth: int) -> pa.DataType:
        given = found.get("fields")
        if not isinstance(given, list) or not given:
            return self._refuse(path, "a record needs `fields`, a list of at least one")
        fields: list[pa.Field] = []
        for index, each in enumerate(given):
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                self._refuse(path, f"fields[{index}] needs a name and a type")
                continue
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
            inner = f"{path}.{each['name']}" if path else each["name"]
            fields.append(pa.field(each["name"], *self._nullable(each["type"], inner, namespace, depth + 1)))
        return pa.struct(fields)

    def _logical(
        self, found: Mapping[str, Any], kind: object, logical: object, path: str, namespace: str
    ) -> pa.DataType:
        known = _AVRO_LOGICAL.get((str(kind), str(logical)))
        if known is not None:
            return known
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return self._decimal(found, path, namespace)
        return self._refuse(
            path,
            f"found logicalType {str(logical)[:60]} on {_avro_name(kind)}; allowed: decimal on bytes or fixed, date on "
            "int, timestamp-millis and timestamp-micros on long; remove the logicalType to read the plain type",
        )

    def _decimal(self, found: Mapping[str, Any], path: str, namespace: str) -> pa.DataType:
        precision, scale = found.get("precision"), found.get("scale", 0)
        kind = _decimal(precision, scale) if type(precision) is int and type(scale) is int else None
        if kind is None:
            return self._refuse(
                path, "decimal needs a whole `precision` from 1 to 38 and a whole `scale` from 0 to the precision"
            )
        if found["type"] == "fixed":
            size = found.get("size")
            if type(size) is not int or size < 1 or 10**kind.precision > 2 ** (8 * min(size, 32) - 1):
                return self._refuse(path, f"a fixed of size {size!r} cannot hold decimal precision {kind.precision}")
            return self._declare(found, path, namespace, 0, fixed=kind)
        return kind


def _avro_name(found: object) -> str:
    if isinstance(found, dict):
        return str(found.get("name") or found.get("type"))[:60]
    return "a union" if isinstance(found, list) else str(found)[:60]
