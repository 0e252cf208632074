"""What one commit publishes, and what must hold at that moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hudi_ingest.hudi.epoch import Epoch
from hudi_ingest.model.plan import ReplacedFile, TransactionKind
from hudi_ingest.model.report import BaseFile
from hudi_ingest.model.transaction import TransactionSchema


@dataclass(frozen=True, slots=True)
class Publication:
    """Exactly `files`, and in place of the `replaced` ones, published by `instant`; from then on the table has the schema's columns."""

    instant: str
    files: Sequence[BaseFile]
    metadata: Mapping[str, str]
    """Extra metadata of the commit: checkpoint and accounting."""
    expected_checkpoint: str | None
    """The text of the checkpoint that the plan started from; the guard compares it with the table's."""
    epoch: Epoch
    """The transaction's; the guard compares it with the table's."""
    schema: TransactionSchema
    kind: TransactionKind = TransactionKind.INGEST
    replaced: Sequence[ReplacedFile] = ()
    """The guard sees that they are the table's own still."""
    seen: Collection[str] = ()
    """The table's completed instants. When given, the guard also refuses if there are others, or a writer is at work."""
    clean: bool = True
    """Whether old replaced files are deleted afterwards."""
