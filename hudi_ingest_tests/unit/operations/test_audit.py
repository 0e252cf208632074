"""Audits of a table in Parquet files, whose rows, folders and bytes tests change by hand; the topic's records are in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from hudi_ingest.cli.views import audit_text
from hudi_ingest.hudi.files.new_files import BaseFileLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Instants
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.accounting import Accounting, contradictions
from hudi_ingest.model.certificate import Certificate, Certified
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import (
    BackfillPlan,
    IngestPlan,
    LossReason,
    OffsetLoss,
    ReplayPlan,
    RetryPlan,
    TransactionKind,
    TransactionPlan,
)
from hudi_ingest.model.report import SliceReport, certified_after
from hudi_ingest.model.stretches import Stretch, stretches_of
from hudi_ingest.operations import audit as audits
from hudi_ingest.operations.audit import Audit, Auditor, changed_columns, corrected, starts_over, unnamed_files
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.transform.chain import Chain
from hudi_ingest.transaction.write.reports import slice_report
from hudi_ingest.transaction.write.task import WriteTask, outcomes
from hudi_ingest_tests.support.task_reports import reports_of

pytestmark = pytest.mark.fast

ROWS = int(os.environ.get("HUDI_INGEST_AUDIT_ROWS", "100000"))
FAULTS = min(10_000, ROWS // 100)
INSTANT = "20261121120000000"
RECORD = pa.schema([("id", pa.string()), ("n", pa.int64()), ("dt", pa.string())])
COLUMNS = pa.schema(
    [*RECORD, pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
)
SOURCES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
SLICES = 5
BATCH = 20_000


class Made:
    """A table that one transaction after another appended to, and what audits it."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.each = folder / "table", rows // len(SOURCES)
        settings = {
            "name": "orders",
            "source": {"bootstrap_servers": "localhost:9092", "topics": ["orders"]},
            "table": {"base_path": str(self.folder), "schema": "id string, n long, dt string", "partition_by": ["dt"]},
        }
        file = folder / "orders.yaml"
        file.write_text(yaml.safe_dump(settings))
        self.pipeline = load_pipeline(file)
        self.storage = LocalStorage(str(self.folder))
        self.storage.write(heartbeat_path(INSTANT), b"")
        layout = BaseFileLayout(INSTANT, TableEpoch(self.storage).advance(1, "t-1"), ("dt",), rows, 1 << 30, "zstd")
        self.maker = RowMaker(converter_for("json", RECORD), Chain.of(RECORD, ()), COLUMNS, ("dt",))
        task = WriteTask(self.storage, layout, self.maker, dict.fromkeys(SOURCES, 0), certifies=True)
        texts = []
        step = self.each // SLICES
        for sequence in range(SLICES):
            slices = [Slice(s.topic, s.partition, sequence * step, (sequence + 1) * step) for s in SOURCES]
            reports = []
            for slice_ in slices:
                (report,) = reports_of(outcomes(task, self.read([slice_], ["key"])))
                reports.append(slice_report(slice_, 0, [report], 1.0))
            texts.append(
                Accounting.of(IngestPlan("orders", f"t-{sequence}", sequence + 1, tuple(slices)), reports).to_json()
            )
        self.checkpoint = Checkpoint(
            SLICES, "t", dict.fromkeys(SOURCES, self.each), covered=dict.fromkeys(SOURCES, ((0, self.each),))
        )
        self.stretches = stretches_of([Accounting.from_json(text) for text in texts], self.checkpoint)

    def read(
        self, slices: Collection[Slice], columns: Collection[str]
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        for slice_ in slices:
            for start in range(slice_.start, slice_.end, BATCH):
                numbers = range(start, min(start + BATCH, slice_.end))
                values = [
                    f'{{"id":"{slice_.partition}-{n}","n":{n},"dt":"2026-01-0{n % 3 + 1}"}}'.encode() for n in numbers
                ]
                content = {
                    "offset": pa.array(numbers, pa.int64()),
                    "timestamp": pa.repeat(pa.scalar(0, RECORDS.field("timestamp").type), len(numbers)),
                    "value": pa.array(values, pa.binary()),
                    "key": pa.array(values, pa.binary()),
                }
                yield slice_.source, pa.RecordBatch.from_pydict(content)

    @property
    def paths(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob("dt=*/*.parquet"))

    def audit(
        self,
        readable: bool = True,
        stretches: list[Stretch] | None = None,
        paths: Sequence[str] | None = None,
        **others: Any,
    ) -> Audit:
        stretches = stretches or self.stretches
        unknown = others.get("unknown", ())
        every = frozenset(index for index, each in enumerate(stretches) if each.source not in unknown)
        return Auditor(
            "orders",
            self.storage,
            self.paths if paths is None else paths,
            stretches,
            every,
            every if readable else frozenset(),
            self.read,
            lambda: self.maker,
            lambda line: None,
            self.pipeline.table,
            **others,
        ).run()


def found(audit: Audit, kind: str) -> set[tuple[int, int]]:
    return {
        (each.partition, offset)
        for each in audit.faults
        if each.kind == kind
        for offset in range(each.offset, each.end)
    }


def found_offsets(audit: Audit, kind: str) -> set[int]:
    return {offset for _, offset in found(audit, kind)}


def rewrite(path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("whole"), ROWS)


def test_a_table_as_it_was_written_has_no_fault(whole: Made) -> None:
    for readable in (True, False):
        audit = whole.audit(readable)
        assert (audit.faults, audit.rows, audit.certified) == ((), ROWS, ROWS)
        assert audit.records == (ROWS if readable else 0)
        assert audit.through == {"orders:0": whole.each, "orders:1": whole.each}
        assert bool(audit.unexamined) != readable, "it names what the broker no longer has"
    without = whole.audit(stretches=[each.uncertified for each in whole.stretches])
    assert (without.faults, without.certified) == ((), 0), "row by row"
    nothing = whole.audit(False, [each.uncertified for each in whole.stretches])
    assert nothing.through == {"orders:0": 0, "orders:1": 0}
    assert len(nothing.unexamined) == len(whole.stretches)


@pytest.mark.parametrize("certified", [True, False])
def test_p1_p2_every_fault_is_found_and_named(tmp_path: Path, certified: bool) -> None:
    made = Made(tmp_path, ROWS)
    random = np.random.default_rng(7)
    chosen = random.permutation(made.each)[: 5 * FAULTS]
    kinds = ("lost", "doubled", "altered", "moved", "misplaced")
    faults = {kind: set(chosen[n * FAULTS : (n + 1) * FAULTS].tolist()) for n, kind in enumerate(kinds)}
    strays: dict[str, list[pa.Table]] = {folder: [] for folder in ("dt=2026-01-01", "dt=2026-01-02", "dt=2026-01-03")}
    for path in made.paths:
        file, folder = made.folder / path, path.partition("/")[0]
        rows = pq.ParquetFile(file).read()
        if rows[PARTITION][0].as_py() != 1:
            continue
        offsets = rows[OFFSET].to_numpy()
        where = {kind: np.isin(offsets, [*places]) for kind, places in faults.items()}
        changed = rows["n"].to_numpy() + where["altered"]
        rows = rows.set_column(rows.schema.get_field_index("n"), "n", pa.array(changed))
        # Moved rows claim to be of offsets that the table never had.
        beyond = np.where(where["moved"], -1 - offsets, offsets)
        rows = rows.set_column(rows.schema.get_field_index(OFFSET), OFFSET, pa.array(beyond))
        strays[folder].append(rows.filter(pa.array(where["doubled"])))
        other = next(each for each in strays if each != folder)
        strays[other].append(rows.filter(pa.array(where["misplaced"])))
        rewrite(file, rows.filter(pa.array(~where["lost"] & ~where["misplaced"])))
    for folder, parts in strays.items():
        rewrite(made.folder / folder / "stray.parquet", pa.concat_tables(parts))
    audit = made.audit(stretches=None if certified else [each.uncertified for each in made.stretches])
    at = {kind: {(1, offset) for offset in places} for kind, places in faults.items()}
    assert found(audit, "lost") == at["lost"] | at["moved"]
    assert found(audit, "doubled") == at["doubled"]
    elsewhere = {(1, -1 - offset) for offset in faults["moved"]}
    assert found(audit, "altered") == at["altered"] | elsewhere, "whose record keys say where they belong"
    assert found(audit, "moved") == at["misplaced"] | elsewhere
    first = min(min(places) for places in faults.values())
    assert audit.through == {"orders:0": made.each, "orders:1": first}


def test_p1_without_the_topic_faults_are_named_as_far_as_the_table_shows_them(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    [lost, doubled, altered] = [path for path in made.paths if "dt=2026-01-01" in path][:3]
    rows = pq.ParquetFile(made.folder / lost).read()
    gone = rows[OFFSET][4].as_py()
    rewrite(made.folder / lost, pa.concat_tables([rows.slice(0, 4), rows.slice(5)]))
    rows = pq.ParquetFile(made.folder / doubled).read()
    twice = rows[OFFSET][2].as_py()
    rewrite(made.folder / doubled, pa.concat_tables([rows, rows.slice(2, 1)]))
    rows = pq.ParquetFile(made.folder / altered).read()
    ids = ["other", *rows["id"].to_pylist()[1:]]
    rewrite(made.folder / altered, rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ids)))
    places = [pq.ParquetFile(made.folder / path).read()[PARTITION][0].as_py() for path in (lost, doubled, altered)]
    audit = made.audit(readable=False)
    assert found(audit, "lost") == {(places[0], gone)}
    assert found(audit, "doubled") == {(places[1], twice)}
    (fault,) = [each for each in audit.faults if each.kind == "altered"]
    assert rows[OFFSET][0].as_py() in range(fault.offset, fault.end), "its slice is known"


