"""Take `SELECT … FROM records WHERE …` apart without interpreting it: its expressions stay the user's own text.

Only what turns a single row into at most one row is allowed. sqlglot's tokenizer handles quotes and comments; its parser
and generator would rewrite expressions, and might change their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from hudi_ingest.exceptions.problems import quoted

RECORDS = "records"
"""The table that a statement selects from."""
SHAPE = f"SELECT expression AS name, … FROM {RECORDS} WHERE condition"

_WORD = re.compile(r"[A-Za-z_]\w*")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_CLAUSES = {
    "JOIN": "a join makes several rows of one",
    "UNION": "a union adds rows",
    "INTERSECT": "it compares with other rows",
    "GROUP": "an aggregate makes one row of several",
    "HAVING": "an aggregate makes one row of several",
    "DISTINCT": "whether a record stays would depend on others",
    "ORDER": "rows stay in the order of their offsets",
    "LIMIT": "whether a record stays would depend on others",
    "OFFSET": "whether a record stays would depend on others",
    "QUALIFY": "a window sees other records",
    "WINDOW": "a window sees other records",
    "OVER": "a window sees other records",
    "TABLESAMPLE": "each attempt would take different records",
    "WITH": "there are no other tables",
    "VALUES": "there are no other tables",
    "SELECT": "a subquery sees other records",
    "PIVOT": "it makes other rows",
    "UNPIVOT": "it makes several rows of one",
    "UNNEST": "it makes several rows of one",
}
"""Keywords of clauses that are not allowed, and why."""
_TAKE_FROM = ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY")
"""Functions in whose parentheses FROM is not a clause."""


class NotAllowed(ValueError):
    """A statement that is not of the allowed shape."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of the statement that is computed."""

    text: str
    """Its original text."""
    words: tuple[str, ...]
    """All names in it: columns, functions and anything else."""
    calls: tuple[str, ...]
    """Names followed by parentheses, such as functions."""


@dataclass(frozen=True, slots=True)
class Selected:
    """An entry of the list that computes or copies a column."""

    name: str
    value: Expression
    column: str | None
    """The name of the column that it copies, as written."""


@dataclass(frozen=True, slots=True)
class AllFields:
    """`*`, `* EXCLUDE (a, b)`."""

    without: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the allowed shape."""

    entries: tuple[Selected | AllFields, ...]
    where: Expression | None

    @property
    def expressions(self) -> Iterator[Expression]:
        yield from (entry.value for entry in self.entries if isinstance(entry, Selected))
        if self.where is not None:
            yield self.where


def parse(text: str) -> Statement:
    """Parse the statement. Raises NotAllowed."""
    tokens = _tokens(text)
    if not tokens or tokens[0].text.upper() != "SELECT":
        raise NotAllowed(f"found {quoted(text)}; allowed: {SHAPE}")
    _require_nothing_else(tokens)
    depths = _depths(tokens)
    start = next((i for i, token in enumerate(tokens) if depths[i] == 0 and _is_clause_from(tokens, i)), None)
    if start is None or [token.text for token in tokens[start + 1 : start + 2]] != [RECORDS]:
        raise NotAllowed(f"it must select FROM {RECORDS}, which are the records; allowed: {SHAPE}")
    where = None
    if len(tokens) > start + 2:
        following = tokens[start + 2]
        if following.text.upper() != "WHERE":
            raise NotAllowed(f"found {quoted(following.text)} after FROM {RECORDS}; allowed: {SHAPE}")
        where = _expression(text, tokens[start + 3 :], "WHERE")
    entries = [_entry(text, part) for part in _split(tokens[1:start], depths[1:start])]
    return Statement(tuple(entries), where)


def _tokens(text: str) -> list[Token]:
    from sqlglot.dialects.duckdb import DuckDB  # a large module, loaded only if needed

    try:
        tokens: list[Token] = DuckDB().tokenize(text)
    except SqlglotError:
        raise NotAllowed("a quote or a comment in it is not closed") from None
    if tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        del tokens[-1]
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise NotAllowed(f"found more than one statement; allowed: {SHAPE}")
    return tokens


def _require_nothing_else(tokens: Sequence[Token]) -> None:
    for index, token in enumerate(tokens[1:], 1):
        word = token.text.upper().partition(" ")[0]
        if _is_quoted(token) or word not in _CLAUSES or (word == "DISTINCT" and _is_comparison(tokens, index)):
            continue
        raise NotAllowed(
            f"{token.text.upper()} is not allowed: {_CLAUSES[word]}; a column of this name stands in double quotes"
        )
    inside: list[str] = []
    selects = 0
    for index, token in enumerate(tokens):
        if token.text in _OPENING and not _is_quoted(token):
            inside.append(tokens[index - 1].text.upper())
        elif token.text in _CLOSING and not _is_quoted(token) and inside:
            inside.pop()
        elif _is_clause_from(tokens, index) and not (inside and inside[-1] in _TAKE_FROM):
            selects += 1
    if selects > 1:
        raise NotAllowed("a subquery is not allowed: it sees other records")


def _is_clause_from(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the token is the FROM of a clause, rather than of IS DISTINCT FROM."""
    is_from = tokens[index].text.upper() == "FROM" and not _is_quoted(tokens[index])
    return is_from and tokens[index - 1].text.upper() != "DISTINCT"


