"""The package as users install it: built as `python -m build` builds it, and put into an environment outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from its contents, in a folder; return both files."""
    # A copy, because a build leaves folders beside setup.py.
    source = folder / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("hudi_ingest", "hudi_ingest_tests", "benchmarks"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    archive = _built("build_sdist", source, folder)
    shutil.unpack_archive(archive, folder)
    return archive, _built("build_wheel", folder / archive.name.removesuffix(".tar.gz"), folder)


def _built(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-c", _BUILD, kind, str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel alone into a new environment above this one's packages, and return its command `hudi-ingest`.

    A plain line in a .pth file: the installation of the repository in this environment, a .pth file itself, takes no effect there.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    beneath = Path(sysconfig.get_path("purelib"))
    packages.joinpath("beneath.pth").write_text(f"{beneath}\n")
    # Where Python has no distutils, setuptools provides one to pyspark, by a .pth file.
    shutil.copy(beneath / "distutils-precedence.pth", packages)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=300)
    return folder / "bin" / "hudi-ingest"


def outside(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what leads to the repository or to another home."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "HUDI_INGEST_JARS" or not name.startswith(("HUDI_INGEST_", "PYTHON"))
    }
    return {**kept, **(more or {})}
