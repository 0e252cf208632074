"""Writes docs/features.md, what each id in the names of tests stands for: `python -m hudi_ingest_tests.support.features_page`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hudi_ingest_tests.support.tiers import TESTS, UNIT

TARGET = TESTS.parent / "docs" / "features.md"
FEATURES: Mapping[str, Mapping[str, str]] = {
    "Promises": {
        "p1": "No loss: each offset of a committed range is a row, a counted bad record, a counted skip, or a gap in Kafka itself.",
        "p2": "No duplicates: the ranges of a partition follow one another and never overlap.",
        "p3": "A reader never sees part of a transaction.",
        "p4": "A stale coordinator, op or commit cannot change the table once a newer transaction has begun.",
        "p5": "After a crash of any process the next tick recovers by itself.",
        "p6": "Whatever is recognized as unsafe stops, and the message says how to go on.",
        "p7": "Other writers can interleave.",
        "p8": "A keyed table holds the newest change of each key.",
    },
    "Transactions": {
        "f1": "A table has one transaction at a time, whoever launches it.",
        "f2": "A commit needs a report of every slice of its plan.",
        "f4": "Two writers never share a file group, because its id has the topic, the partition and the instant.",
        "r3": "By default each Kafka partition is read by an op of its own, in order.",
        "r6": "The table's commits hold the offsets, so ingestion goes on at the right one without the ledger and the consumer group.",
        "r7": "A transaction that hangs past its timeout is discarded, and leaves no trace in the table.",
        "r8": "The consumer group has the offsets of each commit, for tools that show lag.",
        "d4": "After a rollback the same offsets are read once more.",
        "h3": "A transaction is bounded by records, bytes and time.",
        "k2": "More Kafka partitions than tasks are grouped.",
        "x1": "Whatever a transaction will read can be seen before it begins.",
        "x3": "Each commit accounts for its offsets: rows, bad records, skips and gaps add up to its ranges.",
        "x5": "An op that failed is retried alone; the other partitions are not read twice.",
        "x7": "Transactions share one warm Spark engine. `make bench-smoke` holds their speed against that of plain Spark.",
    },
    "Tables": {
        "h1": "Files say which topic, partition and offsets they hold.",
        "h2": "Files of a failed attempt are gone, or no reader lists them.",
        "h4": "Tables are partitioned by columns, and by times in any zone.",
        "r4": "A base file that a transaction writes holds records of one Kafka partition.",
        "r9": "Files that dead processes leave are found and deleted, and no others.",
        "r11": "Clustering, compaction and cleaning run beside transactions.",
        "s1": "Tables can be on S3, with the same promises.",
        "s4": "Tables appear in a Hive metastore, with new partitions and columns.",
        "s9": "Maintenance needs nobody: files, logs and history stay bounded.",
        "s11": "Options of Hudi and Spark are passed on, and those that would break a promise are refused by name.",
        "s12": "Old partitions are deleted after a time, and a savepoint brings them back.",
        "s13": "Spark and hudi-rs read the same values of every type.",
        "s25": "What docs/readers.md says of an engine is what it reads.",
        "s17": "A table says through which time it is complete, and never too early.",
        "s22": "An audit by the certificates in the commits finds rows that were lost, doubled or altered.",
        "s24": "Iceberg's readers see the same files, commit by commit, in any catalog of pyiceberg's.",
        "x6": "Tables of Hudi Streamer, the Hudi Kafka Connect sink and Structured Streaming are continued at their offsets.",
    },
    "Records": {
        "d2": "Columns follow the schemas of the records: new ones are added, types widened, and anything else is refused.",
        "d3": "A record that cannot become a row is named by topic, partition, offset and field, and dealt with as the pipeline says.",
        "k3": "Schemas are in a registry, in headers or in the pipeline file, and converters can be one's own.",
        "k4": "Records are transformed on the way: dropped, renamed, masked and cast columns, filters, SQL.",
        "k5": "Times in any form and zone become columns and partitions.",
        "s5": "The changes that Debezium captures make a table that equals its source.",
        "s10": "A pipeline says whether a table evolves with its schemas, ignores new fields or refuses them.",
        "s14": "A value that a change event leaves out is the one that the row had before.",
        "s15": "A truncate of the source deletes the rows before it, and none after it.",
        "s16": "One pipeline file mirrors a database, each table with the key of its records.",
        "s18": "Rows that violate an expectation are counted, rejected or stop the transaction.",
    },
    "Topics": {
        "k1": "Topics are listed or matched by a pattern, and new topics and partitions are read from their first record.",
        "s6": "Topics that appear get a pipeline, and one that disappears stops no other.",
        "s8": "Kafka's logins and certificates work for every client from one pipeline file.",
        "x2": "A range of offsets is added or replaced atomically, beside live transactions.",
        "x4": "Offsets that the broker no longer has stop their partition or topic, until a person says where to go on.",
    },
    "Running it": {
        "d1": "Dagster shows each table as an asset, with materializations, checks, and jobs for all maintenance.",
        "k6": "Pipelines are made, changed, paused and deleted by REST.",
        "k7": "Commands show records, plans and files before anything changes.",
        "k8": "Ten lines of Python run a transaction.",
        "k9": "Dagster's catalog has the columns of each table, and one overview of all pipelines.",
        "r10": "Runs and code locations of the embedded Dagster, and deployments, start, end and come back.",
        "s2": "Transactions run on the executors of a Spark cluster.",
        "s3": "Pipelines run in a stock Dagster, with its launcher, executor and re-execution.",
        "s7": "Prometheus, OpenTelemetry and OpenLineage get metrics and lineage.",
        "s19": "The cost of idle pipelines hardly grows with their number.",
        "s20": "A transaction begins when it is due, a second or two after its records.",
        "s21": "A pipeline file is proposed from a topic's records.",
        "s23": "Simulated schedules keep every promise, and faults put into the protocol are found.",
    },
}
"""The ids by section, each with its promise to a user."""
MOST_TESTS = 3
_ID = re.compile(r"(?<![a-z0-9])[dfhkprsx][0-9]+(?![a-z0-9])")
_TIER = re.compile(r"\bmark\.tier\((\d)\)")


@dataclass(frozen=True)
class Test:
    """A test function, in the lowest tier that any of its parameters is in."""

    name: str
    file: Path
    tier: int

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(_ID.findall(self.name))

    @property
    def on_services(self) -> bool:
        return UNIT not in self.file.parents


@cache
def tests() -> tuple[Test, ...]:
    """The test functions of each file that has an id or a tier in it, as its source has them."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(TESTS.rglob("test_*.py"))}
    return tuple(
        test
        for file, text in texts.items()
        if _TIER.search(text) or any(_ID.search(name) for name in re.findall(r"\bdef (test_\w+)", text))
        for test in _tests_of(file, text)
    )