def _is_comparison(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a DISTINCT is part of IS DISTINCT FROM."""
    return tokens[index - 1].text.upper() in ("IS", "NOT", "IS NOT")


def _is_quoted(token: Token) -> bool:
    """Return whether the token is a text or a name in quotes rather than an SQL keyword."""
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING)


def _is_name(token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER or (not _is_quoted(token) and bool(_WORD.fullmatch(token.text)))


def _depths(tokens: Sequence[Token]) -> list[int]:
    """Count the parentheses, brackets and braces that are open at each token. Raises NotAllowed when they do not match."""
    depths, depth = [], 0
    for token in tokens:
        sign = "" if _is_quoted(token) else token.text
        depth -= sign in _CLOSING
        depths.append(depth)
        depth += sign in _OPENING
        if depth < 0:
            break
    if depth:
        raise NotAllowed("its parentheses do not match")
    return depths


def _split(tokens: Sequence[Token], depths: Sequence[int]) -> Iterator[Sequence[Token]]:
    start = 0
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.COMMA and depths[index] == 0:
            yield tokens[start:index]
            start = index + 1
    yield tokens[start:]


def _entry(text: str, tokens: Sequence[Token]) -> Selected | AllFields:
    words = [token.text for token in tokens]
    if words[:2] == [RECORDS, "."] and len(words) > 2:
        tokens, words = tokens[2:], words[2:]
    if words[:1] == ["*"]:
        if len(words) == 1:
            return AllFields(())
        names = tokens[3:-1:2]
        if words[1].upper() not in ("EXCLUDE", "EXCEPT") or not names or not all(map(_is_name, names)):
            raise NotAllowed("found a * with more after it; allowed: * or * EXCLUDE (name, …)")
        return AllFields(tuple(token.text for token in names))
    if len(tokens) == 1 and _is_name(tokens[0]):
        return Selected(words[0], _expression(text, tokens, "an entry"), words[0])
    if len(tokens) > 2 and tokens[-2].text.upper() == "AS" and not _is_quoted(tokens[-2]) and _is_name(tokens[-1]):
        value = _entry_value(tokens[:-2])
        column = value[0].text if len(value) == 1 and _is_name(value[0]) else None
        return Selected(words[-1], _expression(text, value, words[-1]), column)
    shown = text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
    raise NotAllowed(f"found {quoted(shown)} in the list; give it a name, like {shown[:30] or 'amount'} AS name")


def _entry_value(tokens: Sequence[Token]) -> Sequence[Token]:
    """Remove a leading `records.` from an entry that is just a column's name."""
    qualified = len(tokens) == 3 and [token.text for token in tokens[:2]] == [RECORDS, "."]
    return tokens[2:] if qualified else tokens


def _expression(text: str, tokens: Sequence[Token], clause: str) -> Expression:
    if not tokens:
        raise NotAllowed(f"there is nothing in {clause}; allowed: {SHAPE}")
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.text == "*" and (before is None or before.text in ("(", ",")):
            if any(call.lower() == "count" for call in _calls(tokens)):
                raise NotAllowed("count(*) is not allowed: an aggregate makes one row of several")
            raise NotAllowed("* stands alone in the list, for all fields; name the fields inside of expressions")
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.text.lower() == RECORDS and not _is_quoted(token) and (after is None or after.text != "."):
            raise NotAllowed(f"{RECORDS} means all fields at once; name the ones you need")
    names = [token.text for token in tokens if _is_name(token)]
    return Expression(text[tokens[0].start : tokens[-1].end + 1], tuple(names), _calls(tokens))


def calls_in(text: str) -> tuple[str, ...]:
    """Return the names in a piece of SQL that are followed by parentheses. Raises NotAllowed when a quote is not closed."""
    return _calls(_tokens(text))


def _calls(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.text for token, after in pairwise(tokens) if _is_name(token) and after.text == "(")
