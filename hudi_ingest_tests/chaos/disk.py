"""The disk of a lane's tables: small, so that it can be full, and where loop devices are, one whose power can be cut."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MEGABYTES = 400


@dataclass
class TablesDisk:
    """A file system of its own at `folder`; `image` holds it, None where it is in memory."""

    folder: Path
    image: Path | None

    @property
    def has_power(self) -> bool:
        """Whether `cut_power` is possible."""
        return self.image is not None

    def fill(self) -> Path:
        """Leaves no byte free. Returns the file to delete when there is to be space again."""
        filler = self.folder / "filler"
        for chunk in (1 << 16, 1):
            with suppress(OSError), filler.open("ab", buffering=0) as file:
                while True:
                    file.write(bytes(chunk))
        return filler

    def cut_power(self) -> None:
        """Takes away all that was not written through to the image: what only the page cache has is gone, as after a power cut.

        Nobody may write meanwhile; the caller has killed all who could.
        """
        assert self.image is not None
        after = self.image.with_name(f"{self.image.stem}-after.img")
        # Unmounting writes the page cache out, so what counts is the image as it was before.
        _run("cp", "--sparse=always", self.image, after)
        _run("umount", "-l", self.folder)
        self.image = self.image.with_name(f"{after.stem}-used.img")
        after.rename(self.image)
        _mount(self.image, self.folder)

    def remove(self) -> None:
        _run("umount", "-l", self.folder)


def tables_disk(root: Path, folder: Path, megabytes: int = _MEGABYTES) -> TablesDisk | None:
    """Mounts it at `folder`; `root` takes the image. None where this user may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("mkfs.ext4"):
        image = root / "tables.img"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-m", "0", image)
        with suppress(subprocess.CalledProcessError):
            _mount(image, folder)
            return TablesDisk(folder, image)
    with suppress(subprocess.CalledProcessError, FileNotFoundError):
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
        return TablesDisk(folder, None)
    return None


def _mount(image: Path, folder: Path) -> None:
    # The longest time between two writes of ext4's journal: the power cut takes as much as it can.
    _run("mount", "-o", "loop,commit=300", image, folder)
    with suppress(FileNotFoundError):
        (folder / "lost+found").rmdir()


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
