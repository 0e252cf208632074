"""P1–P5, R8: an error at each durable step, and then all goes on; in `make test` at one step of each class. The whole matrix is `make chaos`;
kills are test_kills.py's."""

from __future__ import annotations

import pytest

from hudi_ingest.exceptions import Fenced, IngestError
from hudi_ingest.faults import POINTS, InjectedFault
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import keep_group_told, mark_if_committed, observe
from hudi_ingest_tests.chaos.cases import AT_EVERY_POINT, IN_THE_SENSOR, matrix
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.lineage_backend import told_of_transactions
from hudi_ingest_tests.support.struck_table import send

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

IN_AN_ABORT = ("abort_retired", "abort_rolled_back")
IN_A_RUN = [point for point in POINTS if point not in (*IN_AN_ABORT, "tick_planned")]
ONE_OF_EACH_CLASS = ["epoch_advanced", "instant_inflight", "rows_written", "commit_checked", "commit_landed"]
"""Before the instant, while it begins, while its files are written, in the commit, and once it is published."""
OTHERS = [point for point in IN_A_RUN if point not in ONE_OF_EACH_CLASS]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(ONE_OF_EACH_CLASS, marks=pytest.mark.tier(1)),
        *(OTHERS[first : first + 6] for first in range(0, len(OTHERS), 6)),
    ],
    ids=lambda points: f"{points[0]} to {points[-1]}",
)
def test_p1_p2_p5_after_an_error_at_any_point_the_next_transaction_goes_on(
    points: list[str], shared: Ground, struck: Pipeline, fault: Fault
) -> None:
    """The next one fails, too, at the next point, and has to clear up first what the one before has left."""
    for point in points:
        send(shared, 10)
        fault.arm(point, "raise")
        if point == "letters_copied":
            # Nothing after a durable commit may fail it.
            assert any("its dead letters are not copied yet" in each for each in shared.run(struck).warnings)
        else:
            with pytest.raises((InjectedFault, IngestError)):
                shared.run(struck)
        assert fault.was_reached(point), point
    send(shared, 5)
    shared.run(struck)
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found
    assert [row.state for row in shared.ledger.transactions.history(struck.name, 2)].count(TransactionState.OPEN) == 0


@pytest.mark.parametrize("point", [pytest.param(IN_AN_ABORT[0], marks=pytest.mark.tier(1)), *IN_AN_ABORT[1:]])
def test_p5_an_abort_that_breaks_off_is_finished_by_the_next_begin(
    point: str, shared: Ground, struck: Pipeline, fault: Fault
) -> None:
    send(shared, 10)
    protocol = shared.protocol(struck)
    opened = protocol.begin(shared.plan(struck), Owner.dagster_run("r"), lambda run: True)
    reports = protocol.write(opened, opened.plan.slices)
    fault.arm(point, "raise")
    with pytest.raises(InjectedFault):
        protocol.abort(opened, "a test")
    with pytest.raises(Fenced):
        protocol.commit(opened, reports)
    later = protocol.begin(shared.plan(struck), Owner.this_process(), lambda run: True)
    protocol.commit(later, protocol.write(later, later.plan.slices))
    assert verify(shared.base_path, shared.produced).exact
    assert protocol.instants.open_instants() == ()


def test_r8_a_commit_that_nobody_was_told_of_is_told_by_the_next_tick(
    shared: Ground, struck: Pipeline, fault: Fault
) -> None:
    send(shared, 3)
    fault.arm("commit_landed", "raise")
    with told_of_transactions() as lineage:
        with pytest.raises(InjectedFault):
            shared.run(struck)
        row = shared.ledger.transactions.history(struck.name, 1)[0]
        assert row.state is TransactionState.OPEN
        assert [document["eventType"] for document in lineage.documents] == ["START"]
        assert mark_if_committed(PipelineTable(struck), shared.ledger, row.transaction_id)
        assert not mark_if_committed(PipelineTable(struck), shared.ledger, row.transaction_id), "once"
    start, complete = lineage.documents
    assert (complete["eventType"], complete["run"]["runId"]) == ("COMPLETE", start["run"]["runId"])
    assert shared.ledger.transactions.history(struck.name, 1)[0].state is TransactionState.COMMITTED
    assert not mark_if_committed(PipelineTable(struck), shared.ledger, "never begun")
    situation = observe(struck)
    assert situation.committed.checkpoint is not None
    assert keep_group_told(struck, situation)
    offsets = dict(situation.committed.checkpoint.offsets)
    assert KafkaCluster(struck.source).group_offsets(struck.group_id, offsets) == offsets
    assert not keep_group_told(struck, situation)


def test_every_point_is_struck_by_every_fault() -> None:
    assert {*IN_A_RUN, *IN_AN_ABORT, "tick_planned"} == set(POINTS)
    struck = {(blows[-1].point, blows[-1].fault) for blows in matrix()}
    for point in POINTS:
        assert {fault for at, fault in struck if at == point} >= set(IN_THE_SENSOR.get(point, AT_EVERY_POINT))
