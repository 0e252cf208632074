"""Keyed tables on a real broker, Spark and Hudi: one row per key, whoever writes; read by Spark and by hudi-rs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.local.broker import create_topic
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Row = dict[str, Any]


@dataclass
class KeyedGround:
    """A ground whose topic holds changes, and what the table must therefore hold: n by (table partition, id)."""

    ground: Ground
    pipeline: Pipeline
    expected: dict[tuple[str, str], int] = field(default_factory=dict)

    def send(self, *changes: tuple[str, str, int | None]) -> None:
        """Produce changes (dt, id, n); None deletes. A key's changes are all in one Kafka partition."""
        for dt, key, n in changes:
            record = {"id": key, "dt": dt, "n": n or 0, "gone": n is None}
            self.ground.send(sum(key.encode()) % 2, [json.dumps(record).encode()])
            if n is None:
                self.expected.pop((dt, key), None)
            else:
                self.expected[dt, key] = n

    def require_expected(self) -> None:
        """Spark, Spark without the metadata table, and hudi-rs read exactly the expected rows."""
        spark = current_session(self.ground.home)
        for metadata_table in ("true", "false"):
            reader = spark.read.format("hudi").option("hoodie.metadata.enable", metadata_table)
            rows = reader.load(self.ground.base_path).select("dt", "id", "n").collect()
            assert sorted((row.dt, row.id, row.n) for row in rows) == self.expected_rows, metadata_table
        by_rust = self.ground.rows().select(["dt", "id", "n"]).to_pylist()
        assert sorted((row["dt"], row["id"], row["n"]) for row in by_rust) == self.expected_rows

    @property
    def expected_rows(self) -> list[tuple[str, str, int]]:
        return sorted((dt, key, n) for (dt, key), n in self.expected.items())


@pytest.fixture(scope="module")
def keyed(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedGround]:
    """The table that the tests of this module change one after another."""
    with fresh_ground(bootstrap_servers, tmp_path_factory.mktemp("keyed")) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        table = {
            "mode": "upsert",
            "key": ["id"],
            "buckets": 2,
            "delete_field": "gone",
            "schema": "id string, dt string, n long, gone boolean",
        }
        yield KeyedGround(ground, make_pipeline(ground, table=table))


def test_p1_p3_one_row_per_key(keyed: KeyedGround) -> None:
    keyed.send(*((f"d{n % 2}", f"k{n}", n) for n in range(20)))
    first = keyed.ground.run(keyed.pipeline)
    assert first.rows == 20
    keyed.require_expected()
    keyed.send(
        ("d0", "k0", 100), ("d0", "k0", 101), ("d1", "k1", None), ("d0", "k2", 5), ("d0", "k2", None), ("d2", "z", 1)
    )
    second = keyed.ground.run(keyed.pipeline)
    assert second.rows == 6
    assert sum(report.deletes for report in second.reports) == 2
    assert sum(report.superseded for report in second.reports) == 2
    keyed.require_expected()
    names = sorted(path.name for path in Path(keyed.ground.base_path, ".hoodie", "timeline").iterdir())
    assert sum(name.endswith(".deltacommit") for name in names) == 2, names
