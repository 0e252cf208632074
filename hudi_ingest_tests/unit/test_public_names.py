"""The names that `from hudi_ingest import …` gives: explained completely, with examples that run, and with types that it gives, too."""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import hudi_ingest

pytestmark = pytest.mark.fast

NAMES = [name for name in hudi_ingest.__all__ if name != "__version__"]
WITHOUT_EXAMPLE = {
    # README.md shows how it is used; the integration tests run it with a broker.
    "run_transaction",
    # Its module shows a defs.yaml; test_component.py loads such files.
    "KafkaToHudi",
    # `load_pipeline` makes it, `run_transaction` takes and returns these.
    "Pipeline",
    "TransactionPlan",
    "CommitReceipt",
}


def calls(name: str) -> Iterator[tuple[str, Any]]:
    """The functions that a user of the name calls: itself, or its public methods."""
    public = getattr(hudi_ingest, name)
    if inspect.isfunction(public):
        yield name, public
        return
    for method, found in vars(public).items():
        found = getattr(found, "__func__", found)
        if inspect.isfunction(found) and not method.startswith("_") and found.__module__.startswith("hudi_ingest"):
            yield f"{name}.{method}", found


def types_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from [inner for item in (part if isinstance(part, list) else [part]) for inner in types_in(item)]


@pytest.mark.parametrize("name", NAMES)
def test_the_types_in_public_signatures_can_be_imported_from_the_package(name: str) -> None:
    for called, function in calls(name):
        hints = get_type_hints(function, {**vars(sys.modules[function.__module__]), name: getattr(hudi_ingest, name)})
        for type_ in (found for hint in hints.values() for found in types_in(hint)):
            if type_.__module__.startswith("hudi_ingest"):
                assert getattr(hudi_ingest, type_.__name__, None) is type_, (
                    f"{called} takes or returns {type_.__name__}"
                )


@pytest.mark.parametrize("name", NAMES)
def test_public_docstrings_name_every_argument_and_their_examples_are_true(name: str) -> None:
    public = getattr(hudi_ingest, name)
    assert inspect.getdoc(public)
    if inspect.isfunction(public):
        text = inspect.getdoc(public) or ""
        assert "Raises" in text
        missing = [argument for argument in inspect.signature(public).parameters if f"`{argument}`" not in text]
        assert not missing
    module = sys.modules[public.__module__]
    tests = doctest.DocTestFinder(exclude_empty=True).find(public, name, module)
    examples = sum(len(test.examples) for test in tests)
    assert bool(examples) is (name not in WITHOUT_EXAMPLE)
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
