"""Checks pipeline files before they are used: everything that can be known without Kafka, registry and table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # files: pipeline files

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.engine import load_engine_settings, local_table_warning, untried_master_warning
from hudi_ingest.pipeline.file import MASK, shown_file
from hudi_ingest.pipeline.folder import folder_files
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.planned import source_text
from hudi_ingest.transaction.decoding import format_problems


@dataclass(frozen=True, slots=True)
class Validation:
    """What is wrong with a pipeline file. `name`: as written; `columns`: where the table's columns come from, in words."""

    name: str | None
    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    columns: str = ""
    namesake: Path | None = None
    """Another file with the same name."""


def require_valid(pipeline: Pipeline, where: str) -> str:
    """Check what loading a file does not, and say where the columns come from. Raises ConfigError."""
    problems = format_problems(pipeline, import_user_code=True)
    if problems:
        raise ConfigError(where, problems)
    return source_text(pipeline)


def validate_text(home: Home, path: Path, text: str, keep_name: str | None = None) -> Validation:
    """Check the text of a file as if it were at `path`, together with the other files of its folder.

    `keep_name`: the name that it must have. Raises ConfigError if the folder cannot be read.
    """
    problems = [
        f"{place}: {MASK} is shown instead of a secret; write a reference to the secret, ${{NAME}} or ${{file:PATH}}"
        for place in shown_file(text).were_masks
    ]
    files = folder_files(path.parent, {path: text})
    checked = next(file for file in files if file.path == path)
    namesakes = [
        file.path for file in files if file.path != path and checked.name is not None and file.name == checked.name
    ]
    problems += checked.problems
    if keep_name not in (None, checked.name) and not problems:
        problems.append(
            f"name: found {checked.name}, but this is the file of {keep_name}. A renamed pipeline is another one, and needs another "
            "table: create it, and delete this one"
        )
    columns, warnings = "", list[str]()
    for pipeline in checked.pipelines if not problems else ():
        try:
            columns = require_valid(pipeline, str(path))
            warnings += cluster_warnings(home, pipeline)
        except ConfigError as error:
            problems += error.problems
    return Validation(checked.name, tuple(problems), tuple(warnings), columns, next(iter(namesakes), None))


def cluster_warnings(home: Home, pipeline: Pipeline) -> list[str]:
    """Warn of an untried cluster manager, and of a table that executors may not reach. Raises ConfigError if engine.yaml is
    broken."""
    master = load_engine_settings(home).master
    return [*filter(None, (untried_master_warning(master), local_table_warning(pipeline.table.base_path, master)))]
