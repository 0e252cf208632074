"""Writes the table of docs/metrics.md from the definitions: `python -m hudi_ingest_tests.support.metrics_page`."""

from __future__ import annotations

import re
from pathlib import Path

from hudi_ingest.ledger.counters import BUCKETS
from hudi_ingest.metrics.definitions import METRICS

TARGET = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
_BEGIN = (
    "<!-- Written by `python -m hudi_ingest_tests.support.metrics_page` from hudi_ingest/metrics/definitions.py. -->\n"
)
_END = "<!-- End of the table. -->\n"
_PART = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)


def table() -> str:
    """The table, between its two marks."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} | {metric.origin} |\n"
        for metric in METRICS
    ]
    head = "| metric | kind | labels | | from |\n|---|---|---|---|---|\n"
    bounds = ", ".join(f"{bound:g}" for bound in BUCKETS)
    return f"{_BEGIN}\n{head}{''.join(rows)}\nThe histogram's buckets end at {bounds} seconds.\n\n{_END}"


def render() -> str:
    """The page with the newest table. Raises ValueError if it has no place for it."""
    page = TARGET.read_text(encoding="utf-8")
    if _PART.search(page) is None:
        raise ValueError(f"{TARGET} has no table of metrics between its marks")
    return _PART.sub(lambda _: table(), page)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
