"""People's own code in Spark's workers: what was corrected makes the next transaction's rows, though the workers had imported
the wrong version; what does not keep its promise ends the transaction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hudi_ingest.exceptions import DeadlineExceeded, TransformFailed
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CONVERTER = """
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.formats import converter_for


class Numbers:
    def __init__(self, schema, options):
        self._json = converter_for("json", schema)

    def decode(self, values):
        found = self._json.decode(values)
        rows = found.rows.set_column(1, found.rows.schema.field(1), pc.multiply(found.rows["n"], FACTOR))
        return Decoded(rows, found.kept, found.rejected)


FACTOR = """


@pytest.fixture
def module(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """own_numbers.py, which this process and Spark's workers can import."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(current_session(ground.home).sparkContext.environment, "PYTHONPATH", str(folder))
    yield folder / "own_numbers.py"
    sys.modules.pop("own_numbers", None)


def numbers(ground: Ground) -> list[int]:
    return sorted(ground.rows()["n"].to_pylist())


def test_p7_a_corrected_converter_is_used_by_the_next_transaction_and_by_the_replay(
    ground: Ground, topic: str, module: Path
) -> None:
    module.write_text(CONVERTER + "100\n")
    pipeline = make_pipeline(ground, source={"format": "own_numbers:Numbers"}, transaction={"max_records": 1000})
    ground.send_rows(0, 3)
    ground.run(pipeline)
    assert numbers(ground) == [0, 100, 200]
    module.write_text(CONVERTER + "1\n")
    ground.send_rows(0, 2, 3)
    ground.run(pipeline)
    assert numbers(ground) == [0, 3, 4, 100, 200]
    list(requested(ground, pipeline, TransactionKind.REPLAY, [Slice(ground.name, 0, 0, 3)]))
    assert numbers(ground) == [0, 1, 2, 3, 4]


def test_p3_a_function_that_loses_rows_ends_its_transaction_with_the_class_and_place_of_the_error(
    ground: Ground, topic: str, module: Path
) -> None:
    """Behind the batch in error are more records than Spark's connection to a worker holds."""
    module.write_text("def shortened(rows):\n    return rows.slice(1)\n")
    function = {"function": "own_numbers:shortened", "schema": "id string, n long, dt string"}
    pipeline = make_pipeline(ground, transforms=[{"python": function}])
    ground.send_rows(0, 100_000)
    with pytest.raises(TransformFailed, match=r"returned \d+ rows for \d+; it must return one for each") as raised:
        ground.run(pipeline)
    error = raised.value
    assert (error.topic, error.partition, error.offset) == (topic, 0, 0)
    assert str(error).endswith("Nothing of it is visible.")
    assert "in _checked" in str(error.__cause__), "the worker's traceback"
    assert list(Path(ground.base_path).rglob("*.parquet")) == []


def test_the_deadline_cancels_a_running_spark_job(ground: Ground, topic: str, module: Path) -> None:
    module.write_text("import time\n\n\ndef endless(rows):\n    time.sleep(300)\n    return rows\n")
    function = {"function": "own_numbers:endless", "schema": "id string, n long, dt string"}
    pipeline = make_pipeline(ground, transforms=[{"python": function}])
    ground.send_rows(0, 1)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    soon = datetime.now(timezone.utc) + timedelta(seconds=1)
    with pytest.raises(DeadlineExceeded, match="cancelled"):
        protocol.write(replace(opened, deadline=soon), opened.plan.slices)
    protocol.abort(opened, "too late")
