"""A project as Dagster's `dg` makes them, with pipelines as components."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dagster import Definitions, load_from_defs_folder

DEFINITIONS = """
    from pathlib import Path

    from dagster import definitions, load_from_defs_folder


    @definitions
    def defs():
        return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
PYPROJECT = """
    [project]
    name = "shop"
    version = "0.1.0"

    [tool.dg]
    directory_type = "project"

    [tool.dg.project]
    root_module = "shop"
"""


def make_project(folder: Path, **components: Mapping[str, Any]) -> Path:
    """The project's folder; `components` are the attributes of each, by the name of its folder below defs/."""
    package = folder / "src" / "shop"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(textwrap.dedent(PYPROJECT))
    (package / "__init__.py").write_text("")
    (package / "definitions.py").write_text(textwrap.dedent(DEFINITIONS))
    for name, attributes in components.items():
        place = package / "defs" / name
        place.mkdir(parents=True)
        (package / "defs" / "__init__.py").write_text("")
        (place / "defs.yaml").write_text(yaml.safe_dump({"type": "hudi_ingest.KafkaToHudi", "attributes": attributes}))
    return folder


def load_project(folder: Path) -> Definitions:
    """What Dagster loads from the project, in this process."""
    sys.path.insert(0, str(folder / "src"))
    try:
        return load_from_defs_folder(path_within_project=folder / "src" / "shop")
    finally:
        sys.path.remove(str(folder / "src"))
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]
