"""What a power cut leaves of a folder: what was flushed to the disk, as it was then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Notes what the process flushes below `root`. A folder's name for a file counts when that folder was flushed after it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        really = os.fsync

        def fsync(descriptor: int) -> None:
            really(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_dir():
                self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
            else:
                self._contents[path.stat().st_ino] = path.read_bytes()

        monkeypatch.setattr(os, "fsync", fsync)

    def survives(self, path: Path) -> bool:
        """Whether the file would be there, as it is now."""
        inode = path.stat().st_ino
        named = self._names.get(path.parent, {}).get(path.name) == inode
        above = path.parent == self._root or self._is_named(path.parent)
        return named and above and self._contents.get(inode) == path.read_bytes()

    def restore(self, copy: Path) -> None:
        """Makes the folder at `copy` what is left of the root after the cut."""
        for folder, names in self._names.items():
            if (folder != self._root and self._root not in folder.parents) or not self._is_named(folder):
                continue
            there = copy / folder.relative_to(self._root)
            there.mkdir(parents=True, exist_ok=True)
            for name, inode in names.items():
                if not (folder / name).is_dir():
                    # A name without content is an empty file.
                    (there / name).write_bytes(self._contents.get(inode, b""))

    def _is_named(self, folder: Path) -> bool:
        if folder == self._root:
            return True
        named = self._names.get(folder.parent, {}).get(folder.name)
        return named is not None and folder.exists() and named == folder.stat().st_ino and self._is_named(folder.parent)
