"""Dagster's webserver behind `OwnPageOnly`, for all who would run `dagster-webserver`.

`python -m hudi_ingest.orchestration.webserver --port 3000 --workspace workspace.yaml` serves on 127.0.0.1 until it is ended.
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

from hudi_ingest.orchestration.web_access import HOSTS_VARIABLE, OwnPageOnly, hosts_from


def serve(instance: DagsterInstance, workspace: Path, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serves on `host` and `port` until SIGTERM or SIGINT; `hosts` are further names of the page."""
    instance.optimize_for_webserver(DEFAULT_DB_STATEMENT_TIMEOUT, DEFAULT_POOL_RECYCLE, DEFAULT_POOL_MAX_OVERFLOW)
    target = WorkspaceFileTarget([str(workspace)])
    with WorkspaceProcessContext(instance, version=__version__, workspace_load_target=target) as context:
        app = create_app_from_workspace_process_context(context)
        uvicorn.run(OwnPageOnly(app, port, hosts), host=host, port=port, log_level="warning")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """`host`, `port` and `workspace` of the command line, and `hosts` of the environment. Ends the program when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m hudi_ingest.orchestration.webserver",
        description=f"Dagster's web page, which serves its own pages only. Further names of it: {HOSTS_VARIABLE}",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--workspace", type=Path, required=True, help="Dagster's workspace.yaml")
    given = parser.parse_args(arguments)
    try:
        given.hosts = hosts_from(os.environ.get(HOSTS_VARIABLE, ""))
    except ValueError as error:
        parser.error(str(error))
    return given


def main(arguments: Sequence[str]) -> None:
    """Serves until the process is ended."""
    given = options_of(arguments)
    with DagsterInstance.get() as instance, suppress(KeyboardInterrupt):
        serve(instance, given.workspace, given.host, given.port, given.hosts)


if __name__ == "__main__":
    main(sys.argv[1:])
