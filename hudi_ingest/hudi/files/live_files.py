"""The files that readers of a table must see, by its commits alone: pure. A table that does not list one of them hides rows.

What a table lists comes from its metadata table, which is a second record of the same facts: it may lose what a commit has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from hudi_ingest.exceptions.problems import listed
from hudi_ingest.hudi.storage.paths import PARTITION_METADATA
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, instant_time

SHOWN = 5
"""Files and instants in one message."""
Group = tuple[str, str]
"""Partition path and file id."""


def live_files(commits: Iterable[CommittedInstant]) -> dict[str, str]:
    """Return the paths of the files that the commits have published and that none of them has replaced or superseded, with their
    instants. `commits`: completed instants of every writer without a gap, in any order."""
    commits = tuple(commits)
    # Hudi hides the id of a replaced file group for ever.
    replaced = {group for commit in commits for group in commit.replaced}
    bases: dict[Group, datetime] = {}
    for commit in commits:
        began = instant_time(commit.instant)
        for path in commit.files:
            if not is_log(path):
                bases[group_of(path)] = max(began, bases.get(group_of(path), began))
    return {
        path: commit.instant
        for commit in commits
        for path in commit.files
        if group_of(path) not in replaced and _is_newest(path, commit, bases)
    }


def _is_newest(path: str, commit: CommittedInstant, bases: Mapping[Group, datetime]) -> bool:
    base = bases.get(group_of(path))
    if is_log(path):
        # Hudi's rule: a log file belongs to the base file with the newest instant up to the log's completion.
        return base is None or base <= commit.completed_at
    return base == instant_time(commit.instant)


def unlisted_files(commits: Iterable[CommittedInstant], seen: Iterable[str]) -> dict[str, str]:
    """Return the live files that are not among those `seen`, with their instants. `seen`: what the table lists as live.

    A log file counts only if its file group has a base file in the commits or in the list: hudi-rs lists no group without one.
    """
    commits, seen = tuple(commits), frozenset(seen)
    based = {group_of(path) for path in seen}
    based |= {group_of(path) for commit in commits for path in commit.files if not is_log(path)}
    return {
        path: instant
        for path, instant in sorted(live_files(commits).items())
        if path not in seen and group_of(path) in based
    }


def files_that_would_show(
    stored: Iterable[str], active: Iterable[CommittedInstant], archived: Iterable[CommittedInstant]
) -> list[str]:
    """Return which stored data files readers would take for live ones if the table listed all that are `stored`, although they are not.

    Those are the files that no commit names, and the replaced ones whose replacement is archived: Hudi hides file groups by the commits on
    the active timeline alone. It prefers the newest base file of a group itself.
    """
    active, archived = tuple(active), tuple(archived)
    hidden = {group for commit in active for group in commit.replaced}
    shown = {group for commit in archived for group in commit.replaced} - hidden
    named = {path for commit in (*active, *archived) for path in commit.files}
    data = (path for path in stored if is_log(path) or (path.endswith(".parquet") and PARTITION_METADATA not in path))
    return sorted(path for path in data if path not in named or group_of(path) in shown)


def hidden_text(pipeline: str, base_path: str, unlisted: Mapping[str, str]) -> str:
    """Say which rows a table hides that does not list these live files, and what to do."""
    instants = sorted({*unlisted.values()})
    return (
        f"the table at {base_path} hides rows that are committed: it does not list {listed(sorted(unlisted), SHOWN)}, which "
        f"{'commit' if len(instants) == 1 else 'commits'} {listed(instants, SHOWN)} published, so no reader sees their rows. Its "
        "metadata table has lost them, as when one of its files was emptied or deleted. Delete no file by hand: "
        f"`hudi-ingest recover {pipeline} --metadata-table` builds the metadata table again from the files that are stored, and "
        "compares once more."
    )


def is_log(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") and ".log." in name and not name.endswith(".crc")


def group_of(path: str) -> Group:
    """Return the file group of a data file."""
    folder, _, name = path.rpartition("/")
    return folder, name.removeprefix(".").partition("_")[0]
