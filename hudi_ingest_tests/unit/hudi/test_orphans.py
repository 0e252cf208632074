"""R9: the sweep's rule against random histories of a table: it never takes what is or may become live, and finds the rest."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import fixed_id, log_token
from hudi_ingest.hudi.files.orphans import (
    Archive,
    Findings,
    Orphan,
    judge_archived,
    judge_files,
    judge_uploads,
    undecided_instants,
)
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import EPOCH_PATH
from hudi_ingest.hudi.storage.storage import StoredFile, Upload
from hudi_ingest.hudi.timeline.timeline import Instants, Timeline
from hudi_ingest.ledger import Ledger
from hudi_ingest.operations.upkeep.sweep import DEFAULT_HOURS, Sweep, safe_age
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast

TOPIC = "orders"
AGE = timedelta(hours=6)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class Table:
    """A Hudi table in small: what is stored, what is listed, and the timeline. Each step takes a minute."""

    now: datetime = START
    stored: dict[str, datetime] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    pending: dict[str, set[str]] = field(default_factory=dict)
    completed: dict[str, set[str]] = field(default_factory=dict)
    archived: dict[str, set[str]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    replaced: dict[str, str] = field(default_factory=dict)
    """Each replaced file that is not cleaned yet, and the instant that replaced it."""
    undoing: tuple[str, str] | None = None
    """A pending rollback or restore: its own instant, and the one that it removes."""
    offsets: itertools.count[int] = field(default_factory=itertools.count)

    def instant(self) -> str:
        return f"{self.now:%Y%m%d%H%M%S}000"

    def write(self, instant: str) -> str:
        folder = f"dt={len(self.stored) % 2}"
        offset = next(self.offsets)
        path = f"{folder}/{file_groups.file_id(TOPIC, 0, offset, folder, instant)}_0-{offset % 3}-0_{instant}.parquet"
        self.stored[path] = self.now
        self.ours.add(path)
        return path

    def begin(self, n: int) -> None:
        self.pending[self.instant()] = set()

    def write_or_retry(self, n: int) -> None:
        if self.pending:
            instant = pick(sorted(self.pending), n)
            self.pending[instant].add(self.write(instant))

    def zombie(self, n: int) -> None:
        """An op that was paused goes on after its instant's end, and dies before it deletes its file."""
        if self.ended:
            self.write(pick(self.ended, n))

    def publish(self, n: int) -> None:
        """Some of the files, as if the others were of lost attempts. Odd `n`: whoever deletes those has died."""
        if self.pending:
            instant = pick(sorted(self.pending), n)
            written = sorted(self.pending.pop(instant))
            chosen = {path for index, path in enumerate(written) if (n >> index % 8) & 1 or index == 0}
            self.listed |= chosen
            self.completed[instant] = chosen
            self.ended.append(instant)
            if n % 2 == 0:
                for path in set(written) - chosen:
                    self.stored.pop(path, None)

    def undo(self, n: int) -> None:
        """Begins to roll back a pending instant, or to restore the table to before its last commit."""
        if self.undoing is None and self.pending:
            self.undoing = (self.instant(), pick(sorted(self.pending), n))
        elif self.undoing is None and self.completed and n % 2:
            self.undoing = (self.instant(), max(self.completed))

    def finish_undo(self, n: int) -> None:
        if self.undoing is not None:
            instant = self.undoing[1]
            self.undoing = None
            files = self.pending.pop(instant, None)
            if files is None:
                files = self.completed.pop(instant, set())
                self.replaced = {path: by for path, by in self.replaced.items() if by != instant}
            self.listed -= files
            self.ended.append(instant)
            for path in files:
                self.stored.pop(path, None)

    def foreign_update(self, n: int) -> None:
        """Another writer's copy on write: our file id under its own instant; the old file stays until it is cleaned."""
        live = sorted(self.listed - set(self.replaced))
        if live and self.undoing is None:
            old, instant = pick(live, n), self.instant()
            path = f"{old.split('_')[0]}_0-9-9_{instant}.parquet"
            self._replace({old}, path, instant)

    def cluster(self, n: int) -> None:
        live = sorted(self.listed - set(self.replaced))[: n % 4]
        if live and self.undoing is None:
            instant = self.instant()
            path = f"dt=0/{uuid.UUID(int=n, version=4)}-0_1-2-3_{instant}.parquet"
            self._replace(set(live), path, instant)

    def foreign_write(self, n: int) -> None:
        """Another writer's open instant, with a file of our id that is not listed yet."""
        if self.listed:
            instant = self.instant()
            path = f"{pick(sorted(self.listed), n).split('_')[0]}_0-8-8_{instant}.parquet"
            self.stored[path] = self.now
            self.pending[instant] = {path}

    def _replace(self, old: set[str], new: str, instant: str) -> None:
        self.stored[new] = self.now
        self.listed.add(new)
        self.completed[instant] = {new}
        self.ended.append(instant)
        self.replaced |= dict.fromkeys(old, instant)

    def clean(self, n: int) -> None:
        for path in sorted(self.replaced)[: n % 3]:
            del self.replaced[path]
            self.listed.discard(path)
            self.stored.pop(path, None)

    def archive(self, n: int) -> None:
        for instant in sorted(self.completed)[: n % 3]:
            if self.undoing is None or self.undoing[1] != instant:
                self.archived[instant] = self.completed.pop(instant)

    def wait(self, n: int) -> None:
        self.now += AGE

    def instants(self) -> Instants:
        undoing = frozenset([self.undoing[0]] if self.undoing else [])
        return Instants(frozenset(self.pending) | undoing, frozenset(self.completed), undoing)

    def storage(self) -> list[StoredFile]:
        return [StoredFile(path, 1, modified) for path, modified in self.stored.items()]


