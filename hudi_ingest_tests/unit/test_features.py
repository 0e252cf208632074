"""Each promise and feature has its tests in `make test`, and docs/features.md names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest_tests.support import features_page
from hudi_ingest_tests.support.tiers import COLLECTED

IDS = [each for rows in features_page.FEATURES.values() for each in rows]


def test_each_promise_and_feature_has_a_test_in_make_test() -> None:
    proved = features_page.proofs()
    assert [each for each in IDS if not proved.get(each)] == [], (
        "give a test on real services this id in its name, and `@pytest.mark.tier(1)`"
    )


def test_each_promise_has_two_tests_on_real_services_in_make_test() -> None:
    proved = features_page.proofs()
    promises = features_page.FEATURES["Promises"]
    assert [each for each in promises if sum(test.on_services for test in proved[each]) < 2] == []


def test_each_id_in_the_name_of_a_test_is_on_the_page() -> None:
    assert len(IDS) == len({*IDS})
    assert {test.name: test.ids for test in features_page.tests() if not {*test.ids} <= {*IDS}} == {}


def test_tests_on_real_services_are_in_make_test_for_an_id() -> None:
    chosen = [test for test in features_page.tests() if test.tier == 1 and test.on_services]
    assert [test.name for test in chosen if not test.ids] == [], "without an id they are for CI: tier 2"


def test_the_page_is_current() -> None:
    assert features_page.TARGET.read_text(encoding="utf-8") == features_page.render(), "run `make docs`"


def test_the_page_has_the_tiers_that_pytest_has(request: pytest.FixtureRequest) -> None:
    """As far as all of a function was collected."""
    read: dict[tuple[Path, str], int] = {}
    for test in features_page.tests():
        read[test.file, test.name] = min(test.tier, read.get((test.file, test.name), test.tier))
    collected = {place: tier for place, tier in request.config.stash[COLLECTED].items() if place in read}
    assert {place: (tier, read[place]) for place, tier in collected.items() if read[place] != tier} == {}
