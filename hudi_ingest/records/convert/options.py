"""Read a format's options from the pipeline file into the format's own dataclass."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.records.convert.converter import Options

Chosen = TypeVar("Chosen")


def read_options(kind: type[Chosen], format: str, options: Options) -> Chosen:
    """Read `options` as `kind`, a dataclass. Raises ValueError that lists every unknown, missing or wrong option."""
    known = [option.name for option in fields(kind)]  # type: ignore[arg-type]
    problems = [
        f"option {quoted(name)} is not known; known are: {', '.join(known)}{suggestion(name, known)}"
        for name in options
        if name not in known
    ]
    recognized = {name: value for name, value in options.items() if name in known}
    chosen = None
    try:
        chosen = TypeAdapter(kind).validate_python(recognized)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in details["loc"])
            text = str(details["msg"]).removeprefix("Value error, ")
            problems.append(f"option {place}: {text}" if place else text)
    if problems or chosen is None:
        raise ValueError(f"format {format}: {'; '.join(problems)}")
    return chosen


def refuse_options(format: str, options: Options) -> None:
    """Raise ValueError when there are any options."""
    if options:
        raise ValueError(f"format {format} has no options, found {', '.join(map(quoted, options))}; remove them")


def one_option(format: str, options: Options, name: str) -> Any:
    """Return the value of a format's only, required option. Raises ValueError when it is missing or there are others."""
    if [*options] != [name]:
        found = ", ".join(map(quoted, options)) or "none"
        raise ValueError(f"format {format} needs its only option, {quoted(name)}; found {found}")
    return options[name]
