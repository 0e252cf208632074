"""Parse Spark DDL into columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import pyarrow as pa
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import (
    DDL_TYPES,
    MAX_DEPTH,
    MAX_FIELDS,
    SIMPLE_DDL_TYPES,
    UNREADABLE,
    checked_columns,
    ddl_type,
    decimal_type,
    list_of,
    map_of,
)

_WORD = re.compile(r"[^\W\d]\w*")


def parse_ddl(text: str, renamable: bool = False) -> pa.Schema:
    """Parse Spark DDL, like `id string NOT NULL, price decimal(10,2), tags array<string>`. Raises SchemaProblem, but with
    `renamable` not for names of columns that only Hudi refuses.

    Ignores comments (SQL's and `COMMENT '…'`); `ddl_comments` returns those of columns.
    """
    return _parsed(text, renamable)[0]


def ddl_comments(text: str) -> dict[str, str]:
    """Return the `COMMENT '…'` of each top-level column that has one. Raises SchemaProblem."""
    return dict(_parsed(text, renamable=True)[1])


# The pipelines of a template have the same columns, and each is validated by itself.
@lru_cache(maxsize=64)
def _parsed(text: str, renamable: bool) -> tuple[pa.Schema, Mapping[str, str]]:
    parser = _DdlParser(text)
    return parser.schema(renamable), parser.comments


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    kind: str
    """word, quoted (a name in backticks), string, or other."""


class _DdlParser:
    """Spark's grammar of columns over sqlglot's tokens.

    sqlglot's own parser is more lenient than Spark: it reads `a: int` as a column without a type, and `select a` as a
    query. So only its tokenizer is used, which handles Spark's quoting and comments.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        self._next = 0
        self._fields = 0
        self._problems: list[str] = []
        self.comments: dict[str, str] = {}
        """The comments of the columns read so far."""

    def schema(self, renamable: bool) -> pa.Schema:
        fields: list[pa.Field] = []
        try:
            self._tokens = self._tokenize()
            if self._tokens:
                fields = self._columns("", end=None, depth=0)
        except SchemaProblem as problem:
            raise SchemaProblem([*self._problems, *problem.problems]) from None
        return checked_columns(fields, self._problems, renamable)

    def _tokenize(self) -> list[_Token]:
        try:
            # The parenthesis keeps sqlglot from reading a first column named `show` or `fetch` as a command.
            sqlglot_tokens = Spark().tokenize("(" + self._text + "\n")[1:]
        except SqlglotError:
            problem = (
                "is not Spark DDL: a quote, backtick or comment is not closed; write columns like `id string, ts long`"
            )
            raise SchemaProblem([problem]) from None
        tokens: list[_Token] = []
        for sqlglot_token in sqlglot_tokens:
            kind = "other"
            parts = [sqlglot_token.text]
            if sqlglot_token.token_type == TokenType.IDENTIFIER:
                kind = "quoted"
            elif sqlglot_token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
                kind = "string"
            elif set(sqlglot_token.text) <= set("<>=:"):
                parts = list(sqlglot_token.text)  # `>=` and `<>` are two tokens here
            else:
                parts = self._text[
                    sqlglot_token.start - 1 : sqlglot_token.end
                ].split()  # sqlglot joins some keywords, like GROUP BY
            for part in parts:
                is_word = kind == "other" and _WORD.fullmatch(part)
                tokens.append(_Token(part, sqlglot_token.start - 1, "word" if is_word else kind))
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
        if name in SIMPLE_DDL_TYPES and not self._sees("("):
            return SIMPLE_DDL_TYPES[name]
        if name in ("decimal", "dec", "numeric"):
            return self._decimal(path)
        if name == "varchar" and self._sees("("):
            self._numbers(path)
            return pa.string()
        if name == "array" and self._take("<"):
            element = self._type(f"{path}.element", depth + 1)
            self._close(path)
            return list_of(element, True)
        if name == "map" and self._take("<"):
            key = self._type(f"{path}.key", depth + 1)
            if not self._take(","):
                self._expected(f"`,` after the key type of map {path}")
            value = self._type(f"{path}.value", depth + 1)
            self._close(path)
            if key not in (pa.string(), UNREADABLE):
                self._problems.append(
                    f"column {path}: map keys must be string, because Hudi's Avro maps have no others; "
                    f"found {ddl_type(key)}"
                )
            return map_of(value, True)
        if name == "struct" and self._take("<"):
            if self._take(">"):
                self._problems.append(f"column {path}: an empty struct cannot be stored; give it a column")
                return UNREADABLE
            return pa.struct(self._columns(f"{path}.", end=">", depth=depth + 1))
        return self._refuse_type(path, token)

    def _refuse_type(self, path: str, token: _Token) -> pa.DataType:
        """Note the problem and continue after the type."""
        depth = 0
        while (skipped := self._peek()) is not None and skipped.kind != "string":
            if depth == 0 and (skipped.text in (",", ">", ")") or skipped.text.lower() in ("not", "comment")):
                break
            depth += (skipped.text in ("<", "(")) - (skipped.text in (">", ")"))
            self._next += 1
        name = token.text.lower()
        if name in ("byte", "tinyint", "short", "smallint"):
            reason = "Hudi would store it as int; use `int`"
        elif name == "timestamp_ntz":
            reason = "hudi-rs, which reads tables here, cannot read it; use `timestamp`"
        elif name in ("array", "map", "struct"):
            reason = f"needs its types, like {name}<{ {'array': 'int', 'map': 'string,int', 'struct': 'a:int'}[name] }>"
        elif name in SIMPLE_DDL_TYPES:
            reason = "takes no parentheses; write the type alone"
        elif name == "varchar":
            reason = "needs a length, like varchar(20); or use `string`"
        else:
            reason = f"not a type that tables here can have; allowed: {DDL_TYPES}"
        self._problems.append(f"column {path}: found type {token.text}: {reason}")
        return UNREADABLE

    def _decimal(self, path: str) -> pa.DataType:
        numbers = self._numbers(path) if self._sees("(") else [10, 0]
        kind = decimal_type(numbers[0], numbers[1] if len(numbers) > 1 else 0) if len(numbers) < 3 else None
        if kind is None:
            shown = ",".join(map(str, numbers))
            self._problems.append(
                f"column {path}: found decimal({shown}); allowed: decimal(p,s) with p from 1 to 38 and s from 0 to p"
            )
            return UNREADABLE
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

    def _expected(self, expected: str) -> NoReturn:
        token = self._peek()
        if token is None:
            seen, at = "the end", len(self._text)
        else:
            seen, at = f"`{token.text[:40]}`", token.at
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        raise SchemaProblem([f"is not Spark DDL at line {line}, character {column}: expected {expected}; found {seen}"])
