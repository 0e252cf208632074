"""The package's surfaces as text: whatever users, their scripts and their stored state depend on.

`python -m hudi_ingest_tests.support.surfaces` writes them to hudi_ingest_tests/surfaces. A change of one of these files is a
change that users meet: it belongs into the commit's message. docs/configuration.md and docs/metrics.md, which are made from
the code as well, hold the settings and the metrics.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

import hudi_ingest
from hudi_ingest import exceptions
from hudi_ingest.cli import _COMMANDS as REGISTERED
from hudi_ingest.cli.app import app
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.certificate import Certificate, Certified
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.complete_through import Completeness, Mark, TimesRead
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import (
    BackfillPlan,
    IngestPlan,
    LossReason,
    OffsetLoss,
    ReplacedFile,
    ReplayPlan,
    RetriedFile,
    Retry,
    RetryPlan,
    TakeOver,
    TransactionKind,
)
from hudi_ingest.model.report import BadRecordNote, BaseFile, FieldsSeen, LetterFile, LogFile, SliceReport
from hudi_ingest.orchestration import tags
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.rest.application import openapi_document
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest_tests.support import configuration_page

FOLDER = Path(__file__).parent.parent / "surfaces"
_ORDERS = """
name: orders
source: {bootstrap_servers: "localhost:9092", topics: [orders, returns]}
table: {base_path: /tables/orders, schema: "id string, day date", partition_by: [day], ttl: {column: day, days: 30}}
"""
_CUSTOMERS = """
name: customers
source: {bootstrap_servers: "localhost:9092", topics: [customers]}
table: {base_path: /tables/customers, schema: "id string, name string", mode: upsert, key: [id]}
asset: {max_lag: 5}
"""
_TEMPLATE = """
name: shop_{topic}
source: {bootstrap_servers: "localhost:9092", topics_pattern: "shop[.].*"}
table: {base_path: "/tables/{topic}", schema: "id string"}
"""


def commands() -> str:
    """`--help` of each command."""
    assert REGISTERED, "importing them registers the commands"
    runner = CliRunner(env={"COLUMNS": "140", "TERMINAL_WIDTH": "140", "NO_COLOR": "1", "TERM": "dumb"})
    helps = []
    for path in _paths(typer.main.get_command(app)):
        result = runner.invoke(app, [*path, "--help"], prog_name="hudi-ingest")
        assert result.exit_code == 0, result.output
        text = re.sub(r"[│╭╮╰╯─]| (?= {2})", "", result.output)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        helps.append("\n".join([f"$ {' '.join(('hudi-ingest', *path, '--help'))}", *lines, ""]))
    return "\n".join(helps)


def _paths(command: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield above
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _paths(below, (*above, name))


def rest() -> str:
    return json.dumps(openapi_document(), indent=1, sort_keys=True)


def names() -> str:
    """Public names, exceptions, run tags and environment variables."""
    kinds = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass)]
    errors = [kind for kind in kinds if issubclass(kind, exceptions.IngestError)]
    return "\n".join(
        [
            "# from hudi_ingest import",
            *sorted(hudi_ingest.__all__),
            "",
            "# from hudi_ingest.exceptions import",
            *(f"{kind.__name__}({', '.join(base.__name__ for base in kind.__bases__)})" for kind in errors),
            "",
            "# run tags",
            *sorted(tag for name, tag in vars(tags).items() if name.isupper() and isinstance(tag, str)),
            "",
            "# environment variables",
            *sorted(_variables()),
        ]
    )


def _variables() -> set[str]:
    # The page names variables that the package puts together from a prefix and a setting's name.
    sources = [*Path(hudi_ingest.__file__).parent.rglob("*.py"), Path(configuration_page.__file__)]
    named = re.compile(r"HUDI_INGEST(?:_[A-Z]+)+\b")
    return {name for source in sources for name in named.findall(source.read_text(encoding="utf-8"))}


def definitions() -> str:
    """The Dagster definitions of an append table, a keyed table and a template that has no topics yet."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, text in (("orders", _ORDERS), ("customers", _CUSTOMERS), ("shop", _TEMPLATE)):
            folder.joinpath(f"{name}.yaml").write_text(text)
        before = dict(os.environ)
        os.environ |= {"HUDI_INGEST_HOME": scratch, "HUDI_INGEST_PIPELINES": scratch}
        try:
            defs = hudi_ingest.ingest_definitions(folder)
            repository = defs.get_repository_def()
        finally:
            os.environ.clear()
            os.environ |= before
    lines = ["# assets and their checks"]
    for node in sorted(repository.asset_graph.asset_nodes, key=lambda node: node.key):
        checks = sorted(key.name for key in node.check_keys)
        lines.append(f"{node.key.to_user_string()} [{node.group_name}]{': ' if checks else ''}{', '.join(checks)}")
    lines += ["", "# jobs and their tags"]
    for job in sorted(repository.get_all_jobs(), key=lambda job: job.name):
        if not job.name.startswith("__"):
            lines.append(f"{job.name} {json.dumps(dict(sorted(job.tags.items())))}")
    lines += ["", "# sensors"]
    for sensor in sorted(repository.sensor_defs, key=lambda sensor: sensor.name):
        lines.append(f"{sensor.name} every {sensor.minimum_interval_seconds} s, {sensor.default_status.value}")
    lines += ["", "# schedules"]
    for schedule in sorted(repository.schedule_defs, key=lambda schedule: schedule.name):
        lines.append(f"{schedule.name} {schedule.cron_schedule}, {schedule.default_status.value}")
    lines += ["", "# resources", *sorted(repository.get_top_level_resources())]
    return "\n".join(lines)


