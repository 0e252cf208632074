"""R9, P5: a sweep over files on a disk deletes only what no commit and no list of dead letters names. No JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.live_files import group_of
from hudi_ingest.hudi.files.orphans import Findings
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import HISTORY, dead_letters_folder
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Instants, Timeline, instant_time
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import LettersHead
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan, TransactionKind
from hudi_ingest.model.report import LetterFile
from hudi_ingest.operations.upkeep import sweep as sweep_module
from hudi_ingest.operations.upkeep.sweep import Sweep, SweepResult
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog, LetterEntry
from hudi_ingest_tests.support.archived_timeline import archive, commit_metadata
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast

ARCHIVED, DEAD, ACTIVE, LAST = (f"2026010{day}000000000" for day in (1, 2, 3, 4))
AGE = timedelta(hours=6)


def path_of(instant: str, offset: int = 0) -> str:
    return f"dt=1/{file_groups.file_id('orders', 0, offset, 'dt=1', instant)}_0-0-0_{instant}.parquet"


@dataclass
class Site:
    """A table: `committed` is its active timeline, `listed` what its metadata table has."""

    pipeline: Pipeline
    storage: LocalStorage
    ledger: Ledger
    committed: list[CommittedInstant] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    head: LettersHead | None = None

    def put(self, path: str, content: bytes = b"rows") -> str:
        self.storage.write_whole(path, content)
        then = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
        os.utime(Path(self.storage.base_path, path), (then, then))
        return path

    def commit(self, instant: str, paths: Sequence[str], replaced: Sequence[str] = (), sequence: int = 2) -> None:
        slices = ()
        accounting = Accounting(f"t{sequence}", sequence, TransactionKind.INGEST, slices).to_json()
        self.committed.append(
            CommittedInstant(
                instant,
                {self.pipeline.transaction_key: accounting},
                instant_time(instant),
                dict.fromkeys(paths, 4),
                replaced=frozenset(map(group_of, replaced)),
            )
        )

    def sweep(self, delete: bool = True) -> SweepResult:
        return Sweep(self.pipeline, self.ledger, lambda: frozenset(self.listed)).run(
            AGE, delete=delete, report=lambda line: None
        )

    def stored(self) -> set[str]:
        return {file.path for file in self.storage.data_files()}


@pytest.fixture
def site(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The commit of ACTIVE is the second, and the last one on the timeline."""
    pipeline = load(write, table__base_path=str(tmp_path / "table"))
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        site = Site(pipeline, LocalStorage(pipeline.table.base_path), ledger)
        site.commit(ACTIVE, [site.put(path_of(ACTIVE))])
        site.listed.add(path_of(ACTIVE))
        completed = lambda self: tuple(site.committed)  # noqa: E731
        monkeypatch.setattr(Timeline, "exists", lambda self: True)
        monkeypatch.setattr(Timeline, "properties", lambda self: {})
        monkeypatch.setattr(Timeline, "completed", completed)
        monkeypatch.setattr(
            Timeline, "instants", lambda self: Instants(frozenset(), frozenset(each.instant for each in site.committed))
        )
        state = lambda self: SimpleNamespace(checkpoint=SimpleNamespace(letters=site.head, offsets={}))  # noqa: E731
        monkeypatch.setattr(PipelineTable, "committed", state)
        monkeypatch.setattr(sweep_module, "require_own_table", lambda pipeline, properties: None)
        yield site


def test_r9_p5_a_file_of_an_archived_commit_that_the_table_does_not_list_is_kept_and_an_alarm(site: Site) -> None:
    kept, orphan = site.put(path_of(ARCHIVED)), site.put(path_of(DEAD))
    lost_attempt = site.put(path_of(ARCHIVED, 7))
    archive(site.storage, {ARCHIVED: commit_metadata([kept])})
    result = site.sweep()
    assert {each.file.path: each.reason for each in result.orphans} == {
        orphan: "its instant was never committed with it",
        lost_attempt: "its instant is committed without it, and archived",
    }
    assert [(each.file.path, each.reason) for each in result.kept] == [
        (kept, "an archived commit names it, although the table does not list it")
    ]
    assert result.unlisted == {kept: ARCHIVED}
    assert f"it does not list {kept}, which commit {ARCHIVED} published" in result.problem
    assert "`hudi-ingest recover orders --metadata-table`" in result.problem
    # What the commits prove they prove whatever the table lists.
    assert result.deleted and site.stored() == {kept, path_of(ACTIVE)}
    site.listed.add(kept)
    result = site.sweep()
    assert (result.problem, result.kept, result.orphans) == ("", (), ())


def test_r9_p5_a_file_of_an_active_commit_that_the_table_does_not_list_is_an_alarm(site: Site) -> None:
    site.listed.clear()
    result = site.sweep()
    assert result.unlisted == {path_of(ACTIVE): ACTIVE}
    assert [each.reason for each in result.kept] == [
        "a commit on the timeline names it, although the table does not list it"
    ]


