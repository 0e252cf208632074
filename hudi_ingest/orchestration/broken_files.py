"""Settings files that cannot be loaded, in Dagster: an asset for each that says what is wrong, beside all the others."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetKey,
    AssetSpec,
    DagsterInstance,
    Definitions,
    asset_check,
)

from hudi_ingest.pipeline.folder import BrokenFile

FILE_LOADS = "pipeline_file_loads"
_GROUP = "broken_pipeline_files"
_REPORT_SECONDS = 30.0


class BrokenFiles:
    """The files of a code location that cannot be loaded, by the names of their assets, to be reported as a step of ticks."""

    def __init__(self, files: Mapping[str, BrokenFile]) -> None:
        self._files = files
        self._reported_at = -math.inf

    def report(self, instance: DagsterInstance) -> None:
        """Turn the files' checks red, unless that was done less than half a minute ago."""
        if time.monotonic() - self._reported_at >= _REPORT_SECONDS:
            for name, file in self._files.items():
                report_broken(name, file, instance)
            self._reported_at = time.monotonic()

    @property
    def text(self) -> str:
        """A line for each file: Dagster stores the text of each tick."""
        return "\n".join(
            f"{file.path} is not loaded; the check {FILE_LOADS} of {name} says why"
            for name, file in self._files.items()
        )


def named_files(files: Sequence[BrokenFile], used_names: Collection[str]) -> dict[str, BrokenFile]:
    """Return the files by the names of their assets. `used_names`: the names of loaded pipelines."""
    return dict(zip(_names(files, used_names), files, strict=True))


def broken_definitions(files: Sequence[BrokenFile], used_names: Collection[str]) -> Definitions:
    """Build an asset and a failing check for each file. `used_names`: the names of loaded pipelines."""
    parts = [
        Definitions(
            assets=[
                AssetSpec(AssetKey([name]), group_name=_GROUP, kinds={"kafka", "hudi"}, description=_description(file))
            ],
            asset_checks=[_check(name, file)],
        )
        for name, file in named_files(files, used_names).items()
    ]
    return Definitions.merge(*parts)


def problem_text(file: BrokenFile) -> str:
    return (
        f"{file.path} is not loaded, so {file.effect}. Correct it. `hudi-ingest up` and `code-server` "
        "load it again within seconds; elsewhere, reload the code location.\n"
        + "\n".join(f"- {problem}" for problem in file.problems)
    )


def report_broken(name: str, file: BrokenFile, instance: DagsterInstance) -> None:
    """Turn the file's check red, once for each text."""
    key = AssetCheckKey(AssetKey([name]), FILE_LOADS)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    known = record.evaluation.description if record and isinstance(record.evaluation, AssetCheckEvaluation) else None
    if known != problem_text(file):
        instance.report_runless_asset_event(
            AssetCheckEvaluation(
                asset_key=key.asset_key, check_name=FILE_LOADS, passed=False, description=problem_text(file)
            )
        )


def _names(files: Sequence[BrokenFile], taken: Collection[str]) -> Iterator[str]:
    """Yield a unique name for each file: the pipeline name it declares if that is free, else its own file name."""
    used = set(taken)
    for file in files:
        stem = re.sub(r"[^A-Za-z0-9_]", "_", file.path.stem)
        declared = [file.name] if file.name and re.fullmatch(r"[A-Za-z0-9_]+", file.name) else []
        numbered = (f"{stem}_{number}" for number in range(2, len(files) + len(used) + 3))
        name = next(name for name in (*declared, stem, *numbered) if name not in used)
        used.add(name)
        yield name


def _description(file: BrokenFile) -> str:
    return f"**Not loaded.** {problem_text(file)}"


def _check(name: str, file: BrokenFile) -> AssetChecksDefinition:
    @asset_check(asset=AssetKey([name]), name=FILE_LOADS, description="Fails while the pipeline file cannot be loaded.")
    def loads() -> AssetCheckResult:
        return AssetCheckResult(passed=False, description=problem_text(file))

    return loads
