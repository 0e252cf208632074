"""Dagster's webserver behind `OwnPageOnly`, to be used in place of `dagster-webserver`.

`python -m hudi_ingest.orchestration.embedded.webserver --port 3000 --workspace workspace.yaml` serves on 127.0.0.1 until it is stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.cli import (
    DEFAULT_DB_STATEMENT_TIMEOUT,
    DEFAULT_POOL_MAX_OVERFLOW,
    DEFAULT_POOL_RECYCLE,
)
from dagster_webserver.version import __version__

from hudi_ingest.orchestration.embedded.web_access import HOSTS_VARIABLE, OwnPageOnly, hosts_from


def serve(instance: DagsterInstance, workspace: Path, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serve on `host` and `port` until SIGTERM or SIGINT. `hosts`: additional names of the UI."""
    instance.optimize_for_webserver(DEFAULT_DB_STATEMENT_TIMEOUT, DEFAULT_POOL_RECYCLE, DEFAULT_POOL_MAX_OVERFLOW)
    target = WorkspaceFileTarget([str(workspace)])
    with WorkspaceProcessContext(instance, version=__version__, workspace_load_target=target) as context:
        app = create_app_from_workspace_process_context(context)
        uvicorn.run(OwnPageOnly(app, port, hosts), host=host, port=port, log_level="warning")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse `host`, `port` and `workspace` from the command line, and `hosts` from the environment. Exits if they are invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m hudi_ingest.orchestration.embedded.webserver",
        description=f"Dagster's webserver, which answers its own pages only. Additional names of the UI: {HOSTS_VARIABLE}",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--workspace", type=Path, required=True, help="Dagster's workspace.yaml")
    options = parser.parse_args(arguments)
    try:
        options.hosts = hosts_from(os.environ.get(HOSTS_VARIABLE, ""))
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str]) -> None:
    """Serve until the process is stopped."""
    options = options_of(arguments)
    with DagsterInstance.get() as instance, suppress(KeyboardInterrupt):
        serve(instance, options.workspace, options.host, options.port, options.hosts)


if __name__ == "__main__":
    main(sys.argv[1:])
