"""The home and the environment of the cluster on one machine; that it runs is for e2e/test_cluster_demo.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import HOME_VARIABLE, Home
from hudi_ingest_tests.lab.cluster_stack import emptied, ingest_environment


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "demo"
    return Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")


def test_a_home_is_emptied_and_not_shared(home: Home) -> None:
    (home.root / "kafka").mkdir(parents=True)
    with emptied(home):
        assert list(home.root.iterdir()) == []
        (home.root / "new").touch()
        with pytest.raises(EnvironmentProblem, match="another demo is running"), emptied(home):
            pass
        assert (home.root / "new").exists()
        assert home.root.stat().st_mode & 0o777 == 0o700
    with emptied(home):
        assert list(home.root.iterdir()) == []


def test_a_full_disk_is_said_before_anything_starts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free=1))
    with pytest.raises(EnvironmentProblem, match="has 0 MB free"), emptied(home):
        pass


def test_a_user_s_settings_of_other_engines_and_stores_are_left_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("HUDI_INGEST_ENGINE", "HUDI_INGEST_ENGINE_MASTER", "AWS_SESSION_TOKEN", "AWS_PROFILE")
    for name in (*names, "HUDI_INGEST_JARS", HOME_VARIABLE):
        monkeypatch.setenv(name, "of the user")
    environment = ingest_environment(home)
    assert environment.keys() & names == set()
    assert environment["HUDI_INGEST_JARS"] == "of the user", "the cache of jars is shared"
    assert environment[HOME_VARIABLE] == str(home.root)
