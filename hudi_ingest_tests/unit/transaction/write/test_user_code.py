"""Whose code makes a pipeline's rows, and that a change of it is noticed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow as pa
import pytest

from hudi_ingest.records.convert.formats import ENTRY_POINTS
from hudi_ingest.records.transform.chain import Chain, PythonFunction, Step
from hudi_ingest.transaction.write import job
from hudi_ingest.transaction.write.job import import_paths, version_of

pytestmark = pytest.mark.fast

SCHEMA = pa.schema([("id", pa.string())])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules can be imported from here; those in it are forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("own_module", "own_package"):
        sys.modules.pop(name, None)


def test_converters_and_functions_by_import_path_are_peoples_own() -> None:
    chain = Chain(SCHEMA, (Step("transforms[0].python", PythonFunction("shop.rows:clean", SCHEMA)),))
    assert import_paths(["json", "shop.orders:Orders"], chain) == ("shop.orders:Orders", "shop.rows:clean")


def test_a_built_in_format_is_not_looked_for_among_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = [
        EntryPoint("json", "shop.orders:Json", ENTRY_POINTS),
        EntryPoint("own", "shop.orders:Own", ENTRY_POINTS),
    ]
    asked = []

    def entry_points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return installed

    monkeypatch.setattr(job, "entry_points", entry_points)
    assert import_paths(["json", "avro"], Chain(SCHEMA, ())) == ()
    assert not asked, "the metadata of all packages is read for it"
    assert import_paths(["json", "own"], Chain(SCHEMA, ())) == ("shop.orders:Own",)


def test_a_changed_file_is_another_version(folder: Path) -> None:
    module, package = folder / "own_module.py", folder / "own_package"
    module.write_text("FACTOR = 100\n")
    package.joinpath("inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/rows.py"):
        (package / name).write_text("FACTOR = 100\n")
    paths = ["own_module:Orders", "own_package.inner:clean"]
    seen = [version_of(paths)]
    for file in (module, package / "inner" / "rows.py"):
        # The same length, as a corrected digit is; the clock may be coarse.
        file.write_text("FACTOR = 001\n")
        os.utime(file, (0, len(seen)))
        seen.append(version_of(paths))
    package.joinpath("new.py").touch()
    seen.append(version_of(paths))
    assert len(set(seen)) == len(seen)
    assert version_of(paths) == seen[-1], "the same as long as nothing changes"
    assert version_of([]) == ""
