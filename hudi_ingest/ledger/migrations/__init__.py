"""Brings a ledger's tables to the revision that this hudi-ingest knows.

A new revision: write `versions/<number>_<what>.py` and set `HEAD` to its number; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.ledger.tables import REVISION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"
"""The newest revision in `versions`."""


def config(connection: sa.Connection | None = None) -> Config:
    """Alembic's settings, without a file; commands that touch a database need `connection`."""
    # Alembic takes a while to import, and most processes find their ledger up to date.
    from alembic.config import Config

    made = Config()
    # Config reads its values with %-interpolation.
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def revision(connection: sa.Connection) -> str | None:
    """The ledger's revision; None when it has no tables yet."""
    if not sa.inspect(connection).has_table(REVISION_TABLE):
        return None
    table = sa.table(REVISION_TABLE, sa.column("version_num", sa.Text))
    return connection.execute(sa.select(table.c.version_num)).scalar_one_or_none()


def upgrade(connection: sa.Connection, where: str) -> None:
    """Migrates inside the caller's transaction; the caller keeps other processes out.

    `where` names the ledger in errors. Raises EnvironmentProblem when the ledger's revision is not known here: a newer
    hudi-ingest migrated it.
    """
    from alembic import command
    from alembic.script import ScriptDirectory

    settings = config(connection)
    found = revision(connection)
    known = {each.revision for each in ScriptDirectory.from_config(settings).walk_revisions()}
    if found is not None and found not in known:
        raise EnvironmentProblem(
            f"{where}: the ledger has revision {found}, and this hudi-ingest knows revisions up to {HEAD} only: a newer "
            "hudi-ingest has used this ledger. Upgrade hudi-ingest here, or point this installation to another ledger."
        )
    command.upgrade(settings, "head")
