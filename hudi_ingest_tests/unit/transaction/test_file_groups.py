"""Which commits of a keyed table have to list its file groups."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hudi_ingest.exceptions import CommitRefused
from hudi_ingest.hudi.files.file_groups import FileGroup, fixed_id
from hudi_ingest.hudi.options import OTHER_WRITERS_PROPERTY
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.report import LogFile
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.transaction.commit_contents import extended_groups, file_ids_at_begin
from hudi_ingest.transaction.ports import TransactionPorts

KEY = "transaction"
OURS = {KEY: "{}"}
FIXED = fixed_id(1)


class Listed(Exception):
    """The commit asks Hudi for the file groups."""


def commit(path: str, metadata: dict[str, str] = OURS, operation: str = "UPSERT") -> CommittedInstant:
    return CommittedInstant("1", metadata, datetime(2026, 1, 1, tzinfo=timezone.utc), {path: 1}, 1, operation)


def log_file(file_id: str = FIXED, folder: str = "dt=1") -> LogFile:
    return LogFile(folder, file_id, f"{folder}/.{file_id}_2.log.1_0-0-0", 1, 0, 1, 0, 0)


def extend(*commits: CommittedInstant, file: LogFile | None = None, cdc: bool = False, properties: Any = ()) -> Any:
    def listed(*_: object, **__: object) -> None:
        raise Listed

    pipeline = SimpleNamespace(table=SimpleNamespace(cdc=cdc), transaction_key=KEY)
    timeline = SimpleNamespace(properties=lambda: properties, storage=None)
    ports = SimpleNamespace(pipeline=pipeline, timeline=timeline, instants=SimpleNamespace(file_groups=listed))
    transaction = SimpleNamespace(plan=SimpleNamespace(transaction_id="t"))
    return extended_groups(
        cast(TransactionPorts, ports), cast(OpenTransaction, transaction), [file or log_file()], commits
    )


LOGGED = commit(f"dt=1/.{FIXED}_1.log.1_0-0-0")


@pytest.mark.parametrize(
    "known", [LOGGED, commit(f"dt=1/{FIXED}_0-1-1_1.parquet"), commit(f"dt=1/{FIXED}_0-1-1_1.parquet", {}, "COMPACT")]
)
def test_groups_that_the_timeline_shows_are_not_listed(known: CommittedInstant) -> None:
    extended = extend(known)
    assert not extended.first_files
    assert not extended.before


OTHERS = commit("dt=2/x_0-1-1_1.parquet", {}, "DELETE_PARTITION")


@pytest.mark.parametrize(
    ("commits", "more"),
    [
        ([], {}),
        ([commit(f"dt=2/.{FIXED}_1.log.1_0-0-0")], {}),
        ([LOGGED], {"file": log_file(fixed_id(0))}),
        ([LOGGED, OTHERS], {}),
        ([LOGGED], {"properties": {OTHER_WRITERS_PROPERTY: "true"}}),
        ([LOGGED], {"cdc": True}),
    ],
    ids=["no commits", "new partition", "new bucket", "other writers", "archived other writers", "cdc"],
)
def test_groups_are_listed_when_one_may_be_new_or_of_another_writer(
    commits: list[CommittedInstant], more: dict[str, Any]
) -> None:
    with pytest.raises(Listed):
        extend(*commits, **more)


def test_an_id_that_only_another_writer_can_have_made_is_refused() -> None:
    foreign = "00000001-aaaa-bbbb-cccc-000000000000-0"
    with pytest.raises(CommitRefused, match="another writer replaced or made"):
        extend(commit(f"dt=1/.{foreign}_1.log.1_0-0-0"), file=log_file(foreign))


def test_a_group_that_another_writer_replaced_since_the_begin_is_refused() -> None:
    """Its log file would be in a file group that no reader reads."""
    pipeline = SimpleNamespace(
        table=SimpleNamespace(cdc=False, buckets=4, base_path="/data/orders"), transaction_key=KEY
    )
    replaced = FileGroup("dt=1", FIXED, live=False)
    timeline = SimpleNamespace(properties=dict, storage=None)
    ports = SimpleNamespace(
        pipeline=pipeline, timeline=timeline, instants=SimpleNamespace(file_groups=lambda *_, **__: (replaced,))
    )
    transaction = SimpleNamespace(plan=SimpleNamespace(transaction_id="t"))
    with pytest.raises(CommitRefused, match="another writer replaced or made"):
        extended_groups(cast(TransactionPorts, ports), cast(OpenTransaction, transaction), [log_file()], [OTHERS])


def test_that_another_writer_was_here_is_remembered_beyond_its_archived_commit() -> None:
    written: dict[str, str] = {}

    def begin(*commits: CommittedInstant) -> Any:
        table = SimpleNamespace(is_keyed=True, buckets=4, base_path="/data/orders")
        replaced = FileGroup("dt=1", FIXED, live=False)
        ports = SimpleNamespace(
            pipeline=SimpleNamespace(table=table, transaction_key=KEY),
            timeline=SimpleNamespace(properties=lambda: written),
            instants=SimpleNamespace(file_groups=lambda *_: (replaced,), update_properties=written.update),
            kept=nullcontext,
        )
        return file_ids_at_begin(cast(TransactionPorts, ports), commits)

    assert begin(LOGGED) == {}
    assert not written
    found = begin(LOGGED, OTHERS)
    assert found
    assert begin(LOGGED) == found
