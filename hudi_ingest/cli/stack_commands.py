"""demo, up, down, engine, serve, code-server: servers on this machine, alone or as the embedded stack."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hudi_ingest.cli.app import (
    DRIVER_HOST,
    KAFKA_PORT,
    MASTER,
    MEMORY,
    UI_PORT,
    AsJson,
    KafkaPort,
    UiPort,
    app,
    err,
    out,
    print_json,
    print_result,
    progress,
    say,
)
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home import folder
from hudi_ingest.home.folder import Home


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Ingest 200,000 orders, verify them and stop.")] = False,
    kafka_port: KafkaPort = folder.KAFKA_PORT,
    ui_port: UiPort = folder.UI_PORT,
    as_json: AsJson = False,
) -> None:
    """Start Kafka, Spark and Dagster on this machine, produce sample orders and ingest them. Ctrl-C stops everything."""
    from hudi_ingest.cli.demo import run_demo, run_once
    from hudi_ingest.local.stack import StackSettings

    home = Home.from_environment()
    settings = StackSettings(kafka_port=kafka_port, ui_port=ui_port)
    if not once:
        run_demo(home, settings, out, progress)
        return
    # Uses its own home, emptied first: the record count is fixed, so the topic and the table must be new.
    root = home.root / "demo-once"
    result = run_once(replace(home, root=root, ledger_url=f"sqlite:///{root / 'ledger.db'}"), settings, progress)
    verification = result.verification
    print_result(
        as_json,
        {**asdict(verification), "commits": result.commits, "seconds": round(result.seconds, 1)},
        f"{'exactly once' if verification.exact else 'NOT exactly once'}: {verification.rows:,} rows in {result.commits} commits, "
        f"{verification.lost} lost, {verification.duplicate} duplicate, {verification.foreign} foreign; {result.seconds:.0f} s in all",
    )
    if not verification.exact:
        raise typer.Exit(1)


@app.command()
def up(
    kafka_port: Annotated[int | None, KAFKA_PORT] = None,
    ui_port: Annotated[int | None, UI_PORT] = None,
    master: Annotated[str | None, MASTER] = None,
    memory: Annotated[str | None, MEMORY] = None,
    as_json: AsJson = False,
) -> None:
    """Start the parts of the embedded stack that are not running: Kafka, the Spark engine, Dagster.

    Parts that are running are left alone, and their options cannot change: use `down` first. An option that you leave out
    keeps its last value; the defaults are 19092, 3000, and what engine.yaml says or else local[*] and 2g.
    """
    from hudi_ingest.local.stack import bring_up, remembered_settings, require_as_asked
    from hudi_ingest.pipeline.folder import broken_files
    from hudi_ingest.transaction.columns.decoding import format_problems

    home = Home.from_environment()
    options = {"kafka_port": kafka_port, "ui_port": ui_port, "master": master, "driver_memory": memory}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    stack = bring_up(home, replace(remembered_settings(home), **changes), progress, exported=os.environ)
    require_as_asked(stack, changes)
    broken = broken_files(home.pipelines, check=format_problems)
    if as_json:
        facts = {"bootstrap_servers": stack.bootstrap_servers, "url": stack.url}
        print_json({**facts, "broken_files": {str(file.path): file.problems for file in broken}})
    else:
        say(f"Kafka      {stack.bootstrap_servers}\nDagster UI {stack.url}\nStop it with `hudi-ingest down`.")
        for file in broken:
            say(file.in_one_line)


@app.command()
def down(as_json: AsJson = False) -> None:
    """Stop the embedded stack. Topics, tables and history stay in its home."""
    from hudi_ingest.local.stack import bring_down

    home = Home.from_environment()
    stopped = bring_down(home, progress)
    print_result(
        as_json, {"home": str(home.root), "stopped": stopped}, "stopped" if stopped else f"nothing runs in {home.root}"
    )


@app.command()
def engine(
    master: Annotated[str | None, MASTER] = None,
    memory: Annotated[str | None, MEMORY] = None,
    driver_host: Annotated[str | None, DRIVER_HOST] = None,
) -> None:
    """Run the Spark engine in the foreground. Ops on this machine attach to it.

    Options go over the HUDI_INGEST_ENGINE_… variables, and these over engine.yaml.
    """
    from hudi_ingest.pipeline.engine import load_engine_settings
    from hudi_ingest.spark.engine import run_engine

    home = Home.from_environment()
    options = {"master": master, "driver_memory": memory, "driver_host": driver_host}
    run_engine(home, load_engine_settings(home, options), progress)


@app.command("code-server")
def code_server(
    socket: Annotated[Path | None, typer.Option(help="A Unix socket to serve on instead of host and port.")] = None,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to serve on.")] = 4000,
) -> None:
    """Serve the pipelines to your own Dagster, in the foreground. A changed pipeline file is loaded by itself.

    In its workspace.yaml: `load_from: [{grpc_server: {host: localhost, port: 4000, location_name: hudi_ingest}}]`. It has no login:
    whoever can connect can start runs.
    """
    from hudi_ingest.local.processes import require_port_free, require_socket_free

    if socket is not None:
        require_socket_free(socket)
    else:
        require_port_free(port, "the code server", "--port", host)
    progress("starting the code server")
    from hudi_ingest.orchestration.code_server import serve_pipelines

    serve_pipelines(socket or (host, port))


def serving_text(url: str, token: object, read_token: object, metrics: str | None) -> str:
    """Show where the API is served, and where its tokens are. `metrics`: the path of the metrics, if they are served."""
    from hudi_ingest.rest.application import API

    lines = [
        f"REST     {url}{API}",
        f"OpenAPI  {url}/openapi.json, described in docs/rest.md",
        f"Page     {url}, with any user name and the read token as the password",
        *([f"Metrics  {url}{metrics}"] if metrics else []),
        f"Tokens   {token}, and {read_token} to read",
        "Stop it with Ctrl-C.",
    ]
    return "\n".join(lines)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8470,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that requests must bring. Default: HUDI_INGEST_TOKEN, or else rest-token in HUDI_INGEST_HOME, "
            "created if missing."
        ),
    ] = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a token that may only read. Default: HUDI_INGEST_READ_TOKEN, or else rest-read-token in HUDI_INGEST_HOME."
        ),
    ] = None,
    allow_reference: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HUDI_INGEST_REST_REFERENCES",
            metavar="PATTERN",
            help="Reference that pipeline files may have that come over REST: a variable (KAFKA_*), a file "
            "(file:/run/secrets/kafka/*) or a vault's (vault:kafka/*). Repeatable.",
        ),
    ] = None,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HUDI_INGEST_REST_CODE",
            metavar="PATTERN",
            help="Import path that pipeline files may have that come over REST (mypackage.*:*). Repeatable.",
        ),
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="PEM file of the certificate chain, for HTTPS.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve the REST API, and metrics for Prometheus at /metrics, in the foreground. Ctrl-C stops it once running requests have finished."""
    from hudi_ingest.pipeline.extras import require

    # What follows loads Dagster and Spark's client, which takes some seconds, and a minute on a busy machine.
    progress("starting the REST API")
    try:
        require("rest", "here")
    except ValueError as error:
        raise EnvironmentProblem(f"`hudi-ingest serve` {error}") from None
    from hudi_ingest.rest.access import Allowed, access, is_loopback, read_token_place, write_token_place
    from hudi_ingest.rest.application import Listening
    from hudi_ingest.rest.application import serve as serve_rest
    from hudi_ingest.rest.pages import METRICS, mounts

    home = Home.from_environment()
    given = access(home, token_file, read_token_file)
    token_from, read_token_from = write_token_place(home, token_file), read_token_place(home, read_token_file)

    def started(url: str) -> None:
        if as_json:
            print_json({"url": url, "token": str(token_from), "read_token": str(read_token_from)})
        else:
            say(serving_text(url, token_from, read_token_from, METRICS if METRICS in beside else None))
        if cert is None and not is_loopback(host):
            err.print("warning: without --cert and --key the token crosses the network in clear text", markup=False)
        out.file.flush()

    allowed = Allowed(tuple(allow_reference or ()), tuple(allow_code or ()))
    with mounts(home) as beside:
        serve_rest(home, Listening(host, port, cert, key), given, allowed, started=started, mounts=beside)
