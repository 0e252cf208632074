"""What `pip install hudi-ingest` brings: the extras that pipelines name, and a wheel with the package alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from email import message_from_bytes
from importlib.metadata import Distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

import hudi_ingest
from hudi_ingest.cli.demo import _provide_pipeline
from hudi_ingest.home.folder import Home
from hudi_ingest.pipeline.extras import MODULES
from hudi_ingest_tests.support import site
from hudi_ingest_tests.support.wheel import REPOSITORY, build

pytestmark = pytest.mark.fast


def test_setup_has_an_extra_for_each_that_a_pipeline_may_need_and_all_of_them() -> None:
    code = (
        "import json, setuptools; from distutils.core import run_setup; "
        "print(json.dumps(run_setup('setup.py', stop_after='init').extras_require))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    extras = json.loads(told.stdout)
    assert MODULES.keys() <= extras.keys()
    assert sorted(extras["all"]) == sorted(requirement for extra in MODULES for requirement in extras[extra])


def test_the_wheel_of_the_source_distribution_has_the_package_with_its_files_and_license_and_no_tests_or_benchmarks(
    tmp_path: Path,
) -> None:
    archive, wheel = build(tmp_path)
    files = {Path(name) for name in ZipFile(wheel).namelist()}
    info = next(file.parts[0] for file in files if file.name == "METADATA")
    assert {file.parts[0] for file in files} == {"hudi_ingest", info}
    package = {
        file.relative_to(REPOSITORY)
        for file in (REPOSITORY / "hudi_ingest").rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    }
    assert package == {file for file in files if file.parts[0] == "hudi_ingest"}
    assert Path(info, "licenses", "LICENSE") in files
    with tarfile.open(archive) as contents:
        sources = {Path(*Path(name).parts[1:]) for name in contents.getnames()}
    assert {*package, Path("setup.py"), Path("pyproject.toml"), Path("LICENSE"), Path("README.md")} <= sources
    assert not {"hudi_ingest_tests", "benchmarks"} & {source.parts[0] for source in sources if source.parts}
    told = message_from_bytes(ZipFile(wheel).read(f"{info}/METADATA"))
    assert told["Version"] == hudi_ingest.__version__
    assert told["Description-Content-Type"] == "text/markdown"
    assert not re.search(r"\]\((?!https?:)", str(told.get_payload())), "a link that leads nowhere on a package's page"
    ZipFile(wheel).extractall(tmp_path / "unpacked")
    points = Distribution.at(tmp_path / "unpacked" / info).entry_points
    assert "hudi_ingest.cli:main" in [point.value for point in points if point.name == "hudi-ingest"]


def test_the_demo_writes_the_pipeline_that_a_clone_has(tmp_path: Path) -> None:
    _provide_pipeline(replace(Home.from_environment({}), pipelines=tmp_path / "pipelines"), lambda line: None)
    written = (tmp_path / "pipelines" / "orders.yaml").read_text()
    assert written == (REPOSITORY / "pipelines" / "orders.yaml").read_text()


def test_the_sites_search_names_pages_for_users_before_those_about_the_project(tmp_path: Path) -> None:
    site.lay_out(tmp_path)
    low = {
        page
        for page in tmp_path.rglob("*.md")
        if page.read_text(encoding="utf-8").startswith("---\nsearch:\n  boost: 0.")
    }
    names = {page.relative_to(tmp_path).as_posix() for page in low}
    decisions = {name for name in names if name.startswith("docs/decisions/")}
    assert len(decisions) == len([*tmp_path.glob("docs/decisions/*.md")]) > 30
    assert names - decisions >= {"docs/mutants.md", "docs/measurements.md"}
    assert not names & {"README.md", "docs/operations.md", "docs/formats.md"}
    assert "boost" not in site.llms_text(tmp_path)
