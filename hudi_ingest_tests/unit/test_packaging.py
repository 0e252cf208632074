"""What `pip install hudi-ingest` brings: the extras that pipelines name, and a wheel with the package alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from hudi_ingest.pipeline.extras import MODULES

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parents[2]


def test_setup_has_an_extra_for_each_that_a_pipeline_may_need_and_all_of_them() -> None:
    code = (
        "import json, setuptools; from distutils.core import run_setup; "
        "print(json.dumps(run_setup('setup.py', stop_after='init').extras_require))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    extras = json.loads(told.stdout)
    assert MODULES.keys() <= extras.keys()
    assert sorted(extras["all"]) == sorted(requirement for extra in MODULES for requirement in extras[extra])


def test_the_wheel_has_the_package_with_its_files_and_license_and_no_tests_or_benchmarks(tmp_path: Path) -> None:
    # A copy, because a build leaves folders beside setup.py.
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for name in ("hudi_ingest", "hudi_ingest_tests", "benchmarks"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").iterdir()
    files = {Path(name) for name in ZipFile(wheel).namelist()}
    info = next(file.parts[0] for file in files if file.name == "METADATA")
    assert {file.parts[0] for file in files} == {"hudi_ingest", info}
    package = {file.relative_to(tmp_path) for file in (tmp_path / "hudi_ingest").rglob("*") if file.is_file()}
    assert package == {file for file in files if file.parts[0] == "hudi_ingest"}
    assert Path(info, "licenses", "LICENSE") in files
