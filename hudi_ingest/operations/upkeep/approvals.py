"""A person's decisions that a pipeline waits for: giving up offsets that stopped partitions have lost, in one transaction that resumes
where the person says, and approving a change of the table's columns."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from hudi_ingest.exceptions import NothingToDo, RangeRefused, SchemaRefused
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.schema_change import approve, fingerprint, is_approved, proposed_schema
from hudi_ingest.transaction.plan.arithmetic import RESUMES
from hudi_ingest.transaction.plan.planning import plan_accepting
from hudi_ingest.transaction.run import run_transaction, when_table_is_free

_logger = logging.getLogger(__name__)


def accept_loss(
    pipeline: Pipeline,
    home: Home,
    partitions: Sequence[TopicPartition],
    topics: Sequence[str],
    report: Callable[[str], None] = _logger.info,
    resumes: Mapping[TopicPartition, int | str] = MappingProxyType({}),
) -> CommitReceipt:
    """Accept the losses of these stopped partitions and of all stopped partitions of these topics, now, in this process. `resumes`: others,
    and where they go on, as for `plan_accepting`.

    Raises NothingToDo unless each of them is stopped, RangeRefused if one cannot go on there, TransactionInFlight if the table was not free within the pipeline's timeout,
    and what `run_transaction` raises.
    """

    def accept() -> CommitReceipt:
        plan = plan_accepting(pipeline, partitions, topics, resumes)
        return run_transaction(pipeline, home=home, plan=plan, report=report)

    # Partitions that are not stopped have transactions of their own, which end soon.
    return when_table_is_free(accept, pipeline.transaction.timeout_seconds, report)


def resume_at(text: str) -> tuple[TopicPartition, int | str | None]:
    """Parse `TOPIC:PARTITION`, or `TOPIC:PARTITION=` and where to go on: an offset, or one of RESUMES. Raises ValueError."""
    source, has_place, place = text.partition("=")
    if not has_place:
        return TopicPartition.parse(text), None
    if place not in RESUMES and not place.isdecimal():
        raise ValueError(f"expected an offset, or one of {', '.join(RESUMES)}, after `=`; found {text!r}")
    return TopicPartition.parse(source), int(place) if place.isdecimal() else place


def resumes_in(lines: Iterable[str], where: str, group: str) -> dict[TopicPartition, int | str]:
    """Parse a list of partitions and of the offsets at which they go on, one a line: `TOPIC:PARTITION=OFFSET`, or as Kafka's tools print it:
    `topic,partition,offset` of kafka-consumer-groups.sh --export, and the checkpoints of MirrorMaker that its CheckpointFormatter
    prints, of which each partition's last one of the consumer group counts. Raises RangeRefused with all problems."""
    resumes: dict[TopicPartition, int | str] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        checkpoint = _MIRRORED.fullmatch(text)
        if checkpoint is not None:
            if checkpoint["group"] == group:
                source = TopicPartition(checkpoint["topic"], int(checkpoint["partition"]))
                resumes[source] = int(checkpoint["offset"])
            continue
        exported = _EXPORTED.fullmatch(text)
        try:
            source, at = resume_at(f"{exported[1]}:{exported[2]}={exported[3]}" if exported else text)
            if at is None:
                raise ValueError(f"{text!r} names no offset; write {text}=OFFSET")
            if source in resumes:
                raise ValueError(f"{source} is named twice")
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        resumes[source] = at
    if not resumes and not problems:
        problems.append(f"it has no offsets, or only those of other consumer groups than {group}")
    if problems:
        raise RangeRefused(f"the offsets in {where} cannot be used", problems)
    return resumes


_EXPORTED = re.compile(r'"?([^",]+)"?,(\d+),(\d+)')
_MIRRORED = re.compile(
    r"Checkpoint\{consumerGroupId=(?P<group>.*), topicPartition=(?P<topic>.+)-(?P<partition>\d+), upstreamOffset=-?\d+, "
    r"downstreamOffset=(?P<offset>\d+),.*\}"
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """How the next transaction would change a table's columns."""

    pipeline: str
    origin: str
    """Where the columns come from."""
    changes: tuple[str, ...]
    """One line each; at least one."""
    fingerprint: str
    approved: bool
    """Whether the transaction may begin."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "changes": list(self.changes)}


def schema_change(pipeline: Pipeline) -> SchemaChange:
    """The change that waits. Asks the registry if the columns come from there. Raises NothingToDo if there is none, and what
    `proposed_schema` raises."""
    timeline, schema = _waiting_change(pipeline)
    approved = is_approved(pipeline, timeline, schema)
    return SchemaChange(pipeline.name, schema.origin, schema.changes, fingerprint(schema), approved)


def approve_schema_change(pipeline: Pipeline, expected: str | None = None) -> SchemaChange:
    """Approve the change that waits, and return it. `expected`: the fingerprint of the change that was reviewed.

    Raises SchemaRefused if another one waits now, NothingToDo, TableUnreachable, and what `proposed_schema` raises.
    """
    timeline, schema = _waiting_change(pipeline)
    found = fingerprint(schema)
    if expected not in (None, found):
        lines = "; ".join(schema.changes)
        raise SchemaRefused(
            f"pipeline {pipeline.name}: the change that waits now has the fingerprint {found}, not {expected}: {lines}. Nothing was "
            "approved. Look at it, and approve it by its own fingerprint."
        )
    approve(timeline, schema)
    return SchemaChange(pipeline.name, schema.origin, schema.changes, found, approved=True)


def _waiting_change(pipeline: Pipeline) -> tuple[Timeline, TransactionSchema]:
    timeline = Timeline.of(pipeline.table)
    schema = proposed_schema(pipeline, timeline)
    if schema.changes:
        return timeline, schema
    if not timeline.exists():
        reason = "the table does not exist yet; its first transaction creates it with the columns of its records"
        raise NothingToDo(pipeline.name, reason)
    raise NothingToDo(pipeline.name, "the table has all columns of its records")
