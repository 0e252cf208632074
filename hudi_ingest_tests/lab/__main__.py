"""`python -m hudi_ingest_tests.lab COMMAND`: the demos of `make cluster-demo`, `cdc-demo` and `mirror-demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from hudi_ingest import cli
from hudi_ingest.cli.app import AsJson, print_json, progress, say
from hudi_ingest.home.folder import Home
from hudi_ingest_tests.lab.cdc_demo import CdcDemoSettings, run_cdc_demo
from hudi_ingest_tests.lab.cluster_demo import run_cluster_demo

lab = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@lab.command("cluster-demo")
def cluster_demo(
    records: Annotated[int, typer.Option(min=10_000, help="Number of orders.")] = 1_000_000, as_json: AsJson = False
) -> None:
    """Ingest orders to S3 on a Spark cluster with a stock Dagster, kill a worker along the way, verify the table and stop everything."""
    home = Home.from_environment().below("cluster-demo")
    result = run_cluster_demo(home, records, progress)
    if as_json:
        print_json(result.to_dict())
    else:
        for line in result.in_words():
            say(line)
        say(f"logs, pipeline file and table stay in {home.root} until the next one")
    if result.failures:
        raise typer.Exit(1)


@lab.command("cdc-demo")
def cdc_demo(
    seconds: Annotated[int, typer.Option(min=1, help="How long the PostgreSQL tables change.")] = 120,
    tables: Annotated[
        int, typer.Option(min=1, help="Number of tables: one of customers, all others with random columns.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 19,
    as_json: AsJson = False,
) -> None:
    """Replicate changing PostgreSQL tables through Debezium and Kafka, kill parts along the way, compare all tables and stop everything."""
    home = Home.from_environment().below("cdc-demo")
    result = run_cdc_demo(home, CdcDemoSettings(seconds, tables, seed), progress)
    if as_json:
        print_json(result.to_dict())
    else:
        for line in result.in_words():
            say(line)
    if not result.equal:
        raise typer.Exit(1)


if __name__ == "__main__":
    cli.main(lab)
