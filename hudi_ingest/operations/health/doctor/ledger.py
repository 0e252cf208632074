"""Examines the ledger: whether it opens, is whole, and has the same time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path  # files: the ledger's

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.finding import Finding, ok, problem
from hudi_ingest.operations.health.doctor.machine import clock_diagnoses

LEDGER = "ledger"


def existing_ledger(home: Home) -> Ledger | None:
    """Open the home's ledger unless that would create its file. Raises ConfigError, EnvironmentProblem, LedgerUnreachable."""
    file = home.ledger_url.partition("///")[2] if home.ledger_url.startswith("sqlite") else None
    return None if file and not Path(file).exists() else Ledger.open(home.ledger_url)


def ledger_diagnoses(home: Home) -> Iterator[Finding]:
    """Examine the home's ledger. Raises ConfigError, EnvironmentProblem, LedgerUnreachable."""
    ledger = existing_ledger(home)
    if ledger is None:
        yield ok(LEDGER, f"{home.ledger_url} does not exist yet; the first transaction makes it")
        return
    damage = ledger.damage()
    if damage:
        yield problem(
            LEDGER,
            f"{ledger.place} is damaged: {damage}. The tables are not affected.",
            "Stop everything that uses it, move the file away, and restore what the tables know with `hudi-ingest recover PIPELINE` "
            "for each pipeline.",
        )
    else:
        yield ok(LEDGER, f"{ledger.place} is open and whole")
    clock = ledger.clock()
    if clock is not None:
        yield from clock_diagnoses("the ledger's server", (clock - datetime.now(timezone.utc)).total_seconds())