def _tests_of(file: Path, text: str) -> Iterator[Test]:
    module = ast.parse(text)
    default = 1 if UNIT in file.parents else 2
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            default = int((_TIER.findall(ast.unparse(node.value)) or [default])[0])
    classes = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    for node in [*module.body, *(method for each in classes for method in each.body)]:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [_tiers_of(each, default) for each in node.decorator_list]
            yield Test(node.name, file, min((tier for each in marks for tier in each), default=default))


def _tiers_of(decorator: ast.expr, default: int) -> list[int]:
    """The tiers that a decorator says: that of the function, or those of parameters, of which some may say nothing."""
    found = [int(tier) for tier in _TIER.findall(ast.unparse(decorator))]
    return [*found, default] if found and "parametrize" in ast.unparse(decorator) else found


def proofs() -> dict[str, list[Test]]:
    """The tests of each id in `make test`: first those on real services, and of these the ones whose names begin with it."""
    chosen = [test for test in tests() if test.tier == 1]
    ids = {each for test in chosen for each in test.ids}
    return {
        each: sorted(
            (test for test in chosen if each in test.ids),
            key=lambda test, each=each: (not test.on_services, test.ids.index(each), test.name),  # type: ignore[misc]
        )
        for each in ids
    }


def render() -> str:
    proved = proofs()
    lines = [
        "# Features",
        "",
        "What hudi-ingest does for its users, and the tests that hold it in `make test`. For whoever reviews it, or changes it.",
        "",
        "[Documentation](README.md) · [Guarantees](guarantees.md) · [Contributing](../CONTRIBUTING.md)",
        "",
        "<!-- Written by `make docs` from hudi_ingest_tests/support/features_page.py and the names of the tests. -->",
        "",
        "An id is in the names of its tests: `pytest -k p1`. Of the tests in `make test`, the page has up to three of each id, those on real services"
        " first. CI and `make nightly` run more of them.",
    ]
    for section, rows in FEATURES.items():
        lines += ["", f"## {section}", "", "| id | promise | tests |", "|---|---|---|"]
        lines += [f"| {each} | {text} | {_shown(proved.get(each, []))} |" for each, text in rows.items()]
    return "\n".join(lines) + "\n"


def _shown(found: list[Test]) -> str:
    return "<br>".join(
        f"[{test.name.removeprefix('test_')}](../{test.file.relative_to(TESTS.parent).as_posix()})"
        for test in found[:MOST_TESTS]
    )


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
