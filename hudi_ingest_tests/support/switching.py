"""Turns pipelines on and off as `hudi-ingest resume` and `pause` do, without waiting for Dagster's instance."""

from __future__ import annotations

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger


def turn(home: Home, pipeline: str, on: bool) -> None:
    """Set the pipeline's switch. A tick or transaction that has begun still finishes."""
    with Ledger.open(home.ledger_url) as ledger:
        ledger.requests.switch(pipeline, on)
