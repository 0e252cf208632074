"""What one commit publishes, and what must hold when it does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.model.plan import ReplacedFile, TransactionKind
from hudi_ingest.model.report import BaseFile, LogFile
from hudi_ingest.model.transaction import TransactionSchema


@dataclass(frozen=True, slots=True)
class Publication:
    """A commit: `instant` publishes exactly `files` and `log_files`, which replace `replaced`, and gives the table the schema's
    columns."""

    instant: str
    files: Sequence[BaseFile]
    metadata: Mapping[str, str]
    """Extra metadata of the commit: checkpoint and accounting."""
    expected_checkpoint: str | None
    """The text of the checkpoint that the plan starts from; the guard compares it with the table's."""
    epoch: Epoch
    """The transaction's epoch; the guard compares it with the table's."""
    schema: TransactionSchema
    kind: TransactionKind = TransactionKind.INGEST
    log_files: Sequence[LogFile] = ()
    """The rows of a keyed table, whose `files` are the empty base files of new file groups."""
    before: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """If CDC queries are to read the commit: by partition path and file id, the base file and the log files of each file group that
    the log files extend, as they were before."""
    replaced: Sequence[ReplacedFile] = ()
    """The guard checks that the table still has them."""
    seen: Collection[str] = ()
    """The completed instants that the plan knows. If not empty, the guard refuses when there are others, or another writer is active."""
    read: Collection[str] = ()
    """Completed instants whose commits the caller has read: none is of this transaction, and the greatest checkpoint of theirs is
    the expected one. The guard reads only newer ones."""
    clean: bool = True
    """Whether Hudi cleans old replaced files after the commit."""
