"""The fence of an open instant: whether its writers may still write."""

from __future__ import annotations

import time

from hudi_ingest.exceptions import Fenced
from hudi_ingest.hudi.files.row_source import RowSource
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch

CHECK_SECONDS = 0.05
"""How old the last check may be when a file is opened or closed; a check costs 0.1 ms."""
_CHECK_SECONDS_OF_A_STORE = 1.0
"""On an object store, where a check is two requests."""


class Fence:
    """Refuses writers whose instant is no longer open, or whose transaction's epoch is over."""

    def __init__(self, storage: TableStorage, instant: str, epoch: Epoch) -> None:
        self._storage = storage
        self._instant = instant
        self._epoch = epoch
        self._check_seconds = CHECK_SECONDS if storage.is_local else _CHECK_SECONDS_OF_A_STORE
        self._checked_at = float("-inf")

    @property
    def check_is_due(self) -> bool:
        return time.monotonic() - self._checked_at > self._check_seconds

    def require_open(self, source: RowSource) -> None:
        """Raises Fenced, TableUnreachable."""
        if not self._storage.exists(heartbeat_path(self._instant)):
            raise Fenced(
                f"instant {self._instant} of {self._storage.base_path} is no longer open (rolled back, or "
                f"committed by another process), so {source} must not write to it. "
                "Nothing of this attempt is visible; the next transaction reads the same offsets.",
                transaction_id=self._epoch.transaction_id,
                instant=self._instant,
            )
        TableEpoch(self._storage).require(self._epoch, f"{source} must not be written")
        self._checked_at = time.monotonic()
