"""The table's epoch: a number that grows with every begin and abort, and names the only transaction that may write.

It is stored in the table itself, so it holds whatever happens to the ledger. On a store with conditional writes it is changed
by compare-and-set, so of two that change it at once one fails, whatever happens to the ledger's table lock.

Two others refuse a writer of an older epoch, too: the fence before each new file (`hudi/files/new_files.py`), and the guard when a commit
is published (`CommitGuard.java`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hudi_ingest.exceptions import Fenced, TableUnreachable
from hudi_ingest.hudi.storage.paths import EPOCH_PATH
from hudi_ingest.hudi.storage.storage import TableStorage, Versioned, WriteConflict, reaching


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch; `transaction_id` is the only transaction that may write in it, "" when none may."""

    number: int
    transaction_id: str

    def to_json(self) -> str:
        """Serialize canonically, because the commit guard and the writers compare epochs as text."""
        return json.dumps({"epoch": self.number, "transaction": self.transaction_id}, separators=(",", ":"))


class TableEpoch:
    """The epoch of one table. Changed only under the ledger's table lock. Every method raises TableUnreachable."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def current(self) -> Epoch:
        """Read the current epoch; before the first begin it is epoch 0 of no transaction."""
        return self._read()[0]

    def _read(self) -> tuple[Epoch, Versioned]:
        with reaching(self._storage, "read the epoch"):
            stored = self._storage.read_versioned(EPOCH_PATH)
        if not stored.content:
            return Epoch(0, ""), stored
        try:
            content = json.loads(stored.content)
            return Epoch(int(content["epoch"]), str(content["transaction"])), stored
        except (ValueError, KeyError, TypeError) as error:
            text = stored.content.decode(errors="replace")
            raise TableUnreachable(
                f"the epoch of the table at {self._storage.base_path} cannot be read: {EPOCH_PATH} holds {text[:80]!r} "
                "(a damaged disk, or another program's file). While no transaction runs, delete that file: the next begin "
                "recreates it from the ledger's epoch."
            ) from error

    def advance(self, number: int, transaction_id: str) -> Epoch:
        """Let only `transaction_id` write from now on. Raises Fenced unless `number` is above the current one."""
        while True:
            current, stored = self._read()
            if current.number == 0:
                # The first begin on this table, or on this copy of it.
                with reaching(self._storage, "try conditional writes in the folder"):
                    self._storage.require_conditional_writes()
            if number <= current.number:
                raise Fenced(
                    f"epoch {number} of transaction {transaction_id} is not above the table's epoch {current.number} of "
                    f"transaction {current.transaction_id or 'none'}: another begin came first. Nothing was written; plan again.",
                    transaction_id=transaction_id,
                )
            epoch = Epoch(number, transaction_id)
            try:
                self._put(epoch, stored)
            except WriteConflict:
                # Another process was faster: look again whether its epoch is above this one.
                continue
            return epoch

    def retire(self, transaction_id: str) -> None:
        """Stop `transaction_id` from writing from now on. If another transaction owns the epoch, nothing changes."""
        while True:
            current, stored = self._read()
            if current.transaction_id != transaction_id:
                return
            try:
                self._put(Epoch(current.number + 1, ""), stored)
            except WriteConflict:
                # Another process was faster: look again whether the epoch is still this transaction's.
                continue
            return

    def require(self, epoch: Epoch, consequence: str) -> None:
        """Raises Fenced unless `epoch` is the current one. `consequence` begins the error message."""
        current = self.current()
        if current != epoch:
            raise Fenced(
                f"{consequence}: epoch {epoch.number} of transaction {epoch.transaction_id} is over, the table at "
                f"{self._storage.base_path} is in epoch {current.number}"
                + (f" of transaction {current.transaction_id}" if current.transaction_id else "")
                + ". Nothing of this transaction is visible, and the next one reads its offsets: wait for the sensor to begin it, "
                "or re-execute the whole run, not just its failed steps.",
                transaction_id=epoch.transaction_id,
            )

    def _put(self, epoch: Epoch, before: Versioned) -> None:
        with reaching(self._storage, "write the epoch"):
            self._storage.put_if(EPOCH_PATH, epoch.to_json().encode(), before)
