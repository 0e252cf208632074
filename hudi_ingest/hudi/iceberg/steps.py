"""The snapshots that Iceberg lacks, by the table's timeline and the snapshots that it has: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from hudi_ingest.hudi.files.live_files import Group, group_of, is_log
from hudi_ingest.hudi.iceberg.waiting import changes_files
from hudi_ingest.hudi.timeline.timeline import CommittedInstant

MOST_SNAPSHOTS = 10
"""With more commits to publish, one snapshot brings them all."""


@dataclass(frozen=True, slots=True)
class Published:
    """A snapshot of ours: the table as it was after `instant`."""

    snapshot_id: int
    instant: str
    completed_at: datetime
    oldest: str
    """The oldest instant on the active timeline then: what completed later and is archived now is looked for from here on."""


@dataclass(frozen=True, slots=True)
class Change:
    """One snapshot to make: the table after `commit`."""

    commit: CommittedInstant
    added: tuple[str, ...] = ()
    replaced: frozenset[Group] = frozenset()
    """The file groups of which Iceberg must lose the files that it has."""
    instants: int = 1
    """How many commits it brings."""
    whole: bool = False
    """Whether it is made of all files that the table lists, because there is no snapshot to go on from."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do, in this order."""

    back_to: Published | None = None
    """The snapshot to go back to, because later ones were of commits that the table has lost."""
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return self.back_to is not None or bool(self.changes)


@dataclass(frozen=True, slots=True)
class Known:
    """The timeline as one look found it. `active`: every writer's completed instants, in any order."""

    active: tuple[CommittedInstant, ...]
    savepoints: frozenset[str] = frozenset()
    archived: tuple[CommittedInstant, ...] = field(default=())
    """What `archive_since` asked for."""

    @property
    def oldest(self) -> str:
        """The oldest active instant; archival keeps one with a savepoint when it removes later ones."""
        return min((commit.instant for commit in self.active if commit.instant not in self.savepoints), default="")


def archive_since(chain: Sequence[Published], known: Known) -> str | None:
    """Return from which instant on archived commits are needed to judge the snapshots; None if none are. `chain`: the current snapshot and
    its ancestors, newest first."""
    passed = [each.oldest for each in chain[:1] if each.oldest != known.oldest]
    return min([*_unsure(chain, known), *passed], default=None)


def _unsure(chain: Sequence[Published], known: Known) -> Set[str]:
    """The instants of snapshots that are not active and may have been taken back, rather than archived."""
    if not chain:
        return frozenset()
    active = {commit.instant for commit in known.active}
    # Whoever takes back an instant takes back all later ones first, so those that were archived when the newest was published stay.
    least = chain[0].oldest if chain[0].instant in active else ""
    return {each.instant for each in chain if each.instant not in active and each.instant >= least}


def next_steps(chain: Sequence[Published], known: Known, own_key: str, keyed: bool, at_once: bool = False) -> Steps:
    """Return what brings Iceberg up to the table, which has commits.

    `own_key`: the key in the metadata of the pipeline's own commits, which make new file groups only. `keyed`: whether rows are in log
    files, so that Iceberg gets base files as compactions make them. `at_once`: one snapshot for all commits.
    """
    there = {commit.instant: commit for commit in (*known.archived, *known.active)}
    gone = _unsure(chain, known) - there.keys()
    head = _last_before(chain, gone)
    if head is None:
        newest = max(known.active, key=_order)
        return Steps(changes=(Change(newest, instants=len(known.active), whole=True),))
    back_to = head if head != chain[0] else None
    later = [commit for commit in there.values() if _order(commit) > (head.completed_at, head.instant)]
    later = [commit for commit in sorted(later, key=_order) if changes_files(commit, own_key, keyed)]
    changes = [_change([commit], own_key, keyed) for commit in later]
    if len(later) > MOST_SNAPSHOTS or (at_once and later):
        changes = [_change(later, own_key, keyed)]
    return Steps(back_to, tuple(changes))


def _last_before(chain: Sequence[Published], gone: Set[str]) -> Published | None:
    """The newest snapshot that neither is of a lost commit nor comes after one."""
    found = None
    for each in reversed(chain):
        if each.instant in gone:
            break
        found = each
    return found


def _order(commit: CommittedInstant) -> tuple[datetime, str]:
    return commit.completed_at, commit.instant


def _change(commits: Sequence[CommittedInstant], own_key: str, keyed: bool) -> Change:
    added: dict[str, Group] = {}
    replaced: set[Group] = set()
    for commit in commits:
        own = own_key in commit.metadata
        # The base files that a keyed table's own commits make are empty.
        files = [] if own and keyed else [path for path in commit.files if not is_log(path)]
        groups = set(commit.replaced) | (set() if own else {group_of(path) for path in files})
        added = {path: group for path, group in added.items() if group not in groups}
        added |= {path: group_of(path) for path in files if group_of(path) not in commit.replaced}
        replaced |= groups
    return Change(commits[-1], tuple(added), frozenset(replaced), len(commits))


def expired(chain: Iterable[Published], known: Known, keep: int) -> tuple[int, ...]:
    """Return the ids of the snapshots after which `keep` or more commits have completed: cleaning may delete files that they name."""
    times = sorted((_order(commit) for commit in known.active), reverse=True)
    horizon = times[keep - 1] if len(times) >= keep else None
    return tuple(each.snapshot_id for each in chain if horizon and (each.completed_at, each.instant) < horizon)
