"""A pipeline file's text as it may be shown: references to secrets stay, secrets written into the file are masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.places import setting_at
from hudi_ingest.pipeline.settings.yaml_document import compose_document, plain_value

MASK = "****"
_REFERENCE = re.compile(r"\$\{(file:[^-}][^}]*|[A-Za-z_][A-Za-z0-9_]*)\}")
_LOGIN = re.compile(r"://[^/\s@]*@")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file without secrets. `text` is None if it is not YAML, because then nobody can tell where a secret is."""

    text: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    """The values as written: references are not filled in, and defaults are not added."""
    masked: tuple[str, ...] = ()
    """Dotted places whose values are replaced by the mask."""
    were_masks: tuple[str, ...] = ()
    """Those of them that hold nothing but the mask in the file itself."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each key, by dotted place."""


def shown_file(text: str) -> ShownFile:
    """Mask what may be a secret in the text of a pipeline file."""
    try:
        root = compose_document(text)
    except ValueError:
        return ShownFile(None)
    if root is None:
        return ShownFile(text)
    original, spans = text, [*_secrets(root, ())]
    for start, end, _ in sorted(spans, reverse=True):
        # A block scalar ends after its last line break.
        text = text[:start] + f'"{MASK}"' + ("\n" if text[start:end].endswith("\n") else "") + text[end:]
    were_masks = [place for start, end, place in spans if original[start:end].strip("\"' \n") == MASK]
    settings = _value(root, (), frozenset(start for start, _, _ in spans))
    return ShownFile(
        text,
        settings if isinstance(settings, dict) else {},
        tuple(dict.fromkeys(setting_at(place, Pipeline).shown for _, _, place in spans)),
        tuple(setting_at(place, Pipeline).shown for place in were_masks),
        dict(_lines(root, ())),
    )


def _secrets(node: yaml.Node, place: Place) -> Iterator[tuple[int, int, Place]]:
    """Yield start, end and place of each value or key that may be a secret."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            if MASK in setting_at(inner, Pipeline).shown and MASK not in setting_at(place, Pipeline).shown:
                yield key.start_mark.index, key.end_mark.index, inner
            yield from _secrets(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _secrets(value, (*place, index))
    elif isinstance(node, yaml.ScalarNode):
        written = str(node.value)
        is_secret = setting_at(place, Pipeline).may_be_secret and _REFERENCE.sub("", written).strip() != ""
        if is_secret or _LOGIN.search(written):
            yield node.start_mark.index, node.end_mark.index, place


def _value(node: yaml.Node, place: Place, masked: frozenset[int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {
            MASK if key.start_mark.index in masked else str(key.value): _value(value, (*place, str(key.value)), masked)
            for key, value in node.value
        }
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), masked) for index, item in enumerate(node.value)]
    return MASK if node.start_mark.index in masked else plain_value(node)


def _lines(node: yaml.Node, place: Place) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            yield setting_at(inner, Pipeline).shown, key.start_mark.line + 1
            yield from _lines(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield setting_at((*place, index), Pipeline).shown, item.start_mark.line + 1
            yield from _lines(item, (*place, index))
