"""A place in a settings file: which setting of its model it is, and how messages write it without showing a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hudi_ingest.exceptions.problems import Place, dotted
from hudi_ingest.pipeline.describe import (
    allowed,
    has_secrets,
    is_fresh,
    is_reference,
    is_secret,
    keys,
    nested_model,
    type_in_words,
)


def shown(place: Place, root: type[BaseModel]) -> str:
    """The dotted path with list indexes. A key that may be a misplaced secret is shown as ****."""
    parts = tuple("****" if hidden and isinstance(part, str) else part for part, _, hidden in _walk(place, root))
    return dotted(parts) or "the file"


def is_secret_place(place: Place, root: type[BaseModel]) -> bool:
    return any(hidden or (info is not None and is_secret(info)) for _, info, hidden in _walk(place, root))


def is_reference_place(place: Place, root: type[BaseModel]) -> bool:
    """Whether the value is only a reference to a secret, which is kept as the file has it."""
    return _lies_in(place, root, is_reference)


def is_fresh_place(place: Place, root: type[BaseModel]) -> bool:
    """Whether the value is a secret whose references are resolved whenever it is used."""
    return _lies_in(place, root, is_fresh)


def holds_secret(place: Place, root: type[BaseModel]) -> bool:
    """Whether the setting is a secret. Unlike `is_secret_place`, not for unknown keys next to one."""
    return _lies_in(place, root, is_secret)


def _lies_in(place: Place, root: type[BaseModel], kind: Callable[[FieldInfo], bool]) -> bool:
    """Whether a setting of this kind is at the place or above it."""
    return any(info is not None and kind(info) for _, info, _ in _walk(place, root))


def _walk(place: Place, root: type[BaseModel]) -> Iterator[tuple[str | int, FieldInfo | None, bool]]:
    """Yield each step of a place with its field, and whether it is an unknown key (or below one) next to a secret."""
    model: type[BaseModel] | None = root
    info: FieldInfo | None = None
    hidden = False
    for part in place:
        if isinstance(part, str):
            info = keys(model).get(part) if model is not None else None
            hidden = hidden or (info is None and model is not None and has_secrets(model))
            model = nested_model(info) if info is not None else None
        yield part, info, hidden


def model_at(place: Place, root: type[BaseModel]) -> type[BaseModel] | None:
    steps = [*_walk(place, root)]
    return root if not steps else nested_model(steps[-1][1]) if steps[-1][1] is not None else None


def allowed_at(place: Place, root: type[BaseModel]) -> str:
    steps = [*_walk(place, root)]
    info = steps[-1][1] if steps else None
    if info is None:
        return ""
    items = get_args(info.annotation)
    if isinstance(place[-1], int) and items:  # an item of a list
        return type_in_words(items[0])
    return allowed(info)


def description_at(place: Place, root: type[BaseModel]) -> str:
    """What the setting is for; "" if it is unknown."""
    infos = [info for _, info, _ in _walk(place, root)]
    return " ".join((infos[-1].description or "").split()) if infos and infos[-1] is not None else ""
