"""hoodie.properties as Hudi writes it."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path


def properties_text(more: Mapping[str, str], name: str = "orders") -> str:
    checksum = zlib.crc32(f".{name}".encode())
    found = {"hoodie.table.name": name, "hoodie.table.checksum": str(checksum), **more}
    return "".join(f"{key}={value}\n" for key, value in found.items())


def empty_properties(base_path: str | Path, cut_at: int = 0) -> None:
    """As a SIGKILL or a full disk leaves the file in the middle of Hudi's update of it: a good backup beside `cut_at` bytes."""
    primary = Path(base_path) / ".hoodie" / "hoodie.properties"
    shutil.copyfile(primary, primary.with_name("hoodie.properties.backup"))
    primary.write_bytes(primary.read_bytes()[:cut_at])
