"""Orders for fault points; see hudi_ingest/faults.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hudi_ingest.faults import POINTS
from hudi_ingest_tests.support.waiting import wait_for


@dataclass(frozen=True)
class Fault:
    """Arms points in `folder`, which is what HUDI_INGEST_FAULTS names."""

    folder: Path

    def arm(self, point: str, action: str) -> None:
        """The next process that comes to `point` carries out `action`."""
        assert point in POINTS
        for left in self.folder.iterdir():
            left.unlink()
        # Renamed into place, so that nobody reads half an order.
        partial = self.folder / "order.partial"
        partial.write_text(action)
        partial.rename(self.folder / f"{point}.armed")

    def was_reached(self, point: str) -> bool:
        return (self.folder / f"{point}.reached").exists()

    def await_reached(self, point: str, seconds: float) -> int:
        """The pid of the process that came to `point`. Raises NotInTime."""
        wait_for(lambda: self.was_reached(point), f"a process comes to {point}", seconds)
        return int((self.folder / f"{point}.reached").read_text())
