"""Decides which code and which variables, files and vaults a pipeline file that comes over REST may name.

Whoever edits files in the pipelines folder has the server's user anyway; a token need not be worth as much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from hudi_ingest.exceptions.problems import Place, quoted
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, TABLES_VARIABLE
from hudi_ingest.pipeline.file import environment_or_own
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import setting_at
from hudi_ingest.pipeline.settings.references import references
from hudi_ingest.pipeline.settings.yaml_document import compose_document, parse_document

ADDRESSES = (BOOTSTRAP_VARIABLE, TABLES_VARIABLE, "S3_ENDPOINT", "SCHEMA_REGISTRY_URL")
"""Variables that are always allowed: where things are, and no secrets."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Patterns as the shell has them. `references`: of variables (`KAFKA_*`), files (`file:/run/secrets/kafka/*`) and vaults
    (`vault:kafka/*`); `code`: of import paths (`mypackage.*:*`)."""

    references: tuple[str, ...] = ()
    """Besides ADDRESSES."""
    code: tuple[str, ...] = ()

    def problems(self, text: str, folder: Path) -> tuple[str, ...]:
        """Say what the text of a pipeline file in this folder may not name. Reads no file, asks no vault and imports nothing that
        is not allowed."""
        try:
            root = compose_document(text)
        except ValueError:
            return ()  # Such a file is refused as a whole.
        if root is not None and (found := [*_forbidden_references(root, (), (*ADDRESSES, *self.references), folder)]):
            return tuple(found)
        # Now that all references are allowed: one of them may bring an import path.
        document = parse_document(text, folder, environment_or_own(None), Pipeline)
        return tuple(
            f"{setting_at(place, Pipeline).shown}: {quoted(path)} is code that may not be named over REST; start `hudi-ingest serve` "
            f"with --allow-code {path}, or put the file into the pipelines folder yourself"
            for place, path in _code(document.data)
            if not _matches(path, self.code)
        )


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _forbidden_references(node: yaml.Node, place: Place, allowed: Collection[str], folder: Path) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _forbidden_references(value, (*place, str(key.value)), allowed, folder)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _forbidden_references(value, (*place, index), allowed, folder)
    else:
        setting = setting_at(place, Pipeline)
        for reference in references(str(node.value)):
            scheme, _, rest = reference.partition(":")
            if scheme == "file":
                reference = f"file:{(folder / rest).resolve()}"
            if not _matches(reference, allowed):
                yield (
                    f"{setting.shown}: ${{{reference}}} may not be named over REST; write the value, or start `hudi-ingest serve` with "
                    f"--allow-reference {reference}"
                )
            elif rest and not (setting.is_secret or setting.is_reference):
                yield f"{setting.shown}: ${{{scheme}:…}} is for secrets, and this setting is shown to everyone; write the value"


def _code(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """The import paths in a file's settings; a placeholder may become one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _code(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _code(inner, (*place, index))
    elif isinstance(value, str) and place:
        is_converter = place[0] == "source" and place[-1] == "format" and (":" in value or "{" in value)
        if is_converter or place[-1] in ("function", "token_function"):
            yield place, value
