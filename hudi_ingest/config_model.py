"""What all models of pipeline files share: their base, problems that have a place, and values in words."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

Place = tuple[str | int, ...]
"""Where a value is in the file: mapping keys and list indexes from the top."""


class PlacedProblems(ValueError):
    """Problems of one value, each with its place below the value."""

    def __init__(self, problems: Iterable[tuple[Place, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(text for _, text in self.problems))


class ProblemsFromTop(PlacedProblems):
    """Problems whose places begin at the top of the file, because several of its values together are wrong."""


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "must be a number, not a boolean")
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_boolean)]
Seconds = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_boolean)]


def _legal_topic(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        may_be = "1 to 249 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`, and not `.` or `..`"
        raise ValueError(f"not a legal topic name; found {quoted(value)}; allowed: {may_be}")
    return value


Topic = Annotated[str, AfterValidator(_legal_topic)]


class Model(BaseModel):
    """A mapping of a pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def quoted(value: str) -> str:
    """A text as messages show it: in quotes, and not too long."""
    return repr(value if len(value) <= 60 else value[:57] + "…")


def describe(value: object) -> str:
    """A value as messages show it."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return str(value) if isinstance(value, (int, float)) else kind_of(value)


def kind_of(value: object) -> str:
    """What kind of value it is, without the value: it may be a secret."""
    if value is None:
        return "nothing"
    for kind, name in ((bool, "a boolean"), (str, "text"), (Mapping, "a mapping"), ((int, float), "a number")):
        if isinstance(value, kind):
            return name
    return "a list"


def suggestion(found: str, known: Iterable[str]) -> str:
    """The end of a message: the known name that was probably meant, or nothing."""
    close = difflib.get_close_matches(found.lower(), [*known], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """The absolute path of one that is relative to the pipeline file."""
    folder = (info.context or {}).get("folder", Path())
    return Path(os.path.abspath(folder / path))
