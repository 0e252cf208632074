"""The models of settings files as text: keys, allowed values, defaults; and the setting at a place in a file."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from hudi_ingest.exceptions.problems import Place, dotted
from hudi_ingest.model.storage_options import SecretReference
from hudi_ingest.pipeline.settings.model import Model
from hudi_ingest.pipeline.settings.references import Secret


@dataclass(frozen=True, slots=True)
class Entries:
    """Says, in a field's annotation, that each entry of the mapping has the keys of this model."""

    model: type[BaseModel]


@cache
def keys(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """A model's fields by their keys in a pipeline file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


@cache
def purposes(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the purposes of a model's fields, by their keys in a pipeline file: the texts below them in the source, "" where there is no
    source. Pydantic can read them, too, but for each model when it is imported, and few processes show one."""
    texts: dict[str, str] = {}
    for owner in [each for each in reversed(model.__mro__) if issubclass(each, Model)]:
        try:
            parsed = ast.parse(dedent(inspect.getsource(owner)))
        except (OSError, SyntaxError):
            # Compiled files only, or an upgrade has replaced the source of this process. The texts only help.
            continue
        for definition in [each for each in parsed.body if isinstance(each, ast.ClassDef)]:
            for statement, below in pairwise(definition.body):
                match statement, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = " ".join(text.split())
    return {info.alias or name: texts.get(name, "") for name, info in model.model_fields.items()}


def nested_model(info: FieldInfo) -> type[BaseModel] | None:
    """The model whose keys nest below this field; None when it has none."""
    models = [part for part in _parts(info.annotation) if isinstance(part, type) and issubclass(part, Model)]
    return models[0] if models and "allowed" not in _extra(info) else None


def allowed(info: FieldInfo) -> str:
    """A field's allowed values, as text."""
    stated = _extra(info).get("allowed")
    return str(stated) if stated else type_in_words(info.annotation, info.metadata)


def default(info: FieldInfo) -> str | None:
    """A field's default as a file would spell it; None when the field is required."""
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
    return any(part in (Secret, SecretStr, SecretReference) for part in _parts(info.annotation))


def is_reference(info: FieldInfo) -> bool:
    """Whether the field holds only a reference to a secret."""
    return any(part is SecretReference for part in _parts(info.annotation))


def is_fresh(info: FieldInfo) -> bool:
    """Whether the field is a secret whose references are resolved whenever it is used."""
    return any(part is Secret for part in _parts(info.annotation))


@cache
def path_keys(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model, and of all models below it, that are paths of files or folders which only have to be read."""
    found = {key for key, info in keys(model).items() if Path in _parts(info.annotation) or _extra(info).get("path")}
    below = {part for info in keys(model).values() for part in _models(info)}
    return frozenset(found.union(*map(path_keys, below)))


def _models(info: FieldInfo) -> Iterator[type[BaseModel]]:
    for part in _parts(info.annotation):
        if isinstance(part, type) and issubclass(part, Model):
            yield part


def is_identity(info: FieldInfo) -> bool:
    """Whether the field's value is by what ledger, run tags, metrics and answers know a pipeline, so that it can be no secret."""
    return bool(_extra(info).get("identity"))


@cache
def has_secrets(model: type[BaseModel]) -> bool:
    """Whether one of the model's own fields is a secret; a mapping's values are not next to the model's keys."""
    return any(is_secret(info) and not _is_mapping(info) for info in model.model_fields.values())


def _is_mapping(info: FieldInfo) -> bool:
    origin = get_origin(info.annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _extra(info: FieldInfo) -> dict[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation and everything nested in it."""
    yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


def type_in_words(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """The allowed values of a type, as text."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        extra = [
            constraint
            for entry in inner[1:]
            for constraint in (entry.metadata if isinstance(entry, FieldInfo) else [entry])
        ]
        return type_in_words(inner[0], [*metadata, *extra])
    if NoneType in inner:
        return type_in_words(next(argument for argument in inner if argument is not NoneType), metadata)
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
        Secret: "text",
        SecretStr: "text",
        Path: "a path",
    }[annotation]
    metadata = tuple(metadata)
    most = next((constraint.le for constraint in metadata if isinstance(constraint, annotated_types.Le)), None)
    for constraint in metadata:
        if isinstance(constraint, annotated_types.Ge):
            words += f" of at least {constraint.ge}" if most is None else f" from {constraint.ge} to {most}"
        elif isinstance(constraint, annotated_types.Gt):
            words += f" above {constraint.gt}" + ("" if most is None else f", up to {most}")
    return words


@dataclass(frozen=True, slots=True)
class PlacedSetting:
    """The model's description of a place in a settings file."""

    place: Place
    model: type[BaseModel] | None
    """The model whose keys are below the place; None if there is none."""
    _field: FieldInfo | None
    """The field of the last step of the place; None for an unknown key, and for what is below one."""
    _kinds: frozenset[str]
    """What the settings at the place and above it are."""
    _hidden_from: int
    """The first step that is an unknown key next to a secret, and may be a misplaced secret itself."""
    _owner: type[BaseModel] | None
    """The model that has the last key of the place; None for an unknown one."""

    @property
    def shown(self) -> str:
        """The dotted path with list indexes. A key that may be a misplaced secret is shown as ****."""
        parts = (
            "****" if step >= self._hidden_from and isinstance(part, str) else part
            for step, part in enumerate(self.place)
        )
        return dotted(tuple(parts)) or "the file"

    @property
    def may_be_secret(self) -> bool:
        """Whether it is a secret, or an unknown key next to one."""
        return self._hidden_from < len(self.place) or self.is_secret

    @property
    def is_secret(self) -> bool:
        return "secret" in self._kinds

    @property
    def is_reference(self) -> bool:
        """Whether the value is only a reference to a secret, which is kept as the file has it."""
        return "reference" in self._kinds

    @property
    def is_fresh(self) -> bool:
        """Whether the value is a secret whose references are resolved whenever it is used."""
        return "fresh" in self._kinds

    @property
    def is_identity(self) -> bool:
        """Whether everybody sees the value: in run tags, metrics, answers and the ledger."""
        return "identity" in self._kinds

    @property
    def allowed(self) -> str:
        """The allowed values, as text; "" if the setting is unknown."""
        field = self._field
        if field is None:
            return ""
        items = get_args(field.annotation)
        if isinstance(self.place[-1], int) and items:  # an item of a list
            return type_in_words(items[0])
        return allowed(field)

    @property
    def description(self) -> str:
        """The purpose of the setting; "" if it is unknown."""
        key = next((part for part in reversed(self.place) if isinstance(part, str)), "")
        return purposes(self._owner)[key] if self._owner is not None else ""


@dataclass(frozen=True, slots=True)
class _Known:
    """A field of a model, with what is asked of it for each of the thousands of places that a file may have."""

    info: FieldInfo
    kinds: frozenset[str]
    below: type[BaseModel] | None
    """The model whose keys are below it."""
    entries: type[BaseModel] | None
    """The model of the entries below it, if it is a mapping of such."""


_KINDS: Mapping[str, Callable[[FieldInfo], bool]] = {
    "secret": is_secret,
    "reference": is_reference,
    "fresh": is_fresh,
    "identity": is_identity,
}


@cache
def _known(model: type[BaseModel]) -> Mapping[str, _Known]:
    """A model's fields by their keys."""
    found = {}
    for key, info in keys(model).items():
        entries = [part.model for part in info.metadata if isinstance(part, Entries)]
        kinds = frozenset(kind for kind, applies in _KINDS.items() if applies(info))
        found[key] = _Known(info, kinds, nested_model(info), entries[0] if entries else None)
    return found


def setting_at(place: Place, root: type[BaseModel]) -> PlacedSetting:
    """Walk from the file's model down to the place."""
    model: type[BaseModel] | None = root
    field: _Known | None = None
    kinds: frozenset[str] = frozenset()
    hidden_from = len(place)
    owner: type[BaseModel] | None = None
    below: type[BaseModel] | None = None
    for step, part in enumerate(place):
        if isinstance(part, str):
            field = _known(model).get(part) if model is not None else None
            owner = model if field is not None else None
            if field is None and model is not None and has_secrets(model):
                hidden_from = min(hidden_from, step)
            model = below if below is not None else field.below if field is not None else None
            below = field.entries if field is not None else None
        if field is not None:
            kinds |= field.kinds
    return PlacedSetting(place, model, None if field is None else field.info, kinds, hidden_from, owner)