STEPS: dict[str, Callable[[Table, int], None]] = {
    name: getattr(Table, name)
    for name in (
        "write_or_retry",
        "publish",
        "begin",
        "zombie",
        "wait",
        "undo",
        "finish_undo",
        "archive",
        "foreign_update",
        "foreign_write",
        "cluster",
        "clean",
    )
}
OFTEN = ["write_or_retry"] * 4 + ["publish"] * 3 + ["begin", "zombie", "wait"] * 2
HISTORIES = st.lists(st.tuples(st.sampled_from([*OFTEN, *STEPS]), st.integers(0, 255)), min_size=20, max_size=60).map(
    lambda steps: [("begin", 0), ("write_or_retry", 0), *steps]
)


def pick(values: list[str], n: int) -> str:
    return values[n % len(values)]


def sweep(stored: list[StoredFile], instants: Instants, listed: set[str], now: datetime) -> list[Orphan]:
    return judge_files(stored, instants, listed, topics=["other", TOPIC], older_than=now - AGE).orphans


@given(HISTORIES, st.lists(st.integers(5, 60), min_size=3, max_size=3).map(sorted))
def test_r9_nothing_that_is_or_may_become_live_is_an_orphan(history: list[tuple[str, int]], cuts: list[int]) -> None:
    """The three readings are made at any three moments of the history, which goes on between and after them."""
    table = Table()
    stored: list[StoredFile] = []
    instants, listed, orphans = Instants(frozenset(), frozenset()), set[str](), set[str]()
    for number, (step, n) in enumerate([*history, ("wait", 0)]):
        last = number == len(history)
        if number == cuts[0] or (last and cuts[0] > number):
            stored = table.storage()
            read_at = table.now
        if number == cuts[1] or (last and cuts[1] > number):
            instants = table.instants()
        if number == cuts[2] or (last and cuts[2] > number):
            listed = set(table.listed)
            modified = {each.path: each.modified for each in stored}
            orphans = {each.file.path for each in sweep(stored, instants, listed, read_at)}
            assert orphans <= table.ours
            assert all(read_at - modified[path] > AGE for path in orphans)
            event(f"orphans: {min(len(orphans), 3)}")
        table.now += timedelta(minutes=1)
        STEPS[step](table, n)
        assert not orphans & table.listed
        assert not orphans & set().union(*table.pending.values())


def settled(history: list[tuple[str, int]]) -> Table:
    """The table after the history, with nothing pending."""
    table = Table()
    for step, n in history:
        table.now += timedelta(minutes=1)
        STEPS[step](table, n)
    table.finish_undo(0)
    while table.pending:
        table.undo(0)
        table.finish_undo(0)
    return table


@given(HISTORIES)
def test_r9_all_orphans_are_found_once_they_are_old_and_nothing_is_pending(history: list[tuple[str, int]]) -> None:
    table = settled(history)
    table.completed[table.instant()] = set()
    table.now += AGE + timedelta(minutes=1)
    found = sweep(table.storage(), table.instants(), table.listed, table.now)
    assert {each.file.path for each in found} == (table.ours & table.stored.keys()) - table.listed
    for each in found:
        assert ("is committed without it" in each.reason) == (each.instant in table.completed)
        assert each.origin is not None


