"""The SQL record of transactions, slices, attempts and requests. The source of truth is the Hudi table, not the ledger.

Imports `model`, `home` and `exceptions`. Public: what is listed here.
"""

from hudi_ingest.ledger.ledger import Ledger
from hudi_ingest.ledger.notes import PendingChange, Service, ServiceRun
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.requests import Request, RequestProgress, RequestState
from hudi_ingest.ledger.retention import Kept
from hudi_ingest.ledger.tables import AttemptRow, AttemptState, SliceRow, TransactionRow

__all__ = [
    "AttemptRow",
    "AttemptState",
    "Kept",
    "Ledger",
    "Owner",
    "PendingChange",
    "Request",
    "RequestProgress",
    "RequestState",
    "Service",
    "ServiceRun",
    "SliceRow",
    "TransactionRow",
]
