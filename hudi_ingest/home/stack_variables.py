"""Variables that a home's embedded stack sets for pipeline files, read from the stack file in the home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from hudi_ingest.home.folder import HOME_VARIABLE, Home
from hudi_ingest.home.process_identity import running_process

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
TABLES_VARIABLE = "HUDI_INGEST_TABLES"
STACK_VARIABLES = (BOOTSTRAP_VARIABLE, TABLES_VARIABLE)


def pipeline_environment(home: Home, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Complete `environment` with its home and, while the stack runs, the stack's variables; `environment` takes precedence."""
    return {HOME_VARIABLE: str(home.root), **_variables(home, only_running=True), **environment}


def missing_because(name: str, environment: Mapping[str, str]) -> str | None:
    """Explain why the stack of the environment's home does not set this variable; None if that home never had a stack."""
    if name not in STACK_VARIABLES or not environment.get(HOME_VARIABLE):
        return None
    home = Home.from_environment(environment)
    if not (home.stack_file.exists() or home.kafka.exists()):
        return None
    return f"the stack in {home.root} is down; start it with `hudi-ingest up`"


def stack_runs(home: Home) -> bool:
    """Whether a process of the home's embedded stack is alive."""
    return bool(_variables(home, only_running=True))


def embedded_broker(home: Home) -> str:
    """The address of the broker that `hudi-ingest up` has started in this home, alive or not; "" if there is no stack."""
    return _variables(home, only_running=False).get(BOOTSTRAP_VARIABLE, "")


def _variables(home: Home, *, only_running: bool) -> dict[str, str]:
    """Also empty when the file is damaged or of another version: only `up` and `down` need to report that."""
    try:
        stack: Any = json.loads(home.stack_file.read_text())
        starts = [(int(process["pid"]), float(process["started"])) for process in stack["processes"]]
        variables = {str(name): str(value) for name, value in stack["environment"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return variables if not only_running or any(running_process(pid, started) for pid, started in starts) else {}
