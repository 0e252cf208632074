"""Named points at each durable step, where a test can make the process fail, die or stop.

They do nothing unless HUDI_INGEST_FAULTS names a folder. A file `<point>.armed` there, whose text is an action, applies to
the first process that reaches the point. Before the action happens the file becomes `<point>.reached` and holds that
process's pid.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

VARIABLE = "HUDI_INGEST_FAULTS"

POINTS = {
    "tick_planned": "the sensor has planned a transaction, but not yet requested its run",
    "begin_cleared": "begin holds the table lock and has cleaned up after a dead transaction",
    "ledger_opened": "the ledger has the transaction, the table does not",
    "epoch_advanced": "every older transaction is fenced, and the new one has no instant yet",
    "instant_requested": "the timeline has the requested instant and its heartbeat, without the plan",
    "instant_inflight": "the timeline has the inflight instant with the plan",
    "instant_begun": "Hudi has begun the instant, the ledger does not have it",
    "instant_recorded": "begin is complete, but the orchestrator does not know",
    "attempt_started": "the ledger has assigned the attempt's number, and nothing has been read",
    "marker_written": "a base file's marker exists, the file does not",
    "file_opened": "a base file is open and empty",
    "rows_written": "a base file has some of its rows",
    "file_ready": "all rows of a base file are written, but it is not closed",
    "file_closed": "a base file is complete, but not reported",
    "letters_closed": "a task's dead-letter file is complete, but not reported",
    "task_done": "a range's files are complete, but its report has not left the worker",
    "slices_written": "an op's files are complete, but the ledger has no report",
    "attempt_reported": "the ledger has an op's report, the orchestrator does not",
    "commit_locked": "commit holds the table lock and has checked nothing yet",
    "commit_checked": "every check outside Hudi's lock has passed",
    "letters_listed": "the dead-letter manifest is written, but no commit names it",
    "commit_leased": "the instant's lease is about to be renewed and the instant committed, in one call",
    "commit_landed": "commitStats has returned, and nothing else knows",
    "group_told": "the consumer group has the offsets, the ledger does not",
    "ledger_told": "the ledger has the commit, and the orchestrator does not",
    "letters_copied": "the broker has acknowledged dead-letter copies, but the marker does not say so",
    "abort_retired": "an abort has fenced its transaction, but rolled nothing back",
    "abort_rolled_back": "an abort has rolled the instant back, but the ledger still has it open",
}
"""Every point of a transaction, with the state of things when a process reaches it."""
PUBLICATION_POINTS = {
    "iceberg_table_staged": "an Iceberg table is about to be made",
    "iceberg_snapshot_staged": "an Iceberg snapshot's files are written, and its catalog does not have it",
    "iceberg_published": "the Iceberg catalog has a snapshot, and nothing else knows",
    "iceberg_went_back": "the Iceberg table shows an earlier snapshot again, after a restore",
}
"""Likewise of a publication to an Iceberg catalog, which follows a commit and cannot harm it."""


class InjectedFault(Exception):
    """The error of the action `raise`: no module expects it."""


def reach(point: str) -> None:
    """Carry out the action armed for this point, if any.

    Actions: `raise` (InjectedFault), `full` (the OSError of a full disk), `kill` (SIGKILL), `stop` (SIGSTOP; SIGCONT
    resumes the process). Raises KeyError for a point of neither kind.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    state = (POINTS | PUBLICATION_POINTS)[point]
    armed = Path(folder, f"{point}.armed")
    claimed = armed.with_suffix(f".taken-{os.getpid()}")
    try:
        # If several processes arrive at once, only one of them can rename it.
        armed.rename(claimed)
    except FileNotFoundError:
        return
    action = claimed.read_text().strip()
    claimed.write_text(str(os.getpid()))
    claimed.rename(armed.with_suffix(".reached"))
    if action == "raise":
        raise InjectedFault(f"injected at {point}: {state}")
    if action == "full":
        raise OSError(errno.ENOSPC, f"injected at {point}: {os.strerror(errno.ENOSPC)}")
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    os.kill(os.getpid(), signals[action])
