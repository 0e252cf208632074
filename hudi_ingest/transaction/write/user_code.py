"""The version of the users' own code, converters and functions, that makes a pipeline's rows.

Spark reuses its Python workers from job to job, and they keep the modules they have imported: a corrected converter would
keep running in its old version, in live transactions and in the replay that is meant to correct its rows.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path  # files: users' modules

from pyspark.sql import SparkSession

from hudi_ingest.records.convert.formats import ENTRY_POINTS, is_built_in
from hudi_ingest.records.transform.chain import Chain
from hudi_ingest.records.transform.user_function import PythonFunction

VARIABLE = "HUDI_INGEST_OWN_CODE"
_environment = threading.Lock()


def import_paths(formats: Iterable[str], chain: Chain) -> tuple[str, ...]:
    """The `package.module:name` of each converter and function from outside this package."""
    foreign = [name for name in formats if not is_built_in(name)]
    # Looking for entry points reads the metadata of every installed package.
    registered = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)} if foreign else {}
    converters = {name if ":" in name else registered.get(name, "") for name in foreign}
    functions = {step.transform.path for step in chain.steps if isinstance(step.transform, PythonFunction)}
    return tuple(sorted((converters | functions) - {""}))


def version_of(paths: Iterable[str]) -> str:
    """A text that changes whenever a file of the modules, or of their packages, changes or is replaced; "" if there are no
    files. Other packages that they import do not count."""
    files = sorted({file for path in paths for file in _files(path.partition(":")[0].partition(".")[0])})
    facts = [f"{file} {status.st_mtime_ns} {status.st_size}" for file in files for status in [file.stat()]]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16] if facts else ""


def _files(name: str) -> list[Path]:
    spec = find_spec(name)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py")]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


@contextmanager
def workers_of(spark: SparkSession, version: str) -> Iterator[None]:
    """Functions passed to Spark inside run in workers that have imported no other version.

    Spark reuses workers only for jobs with the same environment. Workers of the previous version end after a minute of
    idleness; the process that forks them stays, idle, until the driver ends.
    """
    environment = spark.sparkContext.environment
    with _environment:
        if version:
            environment[VARIABLE] = version
        try:
            yield
        finally:
            environment.pop(VARIABLE, None)
