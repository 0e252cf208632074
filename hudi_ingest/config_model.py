"""What all models of a pipeline file have in common."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationInfo


class Model(BaseModel):
    """A mapping of a pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def beside_the_file(path: Path, info: ValidationInfo) -> Path:
    """The absolute path of one that is relative to the pipeline file."""
    folder = (info.context or {}).get("folder", Path())
    return Path(os.path.abspath(folder / path))