@given(HISTORIES, st.sampled_from(["", "all", "half"]))
def test_r9_p5_a_list_that_has_lost_files_makes_none_of_a_commit_an_orphan(
    history: list[tuple[str, int]], lost: str
) -> None:
    """The metadata table is a second record of what commits have, and may be damaged; what no commit names is found all the same."""
    table = settled(history)
    table.now += AGE + timedelta(minutes=1)
    table.completed[table.instant()] = set()
    committed = set().union(*table.completed.values(), *table.archived.values())
    listed = {path for number, path in enumerate(sorted(table.listed)) if not lost or (lost == "half" and number % 2)}
    named = set().union(*table.completed.values())
    found = judge_files(
        table.storage(), table.instants(), listed, named=named, topics=[TOPIC], older_than=table.now - AGE
    )
    wanted = undecided_instants(found, table.completed.keys())
    archive = Archive({each: files for each, files in table.archived.items() if each in wanted})
    judged = judge_archived(found, archive)
    assert {each.file.path for each in judged.orphans} == (table.ours & table.stored.keys()) - committed - listed
    by_path = {each.file.path: each for each in judged.kept}
    for path in (committed & table.stored.keys()) - listed:
        assert by_path[path].is_named and "commit" in by_path[path].reason and "names it" in by_path[path].reason
    event(f"kept: {sum(each.is_named for each in judged.kept)}")
    # Where the archived commits cannot be read, nothing is known of what is older than the timeline.
    doubtful = judge_archived(found, Archive({}, begin="9", doubt="unknown"))
    assert all(each.instant in table.completed for each in doubtful.orphans)
    assert {each.file.path for each in doubtful.kept} >= by_path.keys()
    receipts = judge_archived(found, Archive({}, frozenset(wanted)))
    assert all(each.instant in table.completed for each in receipts.orphans)
    assert all(each.reason for each in [*receipts.kept, *doubtful.kept])


def test_r9_nothing_is_an_orphan_while_a_rollback_or_restore_is_pending() -> None:
    table = Table()
    table.ended.append(table.instant())
    table.zombie(0)
    table.now += 2 * AGE
    table.completed[table.instant()] = set()
    assert len(sweep(table.storage(), table.instants(), set(), table.now)) == 1
    table.undoing = (table.instant(), "")
    assert sweep(table.storage(), table.instants(), set(), table.now) == []


OLD = "20260101000000000"


@pytest.mark.parametrize(
    ("path", "swept"),
    [
        (f".hoodie/.temp/{OLD}", True),
        (f".hoodie/.heartbeat/{OLD}", True),
        (f".hoodie/.heartbeat/.{OLD}.crc", True),
        (f".hoodie/metadata/.hoodie/.heartbeat/{OLD}", False),
        (f".hoodie/timeline/{OLD}", False),
        (f".hoodie/timeline/{OLD}_{OLD}.commit.{uuid.UUID(int=7, version=4)}", True),
        (f".hoodie/timeline/{OLD}.compaction.requested.{uuid.UUID(int=7, version=4)}", True),
        (f".hoodie/metadata/.hoodie/timeline/{OLD}_{OLD}.deltacommit.{uuid.UUID(int=7, version=4)}", True),
        (f".hoodie/timeline/{OLD}_{OLD}.commit", False),
        (f".hoodie/timeline/{OLD}.compaction.requested", False),
        (f".hoodie/timeline/history/{OLD}.{uuid.UUID(int=7, version=4)}", False),
        (".hoodie/.heartbeat/99999999999999999", False),
        (f"dt=1/{file_groups.file_id(TOPIC, 1, 5, 'dt=1', OLD)}_1-0-0_{OLD}.parquet", True),
        (f"{file_groups.file_id(TOPIC, 1, 5, '', OLD)}_1-0-0_{OLD}.parquet", True),
        # Moved by hand, of another instant, another topic, another suffix, another writer: not ours to delete.
        (f"dt=2/{file_groups.file_id(TOPIC, 1, 5, 'dt=1', OLD)}_1-0-0_{OLD}.parquet", False),
        (f"dt=1/{file_groups.file_id(TOPIC, 1, 5, 'dt=1', '20250101000000000')}_1-0-0_{OLD}.parquet", False),
        (f"dt=1/{file_groups.file_id('unknown', 1, 5, 'dt=1', OLD)}_1-0-0_{OLD}.parquet", False),
        (f"dt=1/{file_groups.file_id(TOPIC, 1, 5, 'dt=1', OLD)}_1-0-0_{OLD}.parquet.bak", False),
        (f"dt=1/{uuid.UUID(int=7, version=4)}-0_1-0-0_{OLD}.parquet", False),
        (f"dt=1/.{fixed_id(3)}_{OLD}.log.2_1-0-7123456789", True),
        (f".{fixed_id(3)}_{OLD}.log.1_1-0-0", True),
        (f"dt=1/{fixed_id(3)}_0-0-0_{OLD}.parquet", True),
        # Of a compaction, and of a file group that another writer made.
        (f"dt=1/{fixed_id(3)}_0-12-33_{OLD}.parquet", False),
        (f"dt=1/.{uuid.UUID(int=7, version=4)}-0_{OLD}.log.1_1-0-0", False),
        # Ours, in such a file group, or in one that replaced another; a topic of another pipeline.
        (f"dt=1/.00000003-0000-4000-8000-{7:012d}-0_{OLD}.log.1_{log_token(TOPIC, '1-0-7', 25)}", True),
        (f".00000003-9f86-d081-884c-7d659a2feaa0-0_{OLD}.log.1_{log_token(TOPIC, '1-0-7', 25)}", True),
        (f"dt=1/.00000003-0000-4000-8000-{7:012d}-0_{OLD}.log.1_{log_token('unknown', '1-0-7', 25)}", False),
        ("dt=1/.hoodie_partition_metadata", False),
        ("notes.txt", False),
    ],
)
def test_r9_only_names_of_our_own_making_are_swept(path: str, swept: bool) -> None:
    now = START + 2 * AGE
    file = StoredFile(path, 1, START)
    gone = Instants(frozenset(), frozenset(["20260102000000000"]))
    assert bool(sweep([file], gone, set(), now)) is swept
    assert sweep([file], gone, {path}, now) == []
    assert sweep([file], replace(gone, pending=frozenset([OLD])), set(), now) == []
    assert sweep([StoredFile(path, 1, now - AGE + timedelta(seconds=1))], gone, set(), now) == []
    assert sweep([file], Instants(frozenset(), frozenset()), set(), now) == [], "no timeline, no orphans"


