"""Changes of tables' columns that wait for a person's approval, as the begin that was refused found them. Called inside the ledger's
database transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from hudi_ingest.ledger.tables import PENDING_CHANGES


@dataclass(frozen=True, slots=True)
class PendingChange:
    """How a table's columns would change. `base_path` is the table's, without a trailing slash."""

    base_path: str
    pipeline: str
    fingerprint: str
    origin: str
    """Where the columns come from."""
    changes: tuple[str, ...]
    found_at: datetime

    @property
    def sentence(self) -> str:
        return (
            f"the table's columns would change ({'; '.join(self.changes)}), by {self.origin}, and table.on_schema_change is refuse. "
            f"No transaction begins before `hudi-ingest approve-schema {self.pipeline} --fingerprint {self.fingerprint}` has "
            "approved this, or it is undone where it was made"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "origin": self.origin,
            "changes": list(self.changes),
            "found_at": self.found_at.isoformat(),
            "text": self.sentence,
        }


def of_table(connection: sa.Connection, base_path: str) -> PendingChange | None:
    row = (
        connection.execute(sa.select(PENDING_CHANGES).where(PENDING_CHANGES.c.base_path == base_path))
        .mappings()
        .first()
    )
    return PendingChange(**{**row, "changes": tuple(row["changes"])}) if row is not None else None


def note(connection: sa.Connection, change: PendingChange) -> None:
    """Remember the change instead of any other of its table."""
    forget(connection, change.base_path)
    connection.execute(
        PENDING_CHANGES.insert().values(
            base_path=change.base_path,
            pipeline=change.pipeline,
            fingerprint=change.fingerprint,
            origin=change.origin,
            changes=list(change.changes),
            found_at=change.found_at,
        )
    )


def forget(connection: sa.Connection, base_path: str) -> bool:
    """Return whether a change was known."""
    return bool(connection.execute(PENDING_CHANGES.delete().where(PENDING_CHANGES.c.base_path == base_path)).rowcount)
