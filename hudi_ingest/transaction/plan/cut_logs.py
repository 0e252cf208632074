"""Partitions whose log the broker cut before their committed offset, remembered in the table.

Offsets show a cut only until producers have passed the committed offset: then the plan would go on in the middle of other records. So
whoever finds one writes it into a file of the table, where every plan, status and check finds it, whatever becomes of the ledger. It
stands until a person accepts the loss, or until the broker has the last record that was read: then it has all before it, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace

from hudi_ingest.exceptions import IngestError, LogTruncated, TableUnreachable
from hudi_ingest.hudi.storage.paths import CUT_LOGS
from hudi_ingest.hudi.storage.storage import TableStorage, advice
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import LastRecord, TopicPartition, Watermarks
from hudi_ingest.model.plan import LogCut
from hudi_ingest.transaction.plan.arithmetic import cut_at, found_cut

_logger = logging.getLogger(__name__)

LogComparer = Callable[[Mapping[TopicPartition, LastRecord]], Mapping[TopicPartition, int | bool]]
"""Asks the broker whether these are still records of its logs: True; False if not; where the logs part, if the broker can say that. Without
those about which it does not answer."""


def cut_logs(
    storage: TableStorage,
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    topic_ids: Mapping[str, str],
    compare: LogComparer,
) -> dict[TopicPartition, LogCut]:
    """Return the partitions whose log was found to be cut, now or before; new ones are remembered. One that ends behind the committed
    offset again is forgotten if `compare` says that it has the last record that was read. Raises TableUnreachable."""
    if checkpoint is None:
        return {}
    known = _current(_read(storage), checkpoint)
    cuts = {**found_cut(checkpoint, watermarks, topic_ids), **known}
    if not cuts:
        return {}
    for source, answer in _compared(cuts, checkpoint, watermarks, compare).items():
        if answer is True and watermarks[source].end >= checkpoint.offsets[source]:
            _logger.warning("%s: the broker has the old records again, so it is no longer stopped", source)
            del cuts[source]
        elif not isinstance(answer, bool):
            cuts[source] = replace(cuts[source], diverges_at=answer)
    if cuts != known:
        try:
            _write(storage, cuts.values())
        except OSError as error:
            # Whoever may only read the table sees it all the same, and the next who may write remembers it.
            _logger.warning("%s cannot be written to %s: %s", CUT_LOGS, storage.base_path, error)
    return cuts


def other_logs(
    checkpoint: Checkpoint,
    watermarks: Mapping[TopicPartition, Watermarks],
    sources: Iterable[TopicPartition],
    compare: LogComparer,
) -> dict[TopicPartition, LogCut]:
    """Return those of the partitions whose log was cut by what `compare` says of their last records. For ranges before the committed
    offsets, which follow no record that is known."""
    answers = _compared(sources, checkpoint, watermarks, compare)
    return {
        source: cut_at(checkpoint, source, None if answer is False else answer)
        for source, answer in answers.items()
        if answer is not True
    }


def _compared(
    sources: Iterable[TopicPartition],
    checkpoint: Checkpoint,
    watermarks: Mapping[TopicPartition, Watermarks],
    compare: LogComparer,
) -> Mapping[TopicPartition, int | bool]:
    asked = {
        source: checkpoint.last[source]
        for source in checkpoint.last.keys() & {*sources}
        if source in watermarks and watermarks[source].led
    }
    return compare(asked) if asked else {}


def remember(storage: TableStorage, checkpoint: Checkpoint, error: LogTruncated) -> None:
    """Remember the partition whose log the error says was cut before its committed offset. Raises TableUnreachable."""
    source = TopicPartition(str(error.topic), int(error.partition or 0))
    cuts = {**_current(_read(storage), checkpoint), source: cut_at(checkpoint, source, error.diverges_at)}
    _changed(storage, cuts.values())


def forget(storage: TableStorage, checkpoint: Checkpoint, sources: Iterable[TopicPartition]) -> None:
    """Forget that the logs of these partitions were cut, because a person has accepted it. Raises TableUnreachable."""
    accepted, noted = {*sources}, _read(storage)
    if accepted & {cut.source for cut in noted}:
        kept = _current(noted, checkpoint)
        _changed(storage, [cut for source, cut in kept.items() if source not in accepted])


def _current(cuts: Iterable[LogCut], checkpoint: Checkpoint) -> dict[TopicPartition, LogCut]:
    """The cut logs of the topics that the table has, and before the committed offsets."""
    ids = {topic: version.topic_id for topic, version in checkpoint.topics.items()}
    return {
        cut.source: cut
        for cut in cuts
        if checkpoint.offsets.get(cut.source, -1) >= cut.committed
        and ("" in (known := {cut.topic_id, ids.get(cut.topic, "")}) or len(known) == 1)
    }


def _changed(storage: TableStorage, cuts: Iterable[LogCut]) -> None:
    try:
        _write(storage, cuts)
    except OSError as error:
        raise _unreachable(storage, "written", error, advice(error)) from error


def _write(storage: TableStorage, cuts: Iterable[LogCut]) -> None:
    listed = sorted(cuts, key=lambda cut: cut.source)
    storage.replace(CUT_LOGS, json.dumps([asdict(cut) for cut in listed], indent=1).encode())


def _read(storage: TableStorage) -> list[LogCut]:
    try:
        return [LogCut(**cut) for cut in json.loads(storage.read(CUT_LOGS))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreachable(storage, "read", error, advice(error)) from error
    except (ValueError, TypeError) as error:
        remedy = "Restore it from a copy, or delete it if no partition is stopped because its log was cut."
        raise _unreachable(storage, "read", error, remedy) from error


def _unreachable(storage: TableStorage, done: str, error: Exception, remedy: str) -> IngestError:
    return TableUnreachable(
        f"{CUT_LOGS} of the table at {storage.base_path}, which lists the partitions whose log was cut, cannot be {done}: {error}. {remedy}"
    )