def test_r9_what_later_commits_have_replaced_is_no_alarm(site: Site) -> None:
    """A cleaning took it off the list and could not delete it."""
    old, older = site.put(path_of(ARCHIVED)), site.put(path_of(ARCHIVED, 7))
    archive(site.storage, {ARCHIVED: commit_metadata([old, older]), DEAD: commit_metadata([], [older])})
    site.commit(LAST, [], [old], 3)
    result = site.sweep()
    assert (result.unlisted, result.orphans) == ({}, ())
    assert {each.file.path for each in result.kept} == {old, older}


def test_r9_a_file_that_was_cleaned_while_the_sweep_looked_is_no_alarm(site: Site) -> None:
    gone = path_of(ACTIVE)
    sweep = Sweep(site.pipeline, site.ledger, lambda: frozenset())

    def clean() -> frozenset[str]:
        site.storage.delete(gone)
        return frozenset()

    assert Sweep(site.pipeline, site.ledger, clean).run(AGE, delete=False, report=print).unlisted == {}
    assert sweep.run(AGE, delete=False, report=print).kept == ()


@pytest.mark.parametrize("how", ["gone", "cut off", "no history"])
def test_r9_p5_what_cannot_be_decided_stays_with_the_reason(site: Site, how: str) -> None:
    path = site.put(path_of(ARCHIVED))
    if how != "no history":
        archive(site.storage, {ARCHIVED: commit_metadata([path])[: None if how == "gone" else -60]})
    if how == "gone":
        (Path(site.storage.base_path) / HISTORY / "_version_").unlink()
    result = site.sweep()
    assert (result.orphans, result.deleted) == ((), True)
    [kept] = result.kept
    assert kept.reason.startswith("its instant may be committed and archived")
    assert site.stored() == {path, path_of(ACTIVE)}
    # Nothing was archived as long as the first transaction is on the timeline.
    if how == "no history":
        site.committed.clear()
        site.commit(ACTIVE, [path_of(ACTIVE)], sequence=1)
        assert [each.file.path for each in site.sweep().orphans] == [path]


def test_r9_p5_a_file_of_an_instant_that_the_ledger_has_as_committed_stays(site: Site) -> None:
    path = site.put(path_of(DEAD))
    archive(site.storage, {ARCHIVED: commit_metadata([])})
    plan = IngestPlan(site.pipeline.name, "t1", 1, (Slice("orders", 0, 0, 5),))
    deadline = datetime.now(timezone.utc) + AGE
    site.ledger.transactions.begin(
        plan, table=site.pipeline.table.base_path, owner=Owner.this_process(), deadline=deadline
    )
    site.ledger.transactions.record_instant("t1", DEAD)
    assert [each.file.path for each in site.sweep(delete=False).orphans] == [path], "it has not been committed"
    site.ledger.transactions.mark_committed_as_found("t1", DEAD)
    result = site.sweep()
    assert (result.orphans, [each.reason for each in result.kept]) == (
        (),
        [f"the ledger has its instant {DEAD} as committed, but no timeline has the commit, which may name it"],
    )
    assert path in site.stored()


def test_r9_p5_waiting_dead_letters_stay_and_those_of_a_lost_attempt_go(site: Site) -> None:
    archive(site.storage, {ARCHIVED: commit_metadata([])})
    folder = dead_letters_folder(ACTIVE)
    names = [file_groups.file_id("orders", 0, offset, folder, ACTIVE) for offset in (1, 2)]
    waiting, lost = (site.put(f"{folder}/{name}_0-0-0_{ACTIVE}.parquet") for name in names)
    entry = LetterEntry(ACTIVE, "t2", "ingest", files=(LetterFile(path=waiting, size_bytes=4, letters=1),))
    manifest = site.put(DeadLetterLog(site.storage)._append(entry, None))
    DeadLetterLog(site.storage)._append(entry, None)
    then = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    os.utime(Path(site.storage.base_path, manifest), (then, then))
    site.head = LettersHead(manifest, 1)
    result = site.sweep()
    assert [each.file.path for each in result.orphans] == [lost]
    assert site.storage.exists(waiting) and site.storage.exists(manifest) and not site.storage.exists(lost)


def test_r9_p5_a_file_that_changed_since_the_first_look_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody restores a file from a backup, with its old time, while the sweep looks."""
    archive(site.storage, {ARCHIVED: commit_metadata([])})
    restored, orphan = site.put(path_of(DEAD)), site.put(path_of(DEAD, 7))
    judge, looks = Sweep._judge, count()

    def restoring(*arguments: Any) -> Findings:
        findings = judge(*arguments)
        if next(looks) == 0:
            site.put(restored, b"rows of the backup")
        return findings

    monkeypatch.setattr(Sweep, "_judge", restoring)
    assert [each.file.path for each in site.sweep().orphans] == [orphan]
    assert site.stored() == {restored, path_of(ACTIVE)}


def test_a_history_that_cannot_be_read_once_a_file_is_missed_is_an_error(site: Site) -> None:
    site.listed.clear()
    archive(site.storage, {LAST: b"no Avro"})
    with pytest.raises(TableUnreachable, match=r"They say whether rows of dt=1/.* are hidden\. Nothing was deleted\."):
        site.sweep()
