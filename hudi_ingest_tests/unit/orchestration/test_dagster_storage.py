"""Dagster's databases are made once, and what a race of two makers left is mended."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest
from dagster import DagsterInstance

from hudi_ingest.orchestration.embedded.sqlite_storage import prepare

DATABASES = ("schedules/schedules.db", "history/runs.db", "history/runs/index.db")
BEFORE_THE_NEWEST = "5771160a95ad"
"""What a maker stamps that finds tables and no revision yet, because another maker is between the two."""


def revisions(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT version_num FROM alembic_version")]


def test_a_home_that_two_makers_damaged_is_mended_and_keeps_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(resources.files("hudi_ingest.local").joinpath("dagster.yaml").read_text())
    prepare(tmp_path)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        instance.run_storage.set_cursor_values({"kept": "yes"})
    newest = [revisions(tmp_path / name) for name in DATABASES]
    for name in DATABASES:
        with closing(sqlite3.connect(tmp_path / name)) as connection, connection:
            connection.execute("INSERT INTO alembic_version VALUES (?)", (BEFORE_THE_NEWEST,))

    prepare(tmp_path)

    assert [revisions(tmp_path / name) for name in DATABASES] == newest
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_storage.get_cursor_values({"kept"}) == {"kept": "yes"}
