"""Claims of table services: who may commit a compaction or clustering, or is planning one.

The claim is a file in the table. A service writes its claim before it begins, and Hudi's client checks the file inside its lock
before it commits (TableService.java). So a process that was taken for dead cannot commit after another has taken over, and
after a crash the claim says which instant was ours.
"""

from __future__ import annotations

import json
import uuid
from typing import Literal

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.hudi.storage.paths import OWN_FILES
from hudi_ingest.hudi.storage.storage import TableStorage, WriteConflict

Service = Literal["compaction", "clustering"]


class ServiceClaim:
    """The claim of one table's service. Every method raises OSError."""

    def __init__(self, storage: TableStorage, service: Service) -> None:
        self._storage = storage
        self._service = service
        self.path = f"{OWN_FILES}/{service}"

    def take(self, instant: str) -> str:
        """Make this try the only one that can commit `instant`; returns what the file says from now on.

        Raises TransactionInFlight if another process takes the claim at this moment.
        """
        return self._write({self._service: instant, "try": uuid.uuid4().hex})

    def plan(self, newest: str) -> None:
        """Say that a plan is being made, with an instant after `newest`. Raises TransactionInFlight like `take`."""
        self._write({"planning_after": newest, "try": uuid.uuid4().hex})

    def drop(self) -> None:
        """Say that nothing is planned or executed. Raises TransactionInFlight like `take`."""
        self._write({"try": uuid.uuid4().hex})

    def owns(self, instant: str) -> bool:
        """Whether the last try of the pipeline's services was at this instant."""
        return self._read().get(self._service) == instant

    def planned(self, instant: str) -> bool:
        """Whether the pipeline's services may have made this plan: they were planning, and did not get further."""
        after = self._read().get("planning_after")
        return after is not None and instant > after

    def _read(self) -> dict[str, str]:
        content = self._storage.read_versioned(self.path).content
        try:
            claim: dict[str, str] = json.loads(content)
        except ValueError:
            # No file yet, or not one that proves anything.
            return {}
        return claim

    def _write(self, claim: dict[str, str]) -> str:
        text = json.dumps(claim, separators=(",", ":"))
        try:
            self._storage.put_if(self.path, text.encode(), self._storage.read_versioned(self.path))
        except WriteConflict:
            raise TransactionInFlight(
                f"table {self._storage.base_path}: another run of services is beginning a {self._service}. Nothing was changed; "
                "try again later."
            ) from None
        return text
