"""Settings files that cannot be loaded, in Dagster: an asset for each that says what is wrong, beside all the others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetKey,
    AssetSpec,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    asset_check,
    sensor,
)

from hudi_ingest.orchestration.home_instance import kept_instance
from hudi_ingest.pipeline.folder import BrokenFile

FILE_LOADS = "pipeline_file_loads"
_GROUP = "broken_pipeline_files"
_TICK_SECONDS = 30


def broken_definitions(files: Sequence[BrokenFile], used_names: Collection[str]) -> Definitions:
    """Build an asset, a failing check and a sensor for each file. `used_names`: the names of loaded pipelines.

    The sensor has the name of the pipeline's own sensor, so one that was on stays on once the file is fixed.
    """
    parts = [
        Definitions(
            assets=[
                AssetSpec(AssetKey([name]), group_name=_GROUP, kinds={"kafka", "hudi"}, description=_description(file))
            ],
            asset_checks=[_check(name, file)],
            sensors=[_sensor(name, file)],
        )
        for name, file in zip(_names(files, used_names), files, strict=True)
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


def _sensor(name: str, file: BrokenFile) -> SensorDefinition:
    @sensor(
        name=f"{name}_coordinator",
        minimum_interval_seconds=_TICK_SECONDS,
        # On by default: a file can be broken from the start, before anyone could have turned its sensor on.
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Reports what is wrong with {file.path.name}; launches nothing.",
    )
    def says_what_is_wrong(context: SensorEvaluationContext) -> SkipReason:
        report_broken(name, file, kept_instance(context))
        return SkipReason(problem_text(file))

    return says_what_is_wrong
