"""Printing: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hudi_ingest.exceptions import (
    NothingToDo,
)
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import IngestPlan, OffsetLoss
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionSchema

PIPED_WIDTH = 140
"""Width of tables that go into a file or a pipe."""
out = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def say(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def progress(line: str) -> None:
    err.print(f"· {line}", style="dim", markup=False)


def show_schema(schema: TransactionSchema | None) -> None:
    from hudi_ingest.cli.views import columns_view, schema_text
    from hudi_ingest.records.schema.columns import parse_spark_json

    if schema is not None:
        say(schema_text(schema))
        out.print(columns_view(parse_spark_json(schema.columns)))


def print_result(as_json: bool, facts: Any, text: str) -> None:
    """Print a command's result: its facts as JSON, or the text."""
    if as_json:
        print_json(facts)
    else:
        say(text)


def print_nothing_to_do(error: NothingToDo, as_json: bool) -> None:
    print_result(as_json, {"skip": error.reason}, f"nothing to do: {error.reason}")


def print_plan(plan: IngestPlan, as_json: bool) -> None:
    from hudi_ingest.cli.views import plan_view

    if as_json:
        print_json(plan.to_dict())
    else:
        out.print(plan_view(plan))
        if plan.take_over is not None:
            say(f"{plan.take_over}")
        say_left_out(plan.pipeline, plan.stopped, plan.resets, plan.leaderless)


def print_receipt(receipt: CommitReceipt, as_json: bool) -> None:
    from hudi_ingest.cli.views import receipt_text

    for warning in receipt.warnings:
        err.print(f"warning: {warning}", markup=False)
    if as_json:
        print_json(receipt.to_dict())
    else:
        say(receipt_text(receipt))
        plan = receipt.plan
        say_left_out(plan.pipeline, plan.stopped, plan.resets, plan.leaderless)


def say_left_out(
    pipeline: str,
    stopped: Sequence[OffsetLoss],
    resets: Sequence[OffsetLoss] = (),
    leaderless: Sequence[TopicPartition] = (),
) -> None:
    # Not wrapped, so that its commands can be copied.
    from hudi_ingest.transaction.plan.planning import left_out_text

    for title, text in left_out_text(pipeline, stopped, resets, leaderless).items():
        out.print(f"{title}:\n{text}", style="red", markup=False, highlight=False, soft_wrap=True)


def print_json(facts: Any) -> None:
    sys.stdout.write(json.dumps(facts, indent=2) + "\n")
