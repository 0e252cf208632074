"""Ways to break the protocol, or what it relies on, on purpose: a simulation that misses one is no proof of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from hudi_ingest.hudi.files.late_changes import LateChanges
from hudi_ingest.hudi.storage import storage
from hudi_ingest.hudi.timeline.ownership import ServiceClaim
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import LogCut, OffsetLoss, TransactionKind, TransactionPlan
from hudi_ingest.operations.requests.allowed_ranges import RangeContext, RemainingRanges, to_read
from hudi_ingest.orchestration.coordinator import look, runs
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.transaction import checks, protocol
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog
from hudi_ingest.transaction.plan import cut_logs, planning
from hudi_ingest.transaction.plan.arithmetic import find_losses
from hudi_ingest.transaction.plan.planning import mark_if_committed
from hudi_ingest.transaction.ports import TransactionPorts
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest_tests.simulation import model, world
from hudi_ingest_tests.simulation.services import ServicesInMemory
from hudi_ingest_tests.simulation.world import HudiInMemory, TimelineInMemory


@dataclass(frozen=True)
class Mutation:
    """`flaws` of the model, and `patches` (where, name, instead) of the product. `breaks`: the promise that `seed` finds broken; another
    seed is found by `python -m hudi_ingest_tests.simulation --mutation NAME`."""

    breaks: str
    seed: int
    flaws: frozenset[str] = frozenset()
    patches: Sequence[tuple[object, str, object]] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, instead in self.patches:
                stack.enter_context(mock.patch.object(target, name, instead))
            yield


def _nothing(*_: object, **__: object) -> None:
    return


def _next(change: Callable[[Checkpoint], Checkpoint]) -> Callable[..., Checkpoint]:
    """next_checkpoint with a change."""

    def changed(current: Checkpoint | None, plan: TransactionPlan, record_bytes: int, instant: str = "") -> Checkpoint:
        return change(next_checkpoint(current, plan, record_bytes, instant))

    return changed


def _one_more(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, offsets={source: offset + 1 for source, offset in checkpoint.offsets.items()})


def _no_letters(_: object, current: Checkpoint | None, *__: Any) -> LettersHead | None:
    return current.letters if current else None


def _by_offsets_only(
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    topic_ids: object,
    *cuts: Mapping[TopicPartition, LogCut],
) -> tuple[OffsetLoss, ...]:
    known = checkpoint.topics if checkpoint else {}
    return find_losses(checkpoint, watermarks, {topic: version.topic_id for topic, version in known.items()}, *cuts)


def _same_generation(
    topic: str, checkpoint: Checkpoint | None, topic_ids: Mapping[str, str], _: object
) -> TopicVersion:
    return TopicVersion(topic_ids[topic])


def _same_claim(self: ServiceClaim, instant: str) -> str:
    return self._write({self._service: instant})


def _only_asked(known: RangeContext, kind: TransactionKind, asked: Sequence[Slice], _: int) -> RemainingRanges:
    return to_read(known, kind, [replace(each, end=each.start + 1) for each in asked], skip_covered=True)


class _Unrestored(TimelineInMemory):
    def restore_properties(self) -> bool:
        return False


def _without_restoring(table: PipelineTable, ledger: Ledger, transaction_id: str) -> bool:
    assert isinstance(table.timeline, TimelineInMemory)
    table = PipelineTable(table.pipeline, _Unrestored(table.timeline._world))
    return mark_if_committed(table, ledger, transaction_id)


_UNCHECKED = [(protocol, "require_current", _nothing), (protocol, "require_sums", _nothing)]


MUTATIONS: Mapping[str, Mutation] = {
    "the fence is left out": Mutation("P4", 371, frozenset({"no epoch", "no open check"})),
    "the guard is not asked": Mutation("P7", 134, patches=[(HudiInMemory, "_guard", _nothing)]),
    "a rollback waits for no commit inside Hudi's lock": Mutation("P4", 105, frozenset({"no barrier"})),
    "the guard does not look for another writer's rollback": Mutation("P4", 98208, frozenset({"no rollback check"})),
    "a rollback deletes what is completed": Mutation("P4", 105, frozenset({"rolls completed back"})),
    "the lease is not checked": Mutation("P4", 187, frozenset({"no lease", "no rollback check"})),
    "a lease never ends": Mutation("P5", 61, frozenset({"lease never expires"})),
    "the consumer group is the truth": Mutation("P5", 25, frozenset({"group is the truth"})),
    "the next offset is off by one": Mutation(
        "P7",
        0,
        patches=[
            (protocol, "next_checkpoint", _next(_one_more)),
            (protocol, "require_sums", _nothing),
            # The next begin would compare the checkpoint with the accounting.
            (protocol, "require_sound", _nothing),
        ],
    ),
    "what is covered is forgotten": Mutation(
        "P7", 0, patches=[(protocol, "next_checkpoint", _next(lambda each: replace(each, covered={})))]
    ),
    "commit before all is written": Mutation(
        "P3", 137, patches=[(protocol, "require_complete", _nothing), (protocol, "require_sums", _nothing)]
    ),
    "files are not flushed before they are reported": Mutation(
        "P5", 0, patches=[(TransactionProtocol, "_sync_files", _nothing)]
    ),
    "the broker is not asked again about what it lost": Mutation(
        "P1", 33, patches=[(protocol, "require_lost", _nothing)]
    ),
    "dead letters are not listed": Mutation("P1, P2", 0, patches=[(DeadLetterLog, "extend", _no_letters)]),
    "a commit does not look for its files": Mutation(
        "P1", 1001656, patches=[(TransactionProtocol, "_require_files", _nothing)]
    ),
    "a plan is not compared with the checkpoint": Mutation(
        "P2",
        15,
        frozenset({"no checkpoint check"}),
        _UNCHECKED,
    ),
    "a task does not look which topic it has read": Mutation("P1, P2, P3", 80, frozenset({"no topic check"})),
    "a recreated topic is taken for the one before": Mutation(
        "P2",
        10,
        patches=[*((module, "find_losses", _by_offsets_only) for module in (planning, world)), *_UNCHECKED],
    ),
    "a recreated topic has the generation of the one before": Mutation(
        "P2", 10, patches=[(planning, "_version", _same_generation), *_UNCHECKED]
    ),
    "two tries of a clustering have the same claim": Mutation("P1", 132, patches=[(ServiceClaim, "take", _same_claim)]),
    "the guard does not see that a clustering merges a file": Mutation(
        "P1, P2", 265, frozenset({"no clustering check"})
    ),
    "a compaction may be ahead of the clock of those who commit": Mutation("P8", 2431, frozenset({"no clock check"})),
    "a replay of a keyed table ends before the committed offsets": Mutation(
        "P8", 44, patches=[(model, "to_upsert", _only_asked), (checks, "_misfits", lambda *_: iter(()))]
    ),
    "a run that Dagster shows is taken to be alive": Mutation("P5", 67, patches=[(runs, "why_dead", lambda *_: None)]),
    "a tick waits for whoever the ledger has at work": Mutation(
        "P5", 18, patches=[(look, "is_over", lambda *_: False)]
    ),
    "services leave what died before them undone": Mutation(
        "P5", 55, patches=[(ServicesInMemory, "pending_clusterings", lambda _: ())]
    ),
    "a commit is reported before it is flushed": Mutation(
        "P5", 29, patches=[(TransactionProtocol, "_sync_commit", lambda *_: [])]
    ),
    "what a dead begin has written is not flushed by the next": Mutation(
        "TableUnreachable",
        4063249,
        patches=[(storage, "PRIMARY", ""), (TransactionPorts, "flush_all", _nothing)],
    ),
    "small files are not flushed": Mutation("TableUnreachable", 59, frozenset({"no flush of small files"})),
    "what services merge is not flushed": Mutation("P1", 69, frozenset({"no flush of merged files"})),
    "a commit does not look for what a power cut has damaged": Mutation(
        "P5",
        1089,
        # The next begin would find that the table does not list what the commit has.
        patches=[(TransactionProtocol, "_repair", lambda *_: ()), (protocol, "require_sound", _nothing)],
    ),
    # Each undoes the mend of an incident that docs/guarantees.md names.
    "no tick looks at the consumer group": Mutation(
        "P5", 2811, patches=[(PipelineMemory, "keep_group_told", lambda *_: "")]
    ),
    "a tick asks about a transaction before it restores hoodie.properties": Mutation(
        "P5", 767, patches=[(look, "mark_if_committed", _without_restoring)]
    ),
    "what services commit is not flushed at once": Mutation(
        "P5", 1129, frozenset({"no flush of what services commit"})
    ),
    "a client that begins renews its heartbeat": Mutation("P5", 3716, frozenset({"a begin renews its heartbeat"})),
    "a late change is written whatever came since": Mutation(
        "P8", 345, patches=[(LateChanges, "_verdict", lambda *_: True)]
    ),
    "a begin does not say which record a slice follows": Mutation(
        "P1, P2, P3", 110, patches=[(protocol, "_follows", lambda *_: {})]
    ),
    "a log that was cut is not remembered": Mutation("P6", 54, patches=[(cut_logs, "_write", _nothing)]),
    "a late change without a row is never held": Mutation(
        "P8", 1213, patches=[(LateChanges, "_truncated", lambda *_: None)]
    ),
}
"""By what is broken."""