def ledger() -> str:
    """The ledger's tables and indexes in a new SQLite file, after all migrations."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "ledger.db"
        Ledger.open(f"sqlite:///{path}").dispose()
        connection = sqlite3.connect(path)
        rows = connection.execute("select sql from sqlite_master where sql is not null order by name").fetchall()
        connection.close()
    return "\n\n".join(f"{sql};" for (sql,) in rows)


def stored() -> str:
    """The JSON that commits, runs, cursors and requests keep, each with every field it can have."""
    source, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    slices = (Slice("orders", 0, 100, 160), Slice("orders", 1, 40, 40))
    topics = {"orders": TopicVersion("topic-id", 2)}
    loss = OffsetLoss("orders", 1, 30, 40, 10, LossReason.RETENTION)
    begin: Mapping[str, Any] = {"pipeline": "orders", "transaction_id": "orders-7", "sequence": 7, "slices": slices}
    take_over = TakeOver("Hudi Streamer", "20260102030405678", {source: 100})
    plans = {
        "ingest": IngestPlan(
            **begin,
            topics=topics,
            resets=(loss,),
            stopped=(loss,),
            take_over=take_over,
            marks={source: Mark(170, 1_767_323_045_678)},
            said_through=1_767_322_800_000,
        ),
        "backfill": BackfillPlan(**begin, request="r1", covered={source: ((0, 90),)}, upserts=True),
        "replay": ReplayPlan(
            **begin,
            request="r2",
            replaces=(ReplacedFile("day=1/a_b_c.parquet", 9, 4, 512, "orders", 0),),
            respect_deletes=True,
            schema_changes=("adds `name string`",),
        ),
        "retry": RetryPlan(
            **begin,
            request="r3",
            retry=Retry((RetriedFile("x.parquet", 3, (slices[0],), ("orders:0",)),), {"orders": 2}),
        ),
    }
    checkpoint = Checkpoint(
        7,
        "orders-7",
        {source: 160, other: 40},
        record_bytes=77,
        topics=topics,
        instant="20260102030405678",
        letters=LettersHead(".hoodie/letters/20260102030405678/list.json", 3),
        covered={source: ((0, 90), (100, 160)), other: ((0, 40),)},
        moved_by="20260102030405600",
        taken_over={source: 100},
        totals={"orders": {"rows": 5, "rejected": 1}},
        complete={
            source: Completeness(1_767_323_045_678, Mark(170, 1_767_323_050_000), 1_767_323_049_000),
            other: Completeness(1_767_323_045_000),
        },
        certified={source: Certified(90, 70, Certificate(9, 2**63))},
        last={source: LastRecord(159, 1_767_323_049_000, 4), other: LastRecord(38, 1_767_323_045_000)},
    )
    report = _distinct_report(slices[0])
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "orders.yaml"
        path.write_text(_ORDERS.replace("orders, returns", "orders"))
        metadata = commit_metadata(load_pipeline(path, {}), plans["ingest"], checkpoint, [report])
    assert Accounting.from_json(metadata["hudi_ingest.transaction.orders"]).transaction_id == "orders-7"
    pieces: dict[str, Any] = {
        "commit metadata": {key: _parsed(text) for key, text in metadata.items()},
        "slice report": report.to_dict(),
        **{f"plan: {kind}": plan.to_dict() for kind, plan in plans.items()},
        "transaction kinds": [kind.value for kind in TransactionKind],
        "loss reasons": [reason.value for reason in LossReason],
    }
    return json.dumps(pieces, indent=1)


def _distinct_report(slice_: Slice) -> SliceReport:
    """A report whose counts all differ, so that none can take another's place, with one of everything it lists."""
    counts = dict(zip(Counts().counts, range(11, 99), strict=False))
    return SliceReport(
        slice_,
        attempt=2,
        files=(BaseFile("day=1", "a", "day=1/a_b_c.parquet", 9, 512, 100, 108),),
        value_bytes=4620,
        seconds=0.25,
        letters=(LetterFile(".hoodie/letters/a.parquet", 3, 256),),
        bad_records=(BadRecordNote("orders", 0, 109, "day", "a date", "'soon'"),),
        copies=(BaseFile("day=1", "d", "day=1/d_e_f.parquet", 4, 128, 0, 3),),
        log_files=(LogFile("", "g", ".g.log.1_0-0-0", 5, 2, 64, 100, 106, file_rows=9),),
        fields=FieldsSeen(("name",), ("nmae",), True),
        times=TimesRead(1_767_323_040_000, 1_767_323_049_000, 2, 1_767_323_040_000),
        violations={"positive": 3},
        certificate=Certificate(2**64 - 1, 7),
        last=LastRecord(109, 1_767_323_049_000, 4),
        **counts,
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


SURFACES: Mapping[str, Callable[[], str]] = {
    "commands.txt": commands,
    "definitions.txt": definitions,
    "ledger.sql": ledger,
    "names.txt": names,
    "openapi.json": rest,
    "stored.json": stored,
}


def text_of(name: str) -> str:
    """The surface as its file must hold it."""
    return SURFACES[name]().rstrip() + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for surface in SURFACES:
        FOLDER.joinpath(surface).write_text(text_of(surface), encoding="utf-8")
