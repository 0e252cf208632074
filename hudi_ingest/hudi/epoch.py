"""The table's epoch: a number that grows with every begin and abort, and whose transaction alone may write.

It lies in the table itself, so it holds whatever happens to the ledger.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hudi_ingest.exceptions import Fenced, TableUnreachable
from hudi_ingest.hudi.paths import EPOCH_PATH
from hudi_ingest.hudi.storage import TableStorage, advice


@dataclass(frozen=True, slots=True)
class Epoch:
    """`transaction_id` is the one transaction that may write in this epoch; "" when none may."""

    number: int
    transaction_id: str

    def to_json(self) -> str:
        """A canonical text: the commit guard and the writers compare epochs as texts."""
        return json.dumps({"epoch": self.number, "transaction": self.transaction_id}, separators=(",", ":"))


class TableEpoch:
    """The epoch of one table. Changes are made under the ledger's table lock. Every method raises TableUnreachable."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def current(self) -> Epoch:
        """Epoch 0 of no transaction before the first begin."""
        text = self._text()
        if not text:
            return Epoch(0, "")
        try:
            found = json.loads(text)
            return Epoch(int(found["epoch"]), str(found["transaction"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TableUnreachable(
                f"the epoch of the table at {self._storage.base_path} cannot be read: {EPOCH_PATH} holds {text[:80]!r} "
                "(a damaged disk, or another program's file). While no transaction runs, delete that file: the next begin "
                "makes it anew from the ledger's epoch."
            ) from error

    def advance(self, number: int, transaction_id: str) -> Epoch:
        """From now on only `transaction_id` may write. Raises Fenced unless `number` is above the current one."""
        current = self.current()
        if number <= current.number:
            raise Fenced(
                f"epoch {number} of transaction {transaction_id} is not above the table's epoch {current.number} of "
                f"transaction {current.transaction_id or 'none'}: another begin came first. Nothing was written; plan again."
            )
        epoch = Epoch(number, transaction_id)
        self._put(epoch)
        return epoch

    def retire(self, transaction_id: str) -> None:
        """From now on `transaction_id` may not write. Where another transaction has the epoch, it keeps it."""
        current = self.current()
        if current.transaction_id == transaction_id:
            self._put(Epoch(current.number + 1, ""))

    def require(self, epoch: Epoch, what: str) -> None:
        """Raises Fenced unless `epoch` is the current one. `what` begins the error's sentence."""
        current = self.current()
        if current != epoch:
            raise Fenced(
                f"{what}: epoch {epoch.number} of transaction {epoch.transaction_id} is over, the table at "
                f"{self._storage.base_path} is in epoch {current.number}"
                + (f" of transaction {current.transaction_id}" if current.transaction_id else "")
                + ". Nothing of this transaction is visible, and the next one reads its offsets: the sensor begins it, or "
                "re-execute the whole run, not from its failed steps."
            )

    def _text(self) -> str:
        try:
            return self._storage.read(EPOCH_PATH).decode()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._unreachable("read", error) from error

    def _put(self, epoch: Epoch) -> None:
        try:
            self._storage.replace(EPOCH_PATH, epoch.to_json().encode())
        except OSError as error:
            raise self._unreachable("write", error) from error

    def _unreachable(self, doing: str, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"cannot {doing} the epoch of the table at {self._storage.base_path}: {error}. {advice(error)}"
        )
