"""Creates Dagster's SQLite databases, or migrates them to the installed version, before any process opens them.

Two processes that create one of them at the same time may leave it with two revisions, an old one and the newest, and then no
Dagster process can open it. The older revision is kept: the migrations from there check what already exists, so they do no harm
where nothing is left to migrate.

`python -m hudi_ingest.orchestration.embedded.dagster_storage FOLDER`, to be run while no Dagster process uses that $DAGSTER_HOME.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from alembic.script import ScriptDirectory
from dagster import DagsterInstance
from dagster._core.storage import sqlite_storage
from dagster._core.storage.sql import get_alembic_config

_DATABASES = ("schedules/schedules.db", "history/runs.db", "history/runs/index.db")


def prepare(folder: Path) -> None:
    """Repair, create and migrate the databases. Raises what Dagster raises if that fails."""
    os.environ["DAGSTER_HOME"] = str(folder.absolute())
    for name in _DATABASES:
        if (folder / name).exists():
            _keep_one_revision(folder / name)
    with DagsterInstance.from_config(str(folder)) as instance:
        instance.upgrade()


def _keep_one_revision(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
        revisions = (
            {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")} if has_table else set()
        )
        if len(revisions) > 1:
            newest_first = [script.revision for script in _scripts().walk_revisions()]
            oldest = max(revisions, key=newest_first.index)
            connection.execute("DELETE FROM alembic_version WHERE version_num != ?", (oldest,))


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(get_alembic_config(sqlite_storage.__file__))


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
