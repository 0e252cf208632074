"""`make mutants`: put each mutant of the catalogue into the product and see that a fast test or the simulation finds it within
a minute of CPU time.

Prints a line for each, and last `mutants=… survived=…`; exits 1 if one survived. Then what found them runs once more on the product
as it is, and must find nothing. `--only WORD` picks mutants by their names or modules; `--page` writes what found them into docs/mutants.md.
`--java` takes the mutants of the classes in Java instead, each of which an integration test finds in a minute or two.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hudi_ingest_tests.mutants.catalogue import JAVA_MUTANTS, MUTANTS, ROOT
from hudi_ingest_tests.mutants.one import MOST_SECONDS, by_tests
from hudi_ingest_tests.mutants.page import write_page

DEADLINE_SECONDS = 900.0
"""For one that waits for ever; others have a minute of CPU time."""


@dataclass(frozen=True)
class Result:
    by: str
    """The test or seed that found the mutant; "" if none did."""
    said: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="a word in names or modules of mutants")
    parser.add_argument("--page", action="store_true", help="write what found them into docs/mutants.md")
    parser.add_argument("--java", action="store_true", help="the mutants of classes in Java, one at a time")
    options = parser.parse_args()
    mutants = JAVA_MUTANTS if options.java else MUTANTS
    names = [name for name, mutant in mutants.items() if options.only in name or options.only in mutant.module]
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(1 if options.java else options.jobs) as pool:
        for name, result in zip(names, pool.map(_try, names), strict=True):
            results[name] = result
            print(
                f"{result.seconds:5.1f} s  {name}: {result.by or 'SURVIVED'}  {result.said if not result.by else result.said[:100]!r}",
                flush=True,
            )
    survivors = [name for name, result in results.items() if not result.by]
    # That of Java has its tests in CI, which pass without a mutant.
    wrong = "" if options.java else _on_the_product_as_it_is(results)
    if wrong:
        print(f"without any mutant, too: {wrong}")
    elif options.page:
        write_page({name: (result.by, result.seconds) for name, result in results.items() if result.by})
    print(
        f"mutants={len(results)} survived={len(survivors)}{''.join(f'{chr(10)}survived: {each}' for each in survivors)}"
    )
    return int(bool(survivors or wrong))


def _try(name: str) -> Result:
    command = [sys.executable, "-m", "hudi_ingest_tests.mutants.one", name]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        return Result("", "it waits for ever", DEADLINE_SECONDS)
    if ran.returncode == -signal.SIGXCPU or ran.returncode == -signal.SIGKILL:
        return Result("", "nothing within a minute of CPU time", MOST_SECONDS)
    if ran.returncode:
        return Result("", f"{ran.returncode} {ran.stdout[-1500:]}{ran.stderr[-1500:]}", 0.0)
    return Result(*json.loads(ran.stdout.splitlines()[-1]))


def _on_the_product_as_it_is(results: Mapping[str, Result]) -> str:
    """What fails of the tests and seeds that found mutants, where there is none."""
    from hudi_ingest_tests.simulation.model import simulated
    from hudi_ingest_tests.simulation.schedule import run, schedule_of

    by = sorted({result.by for result in results.values() if result.by})
    tests = [each.partition("[")[0] for each in by if "::" in each]
    found, _ = by_tests(tests) if tests else (None, 0)
    logging.disable(logging.CRITICAL)
    with simulated() as ground:
        for seed in {int(match[1]) for each in by if (match := re.match(r"seed (\d+)", each))}:
            failure = run(schedule_of(seed), ground)
            if failure is not None:
                return f"seed {seed}: {failure}"
    return "" if found is None else ": ".join(found)


if __name__ == "__main__":
    sys.exit(main())
