"""Turns pydantic's errors into sentences of a settings file: each with its place, and never with a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from hudi_ingest.exceptions.problems import (
    Place,
    PlacedProblems,
    ProblemsFromTop,
    describe,
    kind_of,
    quoted,
    suggestion,
)
from hudi_ingest.pipeline.settings.describe import has_secrets, keys
from hudi_ingest.pipeline.settings.places import PlacedSetting, setting_at
from hudi_ingest.pipeline.settings.yaml_document import MOST_PROBLEMS, Document
from hudi_ingest.records.schema.columns import SchemaProblem

_PROBLEMS = {
    "missing": "missing",
    "literal_error": "not one of the allowed values",
    "string_type": "must be text",
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys",
    "string_pattern_mismatch": "not allowed",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "too small",
    "greater_than_equal": "too small",
    "less_than_equal": "too large",
}


_LOGIN = re.compile(r"""://(?:[^\s'"]+@|[^\s'"/]*:[^\s'"/]*…)""")
"""Also where a long value is cut off before its @."""
_LONG_SECRET = 8
"""Characters of a secret that is also masked inside a longer text; a short one may be part of ordinary words."""


def all_sentences(errors: Iterable[ErrorDetails], document: Document) -> list[str]:
    """One line for each problem, if there are not too many."""
    lines = list(islice((line for error in errors for line in _sentences(error, document)), MOST_PROBLEMS + 1))
    if len(lines) > MOST_PROBLEMS:
        lines[MOST_PROBLEMS] = f"perhaps more; correct these {MOST_PROBLEMS} first"
    return lines


def _sentences(error: ErrorDetails, document: Document) -> Iterator[str]:
    """Yield one line for each problem in a pydantic error."""
    for place, problem in _problems(error, document):
        sentence = f"{setting_at(place, document.model).shown}: {_masked(problem, document.secrets)}"
        line = document.line_of(place)
        yield sentence if line is None or error["type"] == "extra_forbidden" else f"{sentence} (line {line})"


def _masked(text: str, secrets: Iterable[str]) -> str:
    """Without secrets that also stand where no secret belongs, and without logins in URLs."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(quoted(secret), "'****'")
        if len(secret) >= _LONG_SECRET and not secret.isalpha():
            text = text.replace(repr(secret)[1:-1], "****")
    return _LOGIN.sub("://****@", text)


def _problems(error: ErrorDetails, document: Document) -> Iterator[tuple[Place, str]]:
    place: Place = error["loc"]
    root = document.model
    if document.is_broken(place):
        return
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SchemaProblem):
        yield from ((place, str(problem)) for problem in cause.problems)
    elif isinstance(cause, PlacedProblems):
        if isinstance(cause, ProblemsFromTop):
            place = ()
        for below, problem in cause.problems:
            if not document.is_broken((*place, *below)):
                yield (*place, *below), problem
    elif isinstance(cause, ValueError):
        yield place, str(cause)
    elif error["type"] == "extra_forbidden":
        model = setting_at(place[:-1], root).model or root
        known = list(keys(model))
        line = f" in line {document.lines[place]}" if place in document.lines else ""
        close = suggestion(str(place[-1]), known)
        yield place, f"unknown key{line}; allowed: {', '.join(known)}{close}"
    else:
        setting = setting_at(place, root)
        problem = _PROBLEMS.get(error["type"], "not allowed" if setting.may_be_secret else error["msg"])
        parts = [problem]
        if error["type"] != "missing":
            parts.append(f"found {_found(error, setting, document)}")
        if setting.allowed:
            parts.append(f"allowed: {setting.allowed}")
        yield place, "; ".join(parts)


def _found(error: ErrorDetails, setting: PlacedSetting, document: Document) -> str:
    value = error["input"]
    if setting.may_be_secret:
        return "****" if value is not None else "nothing"
    if error["type"] == "model_type":
        return kind_of(value)  # the value may contain a login
    if (
        error["type"] == "literal_error"
        and isinstance(value, str)
        and _may_be_misplaced(value, setting, document.model)
    ):
        return "****"
    spelling = describe(value)
    if isinstance(value, bool):
        hint = "; put it in quotes" if error["type"] in ("string_type", "path_type", "literal_error") else ""
        return f"{document.written.get(setting.place, spelling)}, which YAML reads as a boolean{hint}"
    if isinstance(value, (int, float)) and error["type"] in ("string_type", "path_type"):
        return f"the number {document.written.get(setting.place, spelling)[:60]}; put it in quotes"
    return spelling


def _may_be_misplaced(value: str, setting: PlacedSetting, root: type[BaseModel]) -> bool:
    """Whether a secret may have been put into the setting next to its own: the text is like no value that is allowed there."""
    model = setting_at(setting.place[:-1], root).model
    known = [word.upper() for word in re.findall(r"[\w-]+", setting.allowed)]
    return model is not None and has_secrets(model) and not get_close_matches(value.upper(), known, n=1)
