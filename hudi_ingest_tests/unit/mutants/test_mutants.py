"""The mutants of `make mutants` fit the code as it is, and a few are found, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hudi_ingest_tests.mutants.catalogue import JAVA_MUTANTS, MUTANTS, ROOT, in_write_client
from hudi_ingest_tests.mutants.page import PAGE

LEAST = 60
ROOMS = ("transaction/", "hudi/", "kafka/")


def test_each_mutant_fits_one_place_and_is_python() -> None:
    for name, mutant in (*MUTANTS.items(), *JAVA_MUTANTS.items()):
        source = (ROOT / "hudi_ingest" / mutant.path).read_text(encoding="utf-8")
        text = mutant.applied_to(source)
        if mutant.path.endswith(".py"):
            compile(text, name, "exec")
        if isinstance(mutant.found_by, str):
            path, *tests = mutant.found_by.split("::")
            text = (ROOT / mutant.tests / path).read_text(encoding="utf-8")
            assert all(f" {test}" in text for test in tests), name
    assert sum(mutant.path.startswith(ROOMS) for mutant in MUTANTS.values()) >= LEAST
    changed = [(mutant.path, mutant.new, mutant.old) for mutant in MUTANTS.values()]
    assert len({*changed}) == len(changed), "two mutants are the same"


def test_a_mutant_of_other_code_is_an_error() -> None:
    mutant = next(iter(MUTANTS.values()))
    with pytest.raises(ValueError, match="has 0 places with"):
        mutant.applied_to("another text")


def test_a_mutant_of_java_is_put_into_the_source_that_the_driver_compiles() -> None:
    source = (ROOT / "hudi_ingest" / "hudi" / "write_client.py").read_text(encoding="utf-8")
    for name, mutant in JAVA_MUTANTS.items():
        changed = in_write_client(mutant).applied_to(source)
        compile(changed, name, "exec")
        assert repr(mutant.old) in changed


def test_the_page_has_all_mutants() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name, mutant in MUTANTS.items() if f"| `{mutant.path}` | {name} |" not in page]
    assert not missing, "make mutants ARGS=--page"
    assert page.count("\n| `") == len(MUTANTS), "it has others"


@pytest.mark.parametrize("name", ["a begin does not advance the epoch", "an epoch may come twice"])
def test_one_that_is_known_is_found(name: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "hudi_ingest_tests.mutants.one", name], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr
    by, said, _ = json.loads(found.stdout.splitlines()[-1])
    assert by and said, "it has survived"
