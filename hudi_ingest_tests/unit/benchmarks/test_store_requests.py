"""How many of a step's requests to a store followed one another."""

from __future__ import annotations

import pytest

from benchmarks.store_requests import Step
from hudi_ingest_tests.support.s3_proxy import Request


@pytest.mark.parametrize(
    ("times", "rounds"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (3, 4)], 3),
        ([(0, 2), (0, 2), (0, 2)], 1),
        ([(0, 9), (1, 2), (2, 3), (4, 9)], 3),
    ],
)
def test_the_longest_chain_of_requests_is_found(times: list[tuple[float, float]], rounds: int) -> None:
    assert Step(9.0, [Request("GET", "GET", "key", at, until=until) for at, until in times]).rounds == rounds
