"""Migrate a ledger's tables to the newest revision that this hudi-ingest knows.

To add a revision, write `versions/<number>_<what>.py` and set `HEAD` to its number; a test compares the two.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.ledger.tables import REVISION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0008"
"""The newest revision in `versions`."""

_ONE_AT_A_TIME = threading.Lock()
"""Alembic hands a migration its connection by a variable of the process, so threads that migrate two ledgers take turns."""


def config(connection: sa.Connection | None = None) -> Config:
    """Build Alembic's settings without a file; commands that use a database need `connection`."""
    # Imported here because Alembic is slow to import, and most processes find their ledger up to date.
    from alembic.config import Config

    settings = Config()
    # Config interpolates % in its values.
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings


def revision(connection: sa.Connection) -> str | None:
    """Return the ledger's revision, None when it has no tables yet."""
    if not sa.inspect(connection).has_table(REVISION_TABLE):
        return None
    table = sa.table(REVISION_TABLE, sa.column("version_num", sa.Text))
    return connection.execute(sa.select(table.c.version_num)).scalar_one_or_none()


def upgrade(connection: sa.Connection, where: str) -> None:
    """Migrate inside the caller's transaction; the caller keeps other processes out.

    `where` names the ledger in errors. Raises EnvironmentProblem when this version does not know the ledger's revision,
    because a newer hudi-ingest migrated it, or one from before the first release made it.
    """
    from alembic import command
    from alembic.script import ScriptDirectory

    settings = config(connection)
    current = revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
    if current is not None and current < min(known):
        raise EnvironmentProblem(
            f"{where}: the ledger is at revision {current}, and this hudi-ingest upgrades ledgers from revision {min(known)} "
            "on. The tables hold everything that ingestion needs: rename the ledger's file, or choose an empty database, then "
            "run `hudi-ingest recover PIPELINE` for each pipeline."
        )
    if current is not None and current not in known:
        raise EnvironmentProblem(
            f"{where}: the ledger is at revision {current}, but this hudi-ingest only knows revisions up to {HEAD}: a "
            "newer hudi-ingest has used this ledger. Upgrade hudi-ingest here, or point this installation at another ledger."
        )
    with _ONE_AT_A_TIME:
        command.upgrade(settings, "head")