@pytest.mark.parametrize(
    ("path", "swept"),
    [
        (f".hoodie/hudi_ingest/epoch.{'0a' * 16}.partial", True),
        (f".hoodie/hudi_ingest/dead_letters/copied.{'0a' * 16}.partial", True),
        (f".hoodie/hoodie.properties.{'0a' * 16}.partial", True),
        (".hoodie/hudi_ingest/epoch", False),
        (".hoodie/hudi_ingest/dead_letters/copied", False),
        (".hoodie/hoodie.properties.backup", False),
        (f"dt=1/epoch.{'0a' * 16}.partial", False),
        (f"dt=1/hour=2/.{'0a' * 16}.partial", True),
        (f".{'0a' * 16}.partial", True),
        (f"dt=1/.{'0a' * 15}.partial", False),
        (f".hoodie/timeline/history/manifest_3.{uuid.UUID(int=7, version=4)}", True),
        (f".hoodie/metadata/.hoodie/timeline/history/_version_.{uuid.UUID(int=7, version=4)}", True),
        (".hoodie/timeline/history/manifest_3", False),
    ],
)
def test_r9_what_was_never_finished_is_swept_once_it_is_old(path: str, swept: bool) -> None:
    now = START + 2 * AGE
    gone = Instants(frozenset([OLD]), frozenset(["20260102000000000"]))
    assert bool(sweep([StoredFile(path, 1, START)], gone, set(), now)) is swept
    assert sweep([StoredFile(path, 1, now - AGE + timedelta(seconds=1))], gone, set(), now) == []
    assert sweep([StoredFile(path, 1, START)], replace(gone, undoing=frozenset([OLD])), set(), now) == []


@pytest.mark.parametrize(
    ("instant", "topic", "age", "swept"),
    [
        (OLD, TOPIC, AGE, True),
        ("20260102000000000", TOPIC, AGE, True),
        ("20260103000000000", TOPIC, AGE, False),
        ("20260104000000000", TOPIC, AGE, False),
        (OLD, "others", AGE, False),
        (OLD, TOPIC, AGE - timedelta(seconds=1), False),
    ],
    ids=["rolled back", "committed", "pending", "not on the timeline yet", "another writer's", "young"],
)
def test_r9_uploads_of_ended_instants_are_swept(instant: str, topic: str, age: timedelta, swept: bool) -> None:
    now = START + 2 * AGE
    instants = Instants(frozenset(["20260103000000000"]), frozenset(["20260102000000000"]))
    path = f"dt=1/{file_groups.file_id(topic, 0, 7, 'dt=1', instant)}_0-0-0_{instant}.parquet"
    uploads = [Upload(path, "u1", now - age - timedelta(seconds=0.5)), Upload("dt=1/other.parquet", "u2", START)]
    findings = judge_uploads(uploads, instants, topics=[TOPIC], older_than=now - AGE)
    assert [orphan.upload for orphan in findings.orphans] == uploads[:1] * swept
    assert len(findings.kept) == 2 - swept
    assert all(kept.reason.startswith("an open upload: ") for kept in findings.kept)
    undoing = replace(instants, undoing=frozenset([OLD]))
    assert judge_uploads(uploads, undoing, topics=[TOPIC], older_than=now) == Findings([], [])


