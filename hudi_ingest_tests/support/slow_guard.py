"""A commit guard that stands still inside Hudi's lock."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def write_slow_guard(folder: Path, inside: Path, seconds: int) -> None:
    """Writes the Java sources of hudi_ingest.hudi to `folder`; the guard makes the file `inside`, then waits."""
    sources = resources.files("hudi_ingest.hudi")
    source = sources.joinpath("CommitGuard.java").read_text()
    pause = f'new java.io.File("{inside}").createNewFile(); Thread.sleep({seconds * 1000}L);'
    slow = source.replace(
        "requireCheckpoint(fresh);",
        f"requireCheckpoint(fresh); try {{ {pause} }} catch (InterruptedException e) {{ throw new RuntimeException(e); }}",
    )
    assert slow != source
    for file in sources.iterdir():
        if file.name.endswith(".java"):
            folder.joinpath(file.name).write_text(slow if file.name == "CommitGuard.java" else file.read_text())
