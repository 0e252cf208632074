"""What all commits of a pipeline add up to. A commit's checkpoint carries it, so it outlives archived commits and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import SliceReport, whole_files

Totals = Mapping[str, Mapping[str, int]]
"""By kind of transaction, by name: transactions, rows, files, bytes, tombstones, filtered, bad_skipped, bad_kept, gaps, deletes,
superseded, moves, and lost (offsets whose loss was accepted). Zeros are left out."""


def with_commit(totals: Totals, plan: TransactionPlan, reports: Sequence[SliceReport], keeps_bad: bool) -> Totals:
    """Return the totals after the plan's commit. `keeps_bad`: whether bad records become dead letters."""
    own = Counter(totals.get(plan.kind.value, {}))
    own["transactions"] += 1
    own["lost"] += sum(loss.lost or 0 for loss in plan.resets)
    own["files"] += len(whole_files(file for report in reports for file in report.log_files))
    for report in reports:
        own["rows"] += report.rows
        own["files"] += len(report.files)
        own["bytes"] += report.size_bytes
        own["tombstones"] += report.skipped
        own["filtered"] += report.filtered
        own["bad_kept" if keeps_bad else "bad_skipped"] += report.rejected
        own["gaps"] += report.gaps
        own["deletes"] += report.deletes
        own["superseded"] += report.superseded
        own["moves"] += report.moves
    return {**totals, plan.kind.value: {name: count for name, count in own.items() if count}}