def test_p1_a_flipped_byte_is_found_in_every_column(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    name = made.paths[0]
    path = made.folder / name
    content, footer = path.read_bytes(), pq.read_metadata(path)
    rows = pq.ParquetFile(path).read()
    first = rows[OFFSET][0].as_py()
    for number in range(footer.num_columns):
        column = footer.row_group(0).column(number)
        # The last byte of the values, which are compressed.
        flipped = bytearray(content)
        start = column.dictionary_page_offset or column.data_page_offset
        flipped[start + column.total_compressed_size - 2] ^= 0x10
        path.write_bytes(bytes(flipped))
        faults = made.audit().faults
        (damaged,) = [each for each in faults if each.kind == "damaged"]
        assert (damaged.offset, name in damaged.text) == (first, True)
        if column.path_in_schema in (TOPIC, PARTITION, OFFSET):
            assert {each.kind for each in faults} == {"damaged", "lost"}, "nothing says which rows the file had"
        else:
            assert (faults, damaged.end) == ((damaged,), rows[OFFSET][-1].as_py() + 1)
            assert f"with {rows.num_rows} rows" in damaged.text
    path.write_bytes(b"PAR1" + bytes(len(content)))
    (fault,) = [each for each in made.audit().faults if each.kind == "damaged"]
    assert name in fault.text
    assert fault.offset == first


def test_p1_records_that_were_not_read_and_those_that_changed_are_faults(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    read = made.read

    def other(slices: Collection[Slice], columns: Collection[str]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        for source, batch in read(slices, columns):
            value = pa.array([b"{}", *batch["value"].to_pylist()[1:]], pa.binary())
            yield source, batch.set_column(batch.schema.get_field_index("value"), "value", value)

    made.read = other  # type: ignore[method-assign]
    kinds = {each.kind for each in made.audit().faults}
    assert kinds == {"altered"}
    made.read = read  # type: ignore[method-assign]
    # The table was written without the last record of the first slice.
    first = made.stretches[0]
    assert first.certificate is not None
    assert first.records is not None
    short = replace(
        first, records=first.records - 1, certificate=Certificate(first.certificate.read + 1, first.certificate.rows)
    )
    (fault,) = made.audit(stretches=[short, *made.stretches[1:]]).faults
    assert (fault.kind, fault.text) == ("lost", "the topic has 1 records that were not read")
    compacted = replace(short, records=first.records + 1)
    audit = made.audit(stretches=[compacted, *made.stretches[1:]])
    assert not audit.faults
    assert "compacted away" in audit.unexamined[0]


SOURCE = SOURCES[0]


def report(start: int, end: int, rows: int, digest: int) -> SliceReport:
    slice_ = Slice("orders", 0, start, end)
    return SliceReport(slice_, 0, rows=rows, gaps=end - start - rows, certificate=Certificate(digest, 10 * digest))


def accounting(plan: TransactionPlan, *reports: SliceReport) -> Accounting:
    return Accounting.from_json(Accounting.of(plan, reports).to_json())


def ingest(sequence: int, start: int, end: int) -> IngestPlan:
    return IngestPlan("orders", f"t{sequence}", sequence, (Slice("orders", 0, start, end),))


def checkpoint(end: int, certified: Mapping[TopicPartition, Certified] | None = None) -> Checkpoint:
    return Checkpoint(9, "t", {SOURCE: end}, covered={SOURCE: ((0, end),)}, certified=certified or {})


def spans(stretches: list[Stretch]) -> list[tuple[int, int, int | None, Certificate | None]]:
    return [(each.start, each.end, each.rows, each.certificate) for each in stretches]


def test_certificates_outlive_archived_commits_by_the_checkpoint() -> None:
    before = None
    for sequence, (start, end) in enumerate([(0, 10), (10, 20), (20, 25)], 1):
        part = report(start, end, end - start, sequence)
        certified = certified_after(before, ingest(sequence, start, end), [part])
        before = Checkpoint.from_json(checkpoint(end, certified=certified).to_json())
        assert before.certified == certified
    assert before is not None
    assert before.certified == {SOURCE: Certified(0, 25, Certificate(6, 60))}
    idle = SliceReport(Slice("orders", 0, 25, 25), 0)
    assert certified_after(before, ingest(4, 25, 25), [idle]) == before.certified, "nothing was read"
    older = replace(report(25, 30, 5, 1), certificate=None)
    assert certified_after(before, ingest(4, 25, 30), [older]) == {}
    last = accounting(ingest(3, 20, 25), report(20, 25, 5, 3))
    assert spans(stretches_of([last], before)) == [
        (0, 20, 20, Certificate(3, 30)),
        (20, 25, 5, Certificate(3, 30)),
    ]
    # An older version's commits had none.
    assert spans(stretches_of([], checkpoint(25))) == [(0, 25, None, None)]


def test_certificates_begin_anew_after_a_reset_and_outlive_archived_commits() -> None:
    """A reset whose commits are archived, too: what was read before it is no part of the sum, and none of it is subtracted."""
    lost = OffsetLoss("orders", 0, 30, 10, None, LossReason.RECREATED)
    plans = [ingest(1, 0, 20), ingest(2, 20, 30), replace(ingest(3, 10, 15), resets=(lost,)), ingest(4, 15, 25)]
    parts = [report(p.slices[0].start, p.slices[0].end, p.slices[0].count, 2**p.sequence) for p in plans]
    certified: Mapping[TopicPartition, Certified] = {}
    for plan, part in zip(plans, parts, strict=True):
        certified = certified_after(checkpoint(plan.slices[0].end, certified), plan, [part])
    assert certified == {SOURCE: Certified(10, 15, Certificate(8 + 16, 10 * (8 + 16)))}
    now = replace(checkpoint(25, certified), covered={SOURCE: ((10, 25),)})
    texts = [accounting(plan, part) for plan, part in zip(plans, parts, strict=True)]
    for archived in range(len(plans) + 1):
        found = stretches_of(texts[archived:], now)
        assert spans(found) == (
            [(10, 25, 15, Certificate(24, 240))]
            if archived == len(plans)
            else [(10, 15, 5, Certificate(8, 80)), (15, 25, 10, Certificate(16, 160))]
        )
    # Retention leaves a gap, whose offsets were never read; what is before it is another's sum.
    gap = OffsetLoss("orders", 0, 20, 24, 4, LossReason.RETENTION)
    later = replace(ingest(2, 24, 30), resets=(gap,))
    parts = [report(0, 20, 20, 1), report(24, 30, 6, 2)]
    certified = certified_after(checkpoint(20, certified_after(None, ingest(1, 0, 20), parts[:1])), later, parts[1:])
    assert certified == {SOURCE: Certified(24, 6, Certificate(2, 20))}
    now = replace(checkpoint(30, certified), covered={SOURCE: ((0, 20), (24, 30))})
    assert spans(stretches_of([], now)) == [(0, 20, None, None), (24, 30, 6, Certificate(2, 20))]
    texts = [accounting(ingest(1, 0, 20), parts[0]), accounting(later, parts[1])]
    assert spans(stretches_of(texts, now)) == [(0, 20, 20, Certificate(1, 10)), (24, 30, 6, Certificate(2, 20))]
    # A savepoint kept the first commit, and the second is archived.
    assert spans(stretches_of(texts[:1], now)) == [(0, 20, 20, Certificate(1, 10)), (24, 30, 6, Certificate(2, 20))]


def test_a_replay_replaces_certificates_and_ends_the_checkpoints() -> None:
    first = accounting(ingest(1, 0, 10), report(0, 10, 10, 1))
    second = accounting(ingest(2, 10, 20), report(10, 20, 9, 2))
    part = report(0, 10, 8, 5)
    plan = ReplayPlan("orders", "t3", 3, (part.slice,))
    stretches = stretches_of([accounting(plan, part), first, second], checkpoint(20))
    assert spans(stretches) == [(0, 10, 8, Certificate(5, 50)), (10, 20, 9, Certificate(2, 20))]
    known = checkpoint(20, certified={SOURCE: Certified(5, 14, Certificate(3, 30))})
    assert certified_after(known, plan, [part]) == {}
    assert (
        certified_after(known, replace(plan, slices=(Slice("orders", 0, 0, 5),)), [report(0, 5, 5, 1)])
        == known.certified
    )
    across = report(5, 12, 7, 7)
    plan = ReplayPlan("orders", "t4", 4, (across.slice,))
    assert spans(stretches_of([first, second, accounting(plan, across)], checkpoint(20))) == [
        (0, 5, None, None),
        (5, 12, 7, Certificate(7, 70)),
        (12, 20, None, None),
    ]


def test_a_retry_adds_to_certificates() -> None:
    first = accounting(ingest(1, 0, 10), report(0, 10, 8, 1))
    retried = report(3, 10, 2, 9)
    plan = RetryPlan("orders", "t2", 2, (retried.slice,))
    assert spans(stretches_of([first, accounting(plan, retried)], checkpoint(10))) == [(0, 10, 10, Certificate(1, 100))]
    assert spans(stretches_of([accounting(plan, retried)], checkpoint(10))) == [(0, 3, None, None), (3, 10, None, None)]


def test_a_backfill_has_a_certificate_of_its_own() -> None:
    part = report(0, 10, 10, 4)
    backfill = accounting(BackfillPlan("orders", "t2", 2, (part.slice,)), part)
    first = accounting(ingest(1, 10, 20), report(10, 20, 10, 1))
    found = stretches_of([first, backfill], checkpoint(20))
    assert spans(found) == [(0, 10, 10, Certificate(4, 40)), (10, 20, 10, Certificate(1, 10))]


def test_columns_that_digests_no_longer_have_are_named() -> None:
    written = json.loads('{"fields":[{"name":"id","type":"string"},{"name":"n","type":["null","int"]}]}')
    assert changed_columns(written, pa.schema([("id", pa.string()), ("n", pa.int64()), ("new", pa.string())])) == ""
    assert changed_columns(written, pa.schema([("n", pa.int64())])) == "dropped: id"
    assert changed_columns(written, pa.schema([("id", pa.string()), ("n", pa.float64())])) == "widened: n"


def test_a_file_without_a_footer_is_one_fault_with_the_rows_that_are_lost_with_it(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    path = made.folder / made.paths[0]
    content, rows = path.read_bytes(), pq.ParquetFile(path).read()
    source, offsets = rows[PARTITION][0].as_py(), rows[OFFSET].to_pylist()
    for damaged in (content[: len(content) // 2], content[:-4] + b"PARX", b"", None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        paths = [*dict.fromkeys([str(path.relative_to(made.folder)), *made.paths])]
        audit = made.audit(paths=paths)
        (fault,) = audit.faults
        assert (fault.kind, fault.partition, fault.offset) == ("damaged", source, offsets[0])
        assert (
            f"; {len(offsets)} rows from orders:{source} offset {offsets[0]} to orders:{source} offset {offsets[-1]}"
            in fault.text
        )
        assert audit.through[f"orders:{source}"] == offsets[0]
        assert audit.through[f"orders:{1 - source}"] == made.each
    # The name of a file that clustering made says nothing of its rows, here those of two partitions.
    path.write_bytes(content)
    other = next(p for p in made.paths if pq.ParquetFile(made.folder / p).read()[PARTITION][0].as_py() != source)
    for each in (made.folder / other, path):
        each.unlink()
    clustered = path.with_name("0a1b2c3d-0000-4000-8000-000000000000-0_0-1-0_20261121130000000.parquet")
    clustered.write_bytes(b"PAR1")
    audit = made.audit()
    (fault,) = audit.faults
    assert clustered.name in fault.text
    assert audit.through == {"orders:0": 0, "orders:1": 0}


def test_commit_times_are_compared_with_the_instants_of_files(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    path = made.folder / made.paths[0]
    rows = pq.ParquetFile(path).read()
    first = rows[OFFSET][0].as_py()
    own = accounting(ingest(1, 0, 5), report(0, 5, 5, 1))

    def with_time(time: str | None) -> list[str]:
        times = pa.array([time, *rows["_hoodie_commit_time"].to_pylist()[1:]], pa.string())
        rewrite(path, rows.set_column(0, "_hoodie_commit_time", times))
        found = made.audit(by_instant={INSTANT: own} if is_own else {}).faults
        assert all((each.kind, each.offset) == ("altered", first) for each in found)
        return [each.text.partition(" (file")[0] for each in found]

    for is_own in (True, False):
        assert with_time(INSTANT) == []
        (text,) = with_time("20270101000000000")
        assert (
            text == f"1 row with the commit time 20270101000000000 in a file of {INSTANT}; incremental readers go by it"
        )
        assert len(with_time(None)) == 1
        # A clustered file, and a replay's copy of others' rows, has older ones.
        assert bool(with_time("20260101000000000")) == is_own
    own = replace(own, kind=TransactionKind.REPLAY)
    is_own = True
    assert with_time("20260101000000000") == []


def test_rows_from_before_offsets_started_over_are_left_out_by_their_keys(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    assert made.audit(since={SOURCES[0]: ((0, 0),)}).faults == ()
    # Rows of today's generation take the place of those of partition 1, beside which the former ones stay.
    for name in made.paths:
        path = made.folder / name
        rows = pq.ParquetFile(path).read()
        if rows[PARTITION][0].as_py() == 1:
            keys = pa.array([f"{key}-g1" for key in rows["_hoodie_record_key"].to_pylist()])
            place = rows.schema.get_field_index("_hoodie_record_key")
            rewrite(path.with_name(f"again-{path.name}"), rows.set_column(place, "_hoodie_record_key", keys))
    found = made.audit(since={SOURCES[1]: ((0, 1),)})
    assert (found.faults, found.certified) == ((), 1000)
    assert {each.kind for each in made.audit().faults} == {"doubled"}
    # Before the offset from which the logs differ, the former rows count.
    part = made.audit(since={SOURCES[1]: ((300, 1),)})
    assert found_offsets(part, "doubled") == {*range(300)}
    assert made.audit(unknown=frozenset(SOURCES[1:])).faults == ()


def test_which_partitions_started_over_and_since_when() -> None:
    def reset(sequence: int, *losses: OffsetLoss) -> Accounting:
        return accounting(replace(ingest(sequence, 0, 5), resets=losses), report(0, 5, 5, 1))

    def loss(partition: int, reason: LossReason) -> OffsetLoss:
        return OffsetLoss("orders", partition, 30, 0, None, reason)

    known = replace(checkpoint(5), offsets=dict.fromkeys(SOURCES, 5), topics={"orders": TopicVersion("id", 2)})
    first = reset(1, loss(0, LossReason.TRUNCATED), loss(1, LossReason.RETENTION))
    second = reset(2, loss(0, LossReason.TRUNCATED))
    assert starts_over([second, first], known) == ({SOURCES[0]: ((0, 1), (0, 2))}, set())
    both = reset(2, *(loss(number, LossReason.RECREATED) for number in (0, 1)))
    assert starts_over([first, both], known) == ({SOURCES[0]: ((0, 1), (0, 2)), SOURCES[1]: ((0, 2),)}, set())
    # The first one is archived: whether it was partition 1's is unknown.
    assert starts_over([second], known) == ({SOURCES[0]: ((0, 2),)}, {SOURCES[1]})
    parted = reset(2, replace(loss(1, LossReason.TRUNCATED), diverges_at=3))
    assert starts_over([first, parted], known) == ({SOURCES[0]: ((0, 1),), SOURCES[1]: ((3, 2),)}, set())
    assert starts_over([parted], known) == ({SOURCES[1]: ((3, 2),)}, {*SOURCES})
    assert starts_over([], known) == ({}, {*SOURCES})
    assert starts_over([reset(3, loss(1, LossReason.RETENTION))], checkpoint(5)) == ({}, set())


def test_stretches_begin_anew_where_offsets_started_over() -> None:
    lost = OffsetLoss("orders", 0, 30, 0, None, LossReason.TRUNCATED)
    older = [accounting(ingest(1, 0, 20), report(0, 20, 20, 1)), accounting(ingest(2, 20, 30), report(20, 30, 10, 2))]
    again = accounting(replace(ingest(3, 0, 12), resets=(lost,)), report(0, 12, 12, 5))
    assert spans(stretches_of([*older, again], checkpoint(12))) == [(0, 12, 12, Certificate(5, 50))]
    # A log that was cut is the same up to where it parts from the one that was read.
    parted = replace(lost, restart=25, diverges_at=25)
    again = accounting(replace(ingest(3, 25, 40), resets=(parted,)), report(25, 40, 15, 5))
    assert spans(stretches_of([*older, again], checkpoint(40))) == [
        (0, 20, 20, Certificate(1, 10)),
        (20, 25, None, None),
        (25, 40, 15, Certificate(5, 50)),
    ]


def test_an_offset_that_was_changed_by_hand_does_not_hide_what_was_read() -> None:
    read = [accounting(ingest(1, 0, 9000), report(0, 9000, 9000, 1))]
    for committed in (8995, 9005):
        wrong = [*contradictions(replace(checkpoint(committed), sequence=1), read)]
        assert [(each.read_to, each.committed) for each in wrong] == [(9000, committed)]
        right = corrected(checkpoint(committed), wrong)
        assert (right.offsets, right.covered) == ({SOURCE: 9000}, {SOURCE: ((0, 9000),)})
        assert spans(stretches_of(read, right)) == [(0, 9000, 9000, Certificate(1, 10))]


def test_files_that_nothing_names_are_told_from_those_that_are_replaced_pending_or_another_writers() -> None:
    group = "00000000-0000-0000-0000-000000000000-0"
    instants = {name: f"2026112112000{name}000" for name in "0123456"}

    def base(file_id: str, instant: str) -> str:
        return f"dt=a/{file_id}_0-1-0_{instants[instant]}.parquet"

    def log(file_id: str, instant: str, token: str = "0-0000000000000000001-00000000000000000001") -> str:
        return f"dt=a/.{file_id}_{instants[instant]}.log.1_{token}"

    def commit(instant: str, *files: str, replaced: frozenset[tuple[str, str]] = frozenset()) -> CommittedInstant:
        at = datetime(2026, 11, 21, tzinfo=timezone.utc)
        return CommittedInstant(instants[instant], {}, at, dict.fromkeys(files, 1), replaced=replaced)

    commits = [
        commit("1", base("a", "1"), base("b", "1"), log(group, "1")),
        commit("2", base("c", "2"), replaced=frozenset({("dt=a", "b")})),
    ]
    live = {base("a", "1"), base("c", "2"), base(group, "1"), log(group, "1")}
    known = Instants(frozenset({instants["3"]}), frozenset(instants[number] for number in "124"))
    fine = [
        *live,
        base("b", "1"),
        base("d", "3"),
        base("e", "6"),
        base(group, "0"),
        log(group, "2"),
        "dt=a/.hoodie_partition_metadata",
        "dt=a/_SUCCESS",
        "dt=a/.x.parquet.crc",
    ]
    strays = ["dt=a/stray.parquet", base("f", "1"), base("g", "0"), base("deadbeef", "4"), log(group, "1", "0-2-3")]
    aborted = base("h", "5")
    found = [
        *unnamed_files(
            [*fine, *strays, aborted],
            replace(known, completed=known.completed | {instants["6"]}),
            commits,
            live,
            {instants["1"]},
        )
    ]
    assert found == [base("e", "6"), *strays, aborted]
    assert [*unnamed_files(fine, known, commits, live, {instants["1"]})] == []


def test_an_answer_says_what_was_not_examined(whole: Made) -> None:
    clean = audit_text(whole.audit())
    assert clean.startswith(
        f"{len(whole.paths)} files with {ROWS:,} rows ({ROWS:,} certified) and {ROWS:,} records: no offset is lost"
    )
    assert "never examined: Hudi's columns" in clean
    partly = whole.audit(readable=False)
    assert partly.is_right
    assert not partly.is_whole
    text = audit_text(partly)
    assert "no fault in what was examined" in text
    assert "no offset is lost" not in text
    assert "not examined: orders:0[0," in text
    wrong = replace(whole.audit(), problems=("the table contradicts itself",), notes=("a stray file",))
    assert not wrong.is_right
    assert "wrong: the table contradicts itself\n" in audit_text(wrong)
    assert "note: a stray file\n" in audit_text(wrong)
    assert replace(whole.audit(), notes=("a stray file",)).is_right
    assert wrong.to_dict()["never_examined"]


def test_rows_of_another_system_from_before_a_take_over_are_not_examined(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    folder = made.folder / made.paths[0].partition("/")[0]
    rows = pq.ParquetFile(made.folder / made.paths[0]).read()
    rewrite(folder / "theirs.parquet", rows.drop_columns([PARTITION, OFFSET]))
    nulls = pa.nulls(len(rows), pa.int32())
    rewrite(folder / "nulls.parquet", rows.set_column(rows.schema.get_field_index(PARTITION), PARTITION, nulls))
    found = made.audit()
    assert (found.faults, found.certified) == ((), 1000)
    assert sorted(text.partition(":")[0].rpartition("/")[2] for text in found.unexamined) == [
        "nulls.parquet",
        "theirs.parquet",
    ]


def test_rows_are_compared_without_the_columns_that_the_table_got_after_them(tmp_path: Path) -> None:
    made = Made(tmp_path, 1000)
    for name in made.paths:
        rows = pq.ParquetFile(made.folder / name).read()
        rewrite(
            made.folder / name, rows.set_column(rows.schema.get_field_index("n"), "n", pa.nulls(len(rows), pa.int64()))
        )
    uncertified = [each.uncertified for each in made.stretches]
    assert {each.kind for each in made.audit(stretches=uncertified).faults} == {"altered"}
    before = frozenset(COLUMNS.names) - {"n"}
    known = dict.fromkeys(range(len(uncertified)), before)
    assert made.audit(stretches=uncertified, columns_at=known).faults == ()
    # Only those stretches.
    del known[0]
    first = uncertified[0]
    found = made.audit(stretches=uncertified, columns_at=known).faults
    assert {(each.partition, each.offset) for each in found} == {(0, n) for n in range(first.start, first.end)}


def test_the_table_is_listed_anew_after_a_commit_in_between(
    whole: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction commits between the look at the checkpoint and the list of files: otherwise what it changed would look lost."""
    sequences = iter([1, 2, 2, 2])

    def committed() -> CommittedState:
        return CommittedState(True, replace(whole.checkpoint, sequence=next(sequences)))

    lists = iter([["old"], ["new"]])
    timeline = SimpleNamespace(base_file_paths=lambda: next(lists))
    table = SimpleNamespace(timeline=timeline, committed=committed)
    monkeypatch.setattr(audits, "observe", lambda pipeline, table: SimpleNamespace(committed=table.committed()))
    situation, groups, paths = audits._at_one_commit(whole.pipeline, cast(PipelineTable, table))
    assert situation.committed.checkpoint is not None
    assert (situation.committed.checkpoint.sequence, groups, paths) == (2, [], ["new"])
