"""A place in a settings file: which setting of its model it is, and how messages write it without showing a secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hudi_ingest.exceptions.problems import Place, dotted
from hudi_ingest.pipeline.settings.describe import (
    allowed,
    has_secrets,
    is_fresh,
    is_identity,
    is_reference,
    is_secret,
    keys,
    nested_model,
    type_in_words,
)


@dataclass(frozen=True, slots=True)
class PlacedSetting:
    """What the model knows of a place in a settings file."""

    place: Place
    model: type[BaseModel] | None
    """The model whose keys are below the place; None if there is none."""
    _fields: tuple[FieldInfo | None, ...]
    """The field of each step of the place; None for an unknown key, and for what is below one."""
    _hidden_from: int
    """The first step that is an unknown key next to a secret, and may be a misplaced secret itself."""

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
        return self._lies_in(is_secret)

    @property
    def is_reference(self) -> bool:
        """Whether the value is only a reference to a secret, which is kept as the file has it."""
        return self._lies_in(is_reference)

    @property
    def is_fresh(self) -> bool:
        """Whether the value is a secret whose references are resolved whenever it is used."""
        return self._lies_in(is_fresh)

    @property
    def is_identity(self) -> bool:
        """Whether everybody sees the value: in run tags, metrics, answers and the ledger."""
        return self._lies_in(is_identity)

    def _lies_in(self, kind: Callable[[FieldInfo], bool]) -> bool:
        """Whether a setting of this kind is at the place or above it."""
        return any(field is not None and kind(field) for field in self._fields)

    @property
    def allowed(self) -> str:
        """The allowed values, as text; "" if the setting is unknown."""
        field = self._fields[-1] if self._fields else None
        if field is None:
            return ""
        items = get_args(field.annotation)
        if isinstance(self.place[-1], int) and items:  # an item of a list
            return type_in_words(items[0])
        return allowed(field)

    @property
    def description(self) -> str:
        """What the setting is for; "" if it is unknown."""
        field = self._fields[-1] if self._fields else None
        return " ".join((field.description or "").split()) if field is not None else ""


def setting_at(place: Place, root: type[BaseModel]) -> PlacedSetting:
    """Walk from the file's model down to the place."""
    model: type[BaseModel] | None = root
    field: FieldInfo | None = None
    fields: list[FieldInfo | None] = []
    hidden_from = len(place)
    for step, part in enumerate(place):
        if isinstance(part, str):
            field = keys(model).get(part) if model is not None else None
            if field is None and model is not None and has_secrets(model):
                hidden_from = min(hidden_from, step)
            model = nested_model(field) if field is not None else None
        fields.append(field)
    return PlacedSetting(place, model, tuple(fields), hidden_from)
