"""Housekeeping outside a run of Dagster's. Importing this loads the pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dagster import DagsterInstance

from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration.definitions import defs
from hudi_ingest.orchestration.housekeeping.housekeeping import Housekeeping
from hudi_ingest.orchestration.housekeeping.own_definitions import OwnDefinitions
from hudi_ingest.pipeline.code_location import HousekeepingSettings
from hudi_ingest.pipeline.folder import load_each


@contextmanager
def housekeeping_of(home: Home, settings: HousekeepingSettings, ledger: Ledger) -> Iterator[Housekeeping]:
    """Yield the housekeeping of the home's pipelines in the Dagster at `$DAGSTER_HOME` or, without it, the embedded stack's. Raises
    ConfigError."""
    own = OwnDefinitions.of(defs.get_repository_def())
    pipelines, broken = load_each(home.pipelines)
    folder = os.environ.get("DAGSTER_HOME") or (str(home.dagster) if (home.dagster / "dagster.yaml").exists() else "")
    if not folder:
        yield Housekeeping(settings, own, ledger, None, pipelines=pipelines, broken=broken)
        return
    # The instance's own parts look there for their folders.
    os.environ["DAGSTER_HOME"] = folder
    with DagsterInstance.get() as instance:
        yield Housekeeping(settings, own, ledger, instance, pipelines=pipelines, broken=broken)
