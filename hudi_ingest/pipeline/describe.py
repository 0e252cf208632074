"""The models of pipeline files in words: keys, allowed values, defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import (
    BaseModel,
    SecretStr,
)
from pydantic.fields import FieldInfo

from hudi_ingest.pipeline.model import Model as _Model


def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the keys that a file has for them."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def nested_model(info: FieldInfo) -> type[BaseModel] | None:
    """The model whose keys are below this field."""
    found = [each for each in _parts(info.annotation) if isinstance(each, type) and issubclass(each, _Model)]
    return found[0] if found and "allowed" not in _extra(info) else None


def allowed(info: FieldInfo) -> str:
    """What a field's value may be, in words."""
    stated = _extra(info).get("allowed")
    return str(stated) if stated else type_in_words(info.annotation, info.metadata)


def default(info: FieldInfo) -> str | None:
    """A field's default as a file would say it; None when the field is required."""
    if info.is_required():
        return None
    stated = _extra(info).get("default")
    if stated is not None:
        return str(stated)
    if isinstance(info.default, tuple):
        return f"[{', '.join(info.default)}]"
    if isinstance(info.default, BaseModel):
        return "the defaults of its keys"
    return "none" if info.default is None else str(info.default)


def is_secret(info: FieldInfo) -> bool:
    """Whether no message may show the field's value."""
    return any(each is SecretStr for each in _parts(info.annotation))


def has_secrets(model: type[BaseModel]) -> bool:
    """Whether a secret stands among the model's own fields."""
    return any(is_secret(each) for each in model.model_fields.values())


def _extra(info: FieldInfo) -> dict[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, and all that it is made of."""
    yield annotation
    for each in get_args(annotation):
        yield from _parts(each)


def type_in_words(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a value of this type may be."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        extra = [each for given in inner[1:] for each in (given.metadata if isinstance(given, FieldInfo) else [given])]
        return type_in_words(inner[0], [*metadata, *extra])
    if NoneType in inner:
        return type_in_words(next(each for each in inner if each is not NoneType), metadata)
    if get_origin(annotation) is Literal:
        return " or ".join([", ".join(inner[:-1])] * (len(inner) > 1) + [inner[-1]])
    if get_origin(annotation) is tuple:
        return f"a list of {type_in_words(inner[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with the keys {', '.join(keys(annotation))}"
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        SecretStr: "text",
        Path: "a path",
    }[annotation]
    for each in metadata:
        if isinstance(each, annotated_types.Ge):
            words += f" of at least {each.ge}"
        elif isinstance(each, annotated_types.Gt):
            words += f" above {each.gt}"
    return words
