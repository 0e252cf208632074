"""The home and what is put into it: who may look."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.stack import Stack, StackSettings


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    kept = os.umask(0)
    yield
    os.umask(kept)


def home_at(root: Path) -> Home:
    return Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_the_home_is_made_for_its_user_alone(tmp_path: Path) -> None:
    home = home_at(tmp_path / "data" / "home")
    home.make()
    assert mode(home.root) == 0o700
    home.make()
    assert mode(home.root) == 0o700


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o700), (0o750, 0o700), (0o2775, 0o2700), (0o1777, 0o1777)])
def test_a_home_that_is_there_is_closed_to_others_unless_it_is_everybodys(
    tmp_path: Path, before: int, after: int
) -> None:
    home = home_at(tmp_path / "home")
    home.root.mkdir()
    home.root.chmod(before)
    home.make()
    assert mode(home.root) == after


def test_another_users_home_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_at(tmp_path / "home")
    home.root.mkdir(mode=0o755)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    home.make()
    assert mode(home.root) == 0o755


def test_the_stacks_file_is_its_users_alone(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    Stack(StackSettings(), {}, ()).write(home)
    assert mode(home.stack_file) == 0o600
    home.stack_file.chmod(0o644)
    Stack(StackSettings(), {}, ()).write(home)
    assert mode(home.stack_file) == 0o600, "an older one was readable"


def test_a_ledger_whose_folder_is_not_there_makes_it_for_its_user_alone(tmp_path: Path) -> None:
    home = home_at(tmp_path / "home")
    Ledger.open(home.ledger_url).dispose()
    assert mode(home.root) == 0o700
