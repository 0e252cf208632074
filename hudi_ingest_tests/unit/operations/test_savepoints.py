"""When a savepoint may be restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.hudi.services.savepoints import Savepoint
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger, RequestState
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.requests.planning import new_request
from hudi_ingest.operations.upkeep import savepoints
from hudi_ingest.operations.upkeep.savepoints import Savepoints
from hudi_ingest.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.fast

INSTANT = "20260310000000000"


class Client:
    """A table with one savepoint."""

    def __init__(self) -> None:
        self.restored: list[str] = []

    def list(self) -> tuple[Savepoint, ...]:
        return (Savepoint(INSTANT, "", ""),)

    def newest_commit(self) -> str:
        return INSTANT

    def create(self, instant: str, comment: str) -> None: ...

    def delete(self, instant: str) -> None: ...

    def restore(self, instant: str) -> None:
        self.restored.append(instant)


def test_no_restore_while_a_request_is_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timeline, "exists", lambda self: True)
    monkeypatch.setattr(Timeline, "properties", lambda self: {})
    monkeypatch.setattr(savepoints, "require_own_table", lambda pipeline, properties: None)
    pipeline = Pipeline.model_validate(
        {
            "name": "orders",
            "source": {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"]},
            "table": {"base_path": str(tmp_path / "table"), "schema": "id string"},
        }
    )
    client = Client()
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        request = ledger.requests.file(new_request(pipeline, TransactionKind.REPLAY, [Slice("orders", 0, 0, 9)]))
        kept = Savepoints(pipeline, ledger, client)
        with pytest.raises(TransactionInFlight, match=f"requests cancel {request.request_id}"):
            kept.restore(INSTANT, lambda line: None)
        assert client.restored == []
        ledger.requests.end(request.request_id, RequestState.CANCELLED, "the test")
        kept.restore(INSTANT, lambda line: None)
    assert client.restored == [INSTANT]
