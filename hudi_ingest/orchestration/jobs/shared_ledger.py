"""Checks that the sensor and all ops of a run use one ledger, wherever Dagster starts their processes.

Without `HUDI_INGEST_LEDGER_URL` a ledger is a file in the process's own home. Steps that run in containers of their own would
each get an empty one.
"""

from __future__ import annotations

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.ledger import Ledger

_REMEDY = (
    f"Set {LEDGER_VARIABLE} to the same PostgreSQL for the code server, the runs and every step (for k8s_job_executor, in the "
    "environment of the step's pods)."
)


def require_ledger_of_begin(ledger: Ledger, transaction_id: str, place: str) -> None:
    """Raise ConfigError if `ledger` is not the one at `place`, in which begin opened the transaction. A wiped ledger is the same."""
    if place and place != ledger.place and ledger.transactions.find(transaction_id) is None:
        raise ConfigError(
            LEDGER_VARIABLE,
            [
                f"the run's begin op opened transaction {transaction_id} in the {place}, but this op has the {ledger.place}, "
                f"which does not know it. {_REMEDY}"
            ],
        )


def require_ledger_of_sensor(ledger: Ledger, pipeline: str, place: str) -> None:
    """Raise ConfigError if `ledger` is not the one at `place`, in which the pipeline's sensor notes its ticks."""
    if place and place != ledger.place and ledger.requests.ticked_at(pipeline) is None:
        raise ConfigError(
            LEDGER_VARIABLE,
            [
                f"the sensor of pipeline {pipeline} has the {place}, but this op has the {ledger.place}, in which no tick is "
                f"noted. {_REMEDY}"
            ],
        )
