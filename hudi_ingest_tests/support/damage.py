"""What a power cut leaves of the newest commit: files that have their names but not, or not all of, their content."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NewestCommit:
    """The newest completed commit of the table, and the files that Hudi wrote for it right before our flush."""

    base_path: str

    @property
    def file(self) -> Path:
        return max((self._hoodie / "timeline").glob("*_*commit"), key=lambda path: path.name.partition("_")[2])

    @property
    def instant(self) -> str:
        return self.file.name.partition("_")[0]

    @property
    def in_metadata_table(self) -> Path:
        (path,) = (self._hoodie / "metadata/.hoodie/timeline").glob(f"{self.instant}_*.deltacommit")
        return path

    @property
    def log_of_metadata_table(self) -> Path:
        (path,) = (self._hoodie / "metadata/files").glob(f".files-*_{self.instant}.log.*")
        return path

    def data_files(self) -> list[Path]:
        """Data files with the instant in their names."""
        return [
            path
            for path in Path(self.base_path).rglob(f"*_{self.instant}.*")
            if ".hoodie" not in path.parts and path.suffix != ".crc"
        ]

    @property
    def _hoodie(self) -> Path:
        return Path(self.base_path, ".hoodie")


def cut(path: Path, part: float = 0.0, seconds_ago: float = 3600) -> None:
    """Leaves this part of the file's content, as if written a while ago."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    then = time.time() - seconds_ago
    os.utime(path, (then, then))