def test_r9_each_file_that_is_kept_has_a_reason() -> None:
    now, newest, opened = START + 2 * AGE, "20260102000000000", "20260101120000000"
    instants = Instants(frozenset([opened]), frozenset([newest]))
    of = {
        instant: f"{file_groups.file_id(TOPIC, 1, 5, 'dt=1', instant)}_1-0-0_{instant}.parquet"
        for instant in (OLD, opened)
    }
    later = "20260109000000000"
    reasons = {
        f"dt=1/{of[opened]}": f"its instant {opened} is still open",
        f".hoodie/.temp/{later}": f"its instant {later} is newer than all on the timeline",
        f"dt=2/{of[OLD]}": "no proof that it is this pipeline's",
        "dt=1/.gone.parquet.crc": "not a name that this pipeline gives",
        "dt=1/notes.txt": "not a name that this pipeline gives",
        "dt=1/named.parquet": "a commit on the timeline names it",
    }
    unlisted = [StoredFile(path, 1, START) for path in reasons]
    young = StoredFile(f"dt=1/{of[OLD]}", 1, now - AGE + timedelta(seconds=1))
    of_table = [
        "dt=1/.hoodie_partition_metadata",
        "dt=1/..hoodie_partition_metadata.crc",
        "dt=1/live.parquet",
        "dt=1/.live.parquet.crc",
        EPOCH_PATH,
    ]
    findings = judge_files(
        [*unlisted, young, *(StoredFile(path, 1, START) for path in of_table)],
        instants,
        {"dt=1/live.parquet"},
        named={"dt=1/named.parquet", "dt=1/live.parquet"},
        topics=[TOPIC],
        older_than=now - AGE,
    )
    assert findings.orphans == []
    found = {kept.file.path: kept.reason for kept in findings.kept}
    assert found.keys() == {*reasons, young.path}
    assert all(found[path].startswith(reason) for path, reason in reasons.items()), found
    assert found[young.path] == f"too young: it changed after {now - AGE:%Y-%m-%d %H:%M:%S} UTC"


def test_r9_a_sweep_looks_where_unfinished_files_are(write: Write, tmp_path: Path) -> None:
    pipeline = load(write, table__base_path=str(tmp_path / "table"))
    storage = LocalStorage(pipeline.table.base_path)
    names = ("hudi_ingest/epoch", "hudi_ingest/dead_letters/copied", "hoodie.properties")
    partials = [f".hoodie/{name}.{'0a' * 16}.partial" for name in names]
    partials.append(f".hoodie/timeline/history/manifest_3.{uuid.UUID(int=7, version=4)}")
    for path in partials:
        storage.write(path, b"")
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        stored = Sweep(pipeline, ledger, frozenset)._stored()
    assert {each.path for each in stored} == {*partials}


def test_r9_the_safe_age_is_never_below_twice_the_timeout(write: Write) -> None:
    short: Pipeline = load(write, transaction__timeout_seconds=1800)
    assert safe_age(short, None) == timedelta(hours=DEFAULT_HOURS)
    assert safe_age(short, 1) == timedelta(hours=1)
    for wrong in (0.99, 0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="twice the timeout_seconds of pipeline orders"):
            safe_age(short, wrong)
    assert safe_age(load(write, transaction__timeout_seconds=5 * 3600), None) == timedelta(hours=10)


@pytest.mark.parametrize("action", ["rollback", "restore"])
def test_r9_a_pending_rollback_is_seen_on_the_timeline(action: str, tmp_path: Path) -> None:
    folder = tmp_path / ".hoodie" / "timeline"
    folder.mkdir(parents=True)
    (folder / f"20261122090000000.{action}.inflight").touch()
    assert Timeline(str(tmp_path)).instants().undoing == {"20261122090000000"}
    (folder / f"20261122090000000_20261122090000001.{action}").touch()
    assert not Timeline(str(tmp_path)).instants().undoing
