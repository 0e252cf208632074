"""The begin op's wait for the table: which plan it tries next."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import DagsterInstance, build_op_context

from hudi_ingest.exceptions import IngestError, NothingToDo, PlanOutdated, TransactionInFlight
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan, TransactionPlan
from hudi_ingest.orchestration.jobs import table_asset
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction import run as ingest
from hudi_ingest_tests.support.pipeline_files import document

pytestmark = pytest.mark.fast

OUTDATED, IN_FLIGHT = PlanOutdated("the table has moved on"), TransactionInFlight("another is at work")


def plan(number: int) -> IngestPlan:
    return IngestPlan("orders", f"orders-{number}", number, (Slice("orders", 0, 10 * number, 10 * number + 5),))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Begin with the first plan while `answers` are in its way; returns the ids of the plans that were tried."""
    monkeypatch.setattr(ingest, "_ASK_AGAIN_SECONDS", 0.0)

    def begin(*answers: IngestError, plans_anew: bool, left: int = 9) -> list[str]:
        tried, waiting, planned = list[str](), [*answers], [plan(number) for number in range(1, left + 1)]

        def try_it(latest: TransactionPlan, *_: Any) -> Any:
            tried.append(latest.transaction_id)
            if waiting:
                raise waiting.pop(0)
            return SimpleNamespace(plan=latest)

        def plan_anew(*_: Any) -> IngestPlan:
            if not planned:
                raise NothingToDo("orders", "no new records")
            return planned.pop(0)

        monkeypatch.setattr(table_asset, "_planned_now", plan_anew)
        protocol: Any = SimpleNamespace(begin=try_it, ledger=None)
        with DagsterInstance.ephemeral() as instance:
            context: Any = build_op_context(instance=instance)
            pipeline = Pipeline.model_validate(document())
            table_asset._begun(context, pipeline, protocol, plan(0), plans_anew=plans_anew)
        return tried

    return begin


def test_a_plan_that_nobody_chose_is_made_anew_after_each_wait(begun: Callable[..., list[str]]) -> None:
    assert begun(plans_anew=True) == ["orders-0"]
    assert begun(IN_FLIGHT, OUTDATED, plans_anew=True) == ["orders-0", "orders-1", "orders-2"]


def test_a_plan_that_was_given_is_kept_and_fails_when_it_is_outdated(begun: Callable[..., list[str]]) -> None:
    assert begun(IN_FLIGHT, IN_FLIGHT, plans_anew=False) == ["orders-0"] * 3
    with pytest.raises(PlanOutdated):
        begun(IN_FLIGHT, OUTDATED, plans_anew=False)


def test_where_the_other_transaction_left_nothing_there_is_nothing_to_do(begun: Callable[..., list[str]]) -> None:
    with pytest.raises(NothingToDo):
        begun(IN_FLIGHT, plans_anew=True, left=0)
