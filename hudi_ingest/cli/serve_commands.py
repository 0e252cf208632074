"""serve: the REST API, and what is beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson
from hudi_ingest.cli.printing import err, out, print_json, progress, say
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8470,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that requests must bring. Default: HUDI_INGEST_TOKEN, or else rest-token in HUDI_INGEST_HOME, "
            "which is made if it is not there."
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
        require("rest")
    except ValueError as error:
        raise EnvironmentProblem(f"`hudi-ingest serve` {error}") from None
    from hudi_ingest.rest.access import access, is_loopback, write_token_place
    from hudi_ingest.rest.allowed import Allowed
    from hudi_ingest.rest.application import API
    from hudi_ingest.rest.mounts import METRICS, mounts
    from hudi_ingest.rest.server import Listening
    from hudi_ingest.rest.server import serve as serve_rest

    home = Home.from_environment()
    given = access(home, token_file, read_token_file)
    token_from = write_token_place(home, token_file)

    def started(url: str) -> None:
        if as_json:
            print_json({"url": url, "token": str(token_from)})
        else:
            say(f"REST     {url}{API}\nOpenAPI  {url}/openapi.json, described in docs/rest.md")
            metrics = f"Metrics  {url}{METRICS}\n" if METRICS in beside else ""
            say(
                f"Page     {url}, with any user name and a token as the password\n{metrics}Token    {token_from}\nStop it with Ctrl-C."
            )
        if cert is None and not is_loopback(host):
            err.print("warning: without --cert and --key the token crosses the network in clear text", markup=False)
        out.file.flush()

    allowed = Allowed(tuple(allow_reference or ()), tuple(allow_code or ()))
    with mounts(home) as beside:
        serve_rest(home, Listening(host, port, cert, key), given, allowed, started=started, mounts=beside)
