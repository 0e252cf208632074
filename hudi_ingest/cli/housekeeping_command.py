"""housekeeping: what the hourly job does, now."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson
from hudi_ingest.cli.printing import print_json, progress, say
from hudi_ingest.home.folder import Home


@app.command()
def housekeeping(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old Dagster runs, events and ticks of the pipelines, and rows of the ledger, as housekeeping.yaml says.

    The Dagster is the one at DAGSTER_HOME, or the embedded stack's.
    """
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.orchestration.housekeeping.standalone import housekeeping_of
    from hudi_ingest.pipeline.code_location import load_housekeeping_settings

    home = Home.from_environment()
    settings = load_housekeeping_settings(home)
    with Ledger.open(home.ledger_url) as ledger, housekeeping_of(home, settings, ledger) as kept:
        if kept.instance is None:
            progress(
                f"no Dagster: DAGSTER_HOME is not set, and there is none in {home.dagster}; only the ledger is looked at"
            )
        done = kept.run(datetime.now(timezone.utc), progress, dry_run=dry_run)
    if as_json:
        print_json(done.to_dict())
    else:
        say(done.sentence)
