"""Settings that are not a pipeline's: an optional YAML file, and environment variables on top of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import ValidationError

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import suggestion, unexpected
from hudi_ingest.home.folder import Home
from hudi_ingest.home.stack_variables import pipeline_environment
from hudi_ingest.pipeline.settings.describe import keys
from hudi_ingest.pipeline.settings.model import Model
from hudi_ingest.pipeline.settings.yaml_document import Document, read_document

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
        # Imported here because it loads pyarrow, which commands that only look at the stack do not need.
        from hudi_ingest.pipeline.settings.error_sentences import all_sentences

        problems += all_sentences(error.errors(include_url=False), document)
    if problems:
        set_variables = [name for name in variables if environment[name]]
        raise ConfigError(f"{file.path} and {', '.join(set_variables)}" if set_variables else str(file.path), problems)
    return settings
