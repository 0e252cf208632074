"""Pipeline files for tests: a right one, changed at will, and what is said about a wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.pipeline.file import load_pipeline, pipeline_from
from hudi_ingest.pipeline.folder import load_folder
from hudi_ingest.pipeline.pipeline import Pipeline

SECRET = "hunter2-Zebra!9"

Write = Callable[..., Path]
"""Puts a text into a file, orders.yaml unless named, of the test's own folder: the fixture `write`."""


def document(**changes: Any) -> dict[str, Any]:
    """A right pipeline file, changed at dotted places (`__` for a dot); None removes the key."""
    data: dict[str, Any] = {
        "name": "orders",
        "source": {"bootstrap_servers": "localhost:9092", "topics": ["orders"]},
        "table": {"base_path": "/data/orders", "schema": "id string, dt string, n long, amount double"},
    }
    for place, value in changes.items():
        *above, last = place.split("__")
        target = data
        for key in above:
            target = target.setdefault(key, {})
        if value is None:
            target.pop(last, None)
        else:
            target[last] = value
    return data


def pipeline_named(name: str, **changes: Any) -> Pipeline:
    """A pipeline of this name, whose table is /data/<name>."""
    content = document(**{"name": name, "table__base_path": f"/data/{name}", **changes})
    return pipeline_from(content, Path(), "here", {})


def load(write: Write, environment: Mapping[str, str] | None = None, **changes: Any) -> Pipeline:
    """The pipeline of the changed document."""
    return load_pipeline(write(yaml.safe_dump(document(**changes))), environment or {})


def load_pipelines(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Pipeline, ...]:
    """The pipelines of a folder whose files are all right. Raises ConfigError with the problems of all others."""
    loaded = load_folder(folder, environment)
    if loaded.broken:
        raise ConfigError(str(folder), [problem for file in loaded.broken for problem in file.problems])
    return loaded.pipelines


def problems(
    write: Write, text: str | None = None, environment: Mapping[str, str] | None = None, **changes: Any
) -> list[str]:
    """All problems of the text, or of the changed document, without their lines."""
    path = write(yaml.safe_dump(document(**changes)) if text is None else text)
    with pytest.raises(ConfigError) as raised:
        load_pipeline(path, environment or {})
    assert raised.value.where == str(path)
    return [re.sub(r" \(line \d+\)$", "", found) for found in raised.value.problems]


def problem(write: Write, text: str | None = None, environment: Mapping[str, str] | None = None, **changes: Any) -> str:
    """The one problem of it."""
    found = problems(write, text, environment, **changes)
    assert len(found) == 1, found
    return found[0]


def with_security(**changes: Any) -> dict[str, Any]:
    """Changes that give the document a login."""
    login = {"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u", "password": SECRET}
    login.update(changes)
    return {"source__security": {key: value for key, value in login.items() if value is not None}}


RIGHT = yaml.safe_dump(document(), sort_keys=False)
