"""Named points at each durable step, where a test makes the process that arrives there fail, die or stop.

They do nothing unless HUDI_INGEST_FAULTS names a folder. There a file `<point>.armed`, whose text is an action, is the order
for the first process that arrives; it becomes `<point>.reached` with that process's pid, before the action happens.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

VARIABLE = "HUDI_INGEST_FAULTS"

POINTS = {
    "tick_planned": "the sensor has planned a transaction, and its run is not requested yet",
    "begin_cleared": "begin holds the table's lock and has cleared what a dead transaction left",
    "ledger_opened": "the ledger has the transaction, the table knows nothing of it",
    "epoch_advanced": "every older transaction is fenced, and there is no instant yet",
    "instant_requested": "the timeline has the requested instant and its heartbeat, without the plan",
    "instant_inflight": "the timeline has the inflight instant with the plan",
    "instant_begun": "Hudi's begin is over, and the ledger does not know the instant",
    "instant_recorded": "begin has done all, and the orchestrator does not know it",
    "attempt_started": "the ledger has handed out an attempt's number, and nothing is read",
    "marker_written": "a base file's marker is there, the file is not",
    "file_opened": "a base file is open and empty",
    "rows_written": "a base file has some of its rows",
    "file_ready": "all rows of a base file are handed over, it is not closed",
    "file_closed": "a base file is complete, and nobody was told",
    "letters_closed": "a task's file of dead letters is complete, and nobody was told",
    "task_done": "a range's files are complete, and its report has not left the worker",
    "slices_written": "an op's files are complete, and the ledger has no report",
    "attempt_reported": "the ledger has an op's report, and the orchestrator has not",
    "commit_locked": "commit holds the table's lock and has checked nothing yet",
    "commit_checked": "every check outside Hudi's lock is passed",
    "letters_listed": "the manifest of the dead letters is written, and no commit names it",
    "commit_leased": "the heartbeat beats again, commitStats is called next",
    "commit_landed": "commitStats has returned, and nobody else knows",
    "group_told": "the consumer group has the offsets, the ledger does not",
    "ledger_told": "the ledger has the commit, and the orchestrator does not",
    "letters_copied": "the broker has acknowledged copies of dead letters, and the marker does not say so",
    "abort_retired": "an abort has fenced its transaction, and rolled nothing back",
    "abort_rolled_back": "an abort has rolled the instant back, and the ledger has it open",
}
"""Every point, and how things stand there."""


class InjectedFault(Exception):
    """The error of the action `raise`: one that no module expects."""


def reach(point: str) -> None:
    """Carries out the order for this point, if there is one.

    Actions: `raise` (InjectedFault), `full` (the OSError of a full disk), `kill` (SIGKILL), `stop` (SIGSTOP; SIGCONT lets
    the process go on). Raises KeyError for a point that is not in POINTS.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    POINTS[point]
    order = Path(folder, f"{point}.armed")
    taken = order.with_suffix(f".taken-{os.getpid()}")
    try:
        # Of several processes that arrive at once, one can rename it.
        order.rename(taken)
    except FileNotFoundError:
        return
    action = taken.read_text().strip()
    taken.write_text(str(os.getpid()))
    taken.rename(order.with_suffix(".reached"))
    if action == "raise":
        raise InjectedFault(f"injected at {point}: {POINTS[point]}")
    if action == "full":
        raise OSError(errno.ENOSPC, f"injected at {point}: {os.strerror(errno.ENOSPC)}")
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    os.kill(os.getpid(), signals[action])
