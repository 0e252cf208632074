"""Settings that are not a pipeline's: an optional YAML file, and environment variables on top of it. Pydantic's errors become sentences,
each with its place, and never with a secret."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import (
    Place,
    PlacedProblems,
    ProblemsFromTop,
    SchemaProblem,
    describe,
    kind_of,
    quoted,
    suggestion,
    unexpected,
)
from hudi_ingest.home.folder import Home, pipeline_environment
from hudi_ingest.pipeline.settings.describe import PlacedSetting, has_secrets, keys, setting_at
from hudi_ingest.pipeline.settings.model import Model
from hudi_ingest.pipeline.settings.yaml_document import MOST_PROBLEMS, Document, read_document

_logger = logging.getLogger(__name__)
Settings = TypeVar("Settings", bound=Model)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """Where settings are. `variable`: the environment variable that names the file; `<variable>_<KEY>` overrides a key."""

    path: Path
    must_exist: bool
    variable: str


def load_settings(
    model: type[Settings],
    file: SettingsFile,
    home: Home,
    overrides: Mapping[str, Any] | None,
    environment: Mapping[str, str],
) -> Settings:
    """Load the file, if there is one, with the variables on top of it, and on top of these the `overrides` that are not None.
    A key that is a mapping has no variable. Raises ConfigError with all problems."""
    try:
        return _loaded(model, file, home, overrides, environment)
    except ConfigError:
        raise
    except Exception as error:
        _logger.exception("%s cannot be loaded", file.path)
        raise ConfigError(str(file.path), [unexpected(error)]) from error


def _loaded(
    model: type[Settings],
    file: SettingsFile,
    home: Home,
    overrides: Mapping[str, Any] | None,
    environment: Mapping[str, str],
) -> Settings:
    document = Document(model)
    if file.path.exists() or file.must_exist:
        document = read_document(file.path, pipeline_environment(home, environment), model)
    prefix = f"{file.variable}_"
    variables = {name: name.removeprefix(prefix).lower() for name in sorted(environment) if name.startswith(prefix)}
    known = {
        key: f"{prefix}{key.upper()}" for key, info in keys(model).items() if get_origin(info.annotation) is not Mapping
    }
    problems = document.problems
    for name, key in variables.items():
        if key not in known:
            problems.append(
                f"environment variable {name}: unknown; allowed: {', '.join(known.values())}{suggestion(key, known)}"
            )
        elif environment[name]:
            document.data[key] = environment[name]
    document.data |= {key: value for key, value in (overrides or {}).items() if value is not None}
    try:
        settings = model.model_validate(document.data, context={"folder": file.path.parent})
    except ValidationError as error:
        problems += all_sentences(error.errors(include_url=False), document)
    if problems:
        set_variables = [name for name in variables if environment[name]]
        raise ConfigError(f"{file.path} and {', '.join(set_variables)}" if set_variables else str(file.path), problems)
    return settings


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
        line = f" in line {document.lines[place]}" if document.numbered and place in document.lines else ""
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
