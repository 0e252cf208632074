"""Runs what must find one mutant, in a process of its own: `python -m hudi_ingest_tests.mutants.one "the name of a mutant"`.

Prints what found it and the CPU seconds that this took, as JSON, in its last line: "" if nothing does. The sources on disk are left alone: the mutated text takes a
module's place when it is imported. So nothing here may import the product before.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import pytest
from hypothesis import Phase, settings

from hudi_ingest_tests.mutants.catalogue import JAVA_MUTANTS, JAVA_TESTS, MUTANTS, TESTS, Mutant, in_write_client

MOST_SECONDS = 60
"""Of CPU time, which a busy machine does not change."""
MOST_SEEDS = 1000
Found = tuple[str, str]
"""A test or a seed, and what it said."""


class _Mutated(SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        # Under a name that is no file's, so that numba neither takes nor keeps what it has compiled of the other.
        code: CodeType = compile(self.mutant.applied_to(source), f"{self.path} (mutant)", "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None, fullname
        spec.loader = _Mutated(fullname, spec.origin)
        spec.loader.mutant = self._mutant
        return spec


class _FirstFailure:
    found: Found | None = None

    def pytest_configure(self) -> None:
        """Once conftest has loaded its profile, and before tests take it over: the first example that fails is as good as a short one."""
        settings.register_profile(
            "mutants", settings.get_profile("hudi_ingest"), phases=[Phase.explicit, Phase.generate]
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.found is None:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.found = (
                report.nodeid.removeprefix(f"{TESTS}/").removeprefix(f"{JAVA_TESTS}/"),
                str(crash.message if crash else report.longrepr),
            )


def by_tests(tests: Sequence[str], folder: str = TESTS) -> tuple[Found | None, int]:
    """The first test that fails, and pytest's exit code."""
    first = _FirstFailure()
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *(f"{folder}/{test}" for test in tests)], [first])
    return first.found, int(code)


def by_seed(first: int) -> Found | None:
    from hudi_ingest_tests.simulation.model import simulated
    from hudi_ingest_tests.simulation.schedule import kind_of, run, schedule_of

    logging.disable(logging.CRITICAL)
    with simulated() as ground:
        # The one that is known to find it, or another if schedules have changed since.
        for seed in (first, *range(MOST_SEEDS)):
            failure = run(schedule_of(seed), ground)
            if failure is not None:
                return f"seed {seed}: {kind_of(failure)}", str(failure)
    return None


def main() -> int:
    name = sys.argv[1]
    if name in JAVA_MUTANTS:
        mutant = JAVA_MUTANTS[name]
        sys.meta_path.insert(0, _Finder(in_write_client(mutant)))
    else:
        mutant = MUTANTS[name]
        sys.meta_path.insert(0, _Finder(mutant))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    if isinstance(mutant.found_by, int):
        found = by_seed(mutant.found_by)
    else:
        found, code = by_tests([mutant.found_by], mutant.tests)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return code
    print(json.dumps((*(found or ("", "")), time.process_time())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
