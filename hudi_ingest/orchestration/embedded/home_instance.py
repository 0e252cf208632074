"""Dagster's instance for processes that Dagster has not started: that of $DAGSTER_HOME, or of the home's embedded Dagster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dagster import DagsterInstance

from hudi_ingest.home.folder import Home

DAGSTER_VARIABLE = "DAGSTER_HOME"


def dagster_folder(home: Home, environment: Mapping[str, str] = os.environ) -> Path | None:
    """$DAGSTER_HOME, or else that of the home's embedded Dagster; None if there is no instance."""
    named = environment.get(DAGSTER_VARIABLE)
    folder = Path(named).expanduser().absolute() if named else home.dagster
    return folder if (folder / "dagster.yaml").is_file() else None


def open_instance(folder: Path) -> DagsterInstance:
    """Open the instance of the folder. Raises what Dagster raises if it cannot be opened."""
    # The embedded Dagster's storages take their folder from the variable, wherever the instance was opened from.
    os.environ[DAGSTER_VARIABLE] = str(folder)
    return DagsterInstance.get()
