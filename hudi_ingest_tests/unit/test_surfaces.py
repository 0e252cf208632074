"""Whatever users, their scripts and their stored state depend on changes only on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.version import Version

import hudi_ingest
from hudi_ingest_tests.support import surfaces


@pytest.mark.parametrize("name", surfaces.SURFACES)
def test_a_surface_is_as_its_file_says(name: str) -> None:
    kept = surfaces.FOLDER.joinpath(name).read_text(encoding="utf-8")
    assert surfaces.text_of(name) == kept, "if users may meet this change, run `make docs` and say so in the commit"


def kept_by_an_old_version(version: str, texts: Mapping[str, str]) -> list[str]:
    """The surfaces that differ from those of the last release, if the version is not a newer one."""
    released = json.loads(surfaces.RELEASED.read_text(encoding="utf-8"))
    if Version(version) > Version(released["version"]):
        return []
    return [name for name, text in texts.items() if surfaces.digest(text) != released["sha256"][name]]


def test_surfaces_that_differ_from_the_last_release_have_a_newer_version() -> None:
    texts = {name: surfaces.FOLDER.joinpath(name).read_text(encoding="utf-8") for name in surfaces.SURFACES}
    assert not kept_by_an_old_version(hudi_ingest.__version__, texts), (
        "users' scripts may depend on these, so pip must install the change: raise __version__ in hudi_ingest/__init__.py"
    )
    assert kept_by_an_old_version("0.1.0", {**texts, "commands.txt": "$ hudi-ingest --other"}), "this test can fail"


def test_the_changelog_begins_with_the_version_and_deploy_has_its_image() -> None:
    repository = Path(__file__).parents[2]
    changes = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+?)(, unreleased)?$", changes, re.MULTILINE)
    assert newest is not None
    version = Version(hudi_ingest.__version__)
    assert (newest[1], bool(newest[2])) == (version.base_version, version.is_devrelease)
    files = [file for file in (repository / "deploy").rglob("*") if file.suffix in (".yaml", ".md")]
    tags = [
        found for file in files for found in re.findall(r"hudi-ingest:([\d.]\S*)|^ +tag: (\S+)", file.read_text(), re.M)
    ]
    assert len(tags) >= 6
    assert {max(each) for each in tags} == {hudi_ingest.__version__}
