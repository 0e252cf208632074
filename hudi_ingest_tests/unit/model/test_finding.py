"""How a finding's text begins, as the pages and the overview show it."""

from __future__ import annotations

import pytest

from hudi_ingest.model.finding import first_sentence


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("All is well.", "All is well"),
        ("Lag is 3.5 s. Look at the broker.", "Lag is 3.5 s"),
        (
            "One record is bad, and nothing is visible:\n- orders:0:200: no JSON, at character 1\nCorrect the producer.",
            "One record is bad, and nothing is visible: - orders:0:200: no JSON, at character 1",
        ),
        (
            "Two are gone:\n- orders:0: 3 records\n  - orders:1: 4 records\nAccept the loss",
            "Two are gone: - orders:0: 3 records - orders:1: 4 records",
        ),
        ("- orders:0: the topic was recreated. Accept the loss.", "orders:0: the topic was recreated"),
        ("", ""),
    ],
)
def test_a_text_begins_with_its_first_sentence_and_the_list_in_it(text: str, beginning: str) -> None:
    assert first_sentence(text) == beginning
