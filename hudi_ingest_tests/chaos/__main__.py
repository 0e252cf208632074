"""`make chaos CASES=200 SEED=…`: the kill matrix and random combinations beyond it, on whole stacks.

Prints the seed, a line per case, a table of faults and anomalies, and last `cases=… anomalies=…`; exits 1 on any anomaly, when no
process came to the point of a case, tried twice, and when the time was over before a case.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hudi_ingest_tests.chaos.cases import LOCAL, STACKS, Case, choose, choose_keyed, never_reached, slice_of_all, split
from hudi_ingest_tests.chaos.disk import TablesDisk
from hudi_ingest_tests.chaos.lane import CASES_A_TABLE, Lane, Verdict
from hudi_ingest_tests.chaos.platform import platform


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--keyed", type=int, default=0, help="cases on keyed tables in addition")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--lanes", type=int, default=2, help="stacks that run side by side")
    parser.add_argument(
        "--minutes", type=float, default=120, help="after this no further case begins, and the run fails"
    )
    parser.add_argument("--only", default="", help="only cases whose text holds this, or one of these: text,text")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first cases, to go on with an earlier run")
    parser.add_argument(
        "--slice",
        action="store_true",
        help="a few cases instead, with the faults that no other test has, and every kind of work, once",
    )
    parser.add_argument("--on", choices=STACKS, default=LOCAL, help="what the stacks stand on")
    parser.add_argument("--lane", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lane is not None:
        return _run_lane(options)
    print(f"seed={options.seed} cases={options.cases} keyed={options.keyed} lanes={options.lanes}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-chaos-") as folder:
        results = [Path(folder, f"lane{number}.jsonl") for number in range(options.lanes)]
        lanes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hudi_ingest_tests.chaos",
                    *sys.argv[1:],
                    "--seed",
                    str(options.seed),
                    "--lane",
                    str(number),
                    "--results",
                    str(path),
                ]
            )
            for number, path in enumerate(results)
        ]
        try:
            codes = [lane.wait() for lane in lanes]
        except KeyboardInterrupt:
            # Ctrl-C reaches the lanes too: each ends its stack, and what has been seen is summed up.
            codes = [lane.wait() for lane in lanes]
        found = [json.loads(line) for path in results if path.exists() for line in path.read_text().splitlines()]
    return summary(found, codes, time.monotonic() - began)


def _run_lane(options: argparse.Namespace) -> int:
    cases = [
        case for case in _cases(options)[options.skip :] if any(text in str(case) for text in options.only.split(","))
    ]
    mine = [*split(tuple(cases), options.lanes)][options.lane]
    if not mine:
        return 0
    tables = ((False, False), (True, False), (True, True))
    kinds = [[case for case in mine if (case.keyed, case.mirrors) == table] for table in tables]
    blocks = [kind[start : start + CASES_A_TABLE] for kind in kinds for start in range(0, len(kind), CASES_A_TABLE)]
    # Parts of a run have the tables that it would have as a whole.
    first = options.skip // options.lanes // CASES_A_TABLE
    last = time.monotonic() + options.minutes * 60

    def say(line: str) -> None:
        print(f"[{options.lane}] {line}", flush=True)

    root = Path(tempfile.mkdtemp(prefix=f"hudi-ingest-chaos-lane{options.lane}-"))
    failed = False
    disk: TablesDisk | None = None
    try:
        with (
            platform(options.on, root, options.lane, say) as stands_on,
            Lane(
                stands_on,
                {first + number: block[0] for number, block in enumerate(blocks)},
                options.seed + options.lane,
                say,
                options.lane,
            ) as lane,
            options.results.open("w") as results,
        ):
            say(f"ledger in {lane.home.ledger_url.split(':')[0]}, everything in {root}")
            disk = stands_on.disk

            def note(**facts: Any) -> None:
                results.write(json.dumps(facts) + "\n")
                results.flush()

            for block in blocks:
                if time.monotonic() > last:
                    # Without a table, which would cost a minute more.
                    for case in block:
                        note(left_out=str(case))
                    continue
                lane.next_table()
                waiting, again = deque(block), set[Case]()
                while waiting:
                    case = waiting.popleft()
                    impossible = next(filter(None, (stands_on.impossible(blow.fault) for blow in case.blows)), "")
                    if impossible:
                        say(f"{case}: LEFT OUT: {impossible}")
                    elif time.monotonic() > last:
                        note(left_out=str(case))
                    else:
                        verdict = _run_case(lane, case, say, note)
                        failed |= bool(verdict.anomalies)
                        if verdict.not_reached and case not in again:
                            # A point may be missed by chance: another tick decides.
                            again.add(case)
                            waiting.append(case)
                anomalies = lane.finish_table()
                failed |= bool(anomalies)
                say(f"table {lane.name}: {dict(anomalies) or 'exact, nothing left behind'}")
                note(anomalies=anomalies)
    finally:
        if failed or os.environ.get("KEEP"):
            image = f"; its tables are in {disk.image} (mount -o loop)" if disk is not None and disk.has_power else ""
            say(f"everything is kept in {root}{image}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return 0


def _cases(options: argparse.Namespace) -> tuple[Case, ...]:
    if options.slice:
        return slice_of_all(options.seed, options.on)
    cases = choose(options.cases, options.seed, options.on)
    return cases + choose_keyed(options.keyed, options.seed, len(cases) + 1, options.on)


def _run_case(lane: Lane, case: Case, say: Callable[[str], None], note: Callable[..., None]) -> Verdict:
    verdict = lane.run(case)
    shown = ", ".join(f"{name}={times}" for name, times in verdict.anomalies.items()) or "exact"
    missed = f" NOT REACHED: {verdict.not_reached}" if verdict.not_reached else ""
    say(f"{case}: {shown} in {verdict.seconds:.0f} s{missed} {verdict.detail}")
    note(
        case=str(case),
        faults=[blow.fault for blow in case.blows],
        points=[blow.point for blow in case.blows],
        work=case.work,
        keyed=case.keyed,
        anomalies=verdict.anomalies,
        not_reached=verdict.not_reached,
        recovery=verdict.recovery_seconds,
    )
    return verdict


def summary(found: list[dict[str, Any]], codes: list[int], seconds: float) -> int:
    tried = [facts for facts in found if "case" in facts]
    # A try whose point no process came to has tried nothing.
    cases = [facts for facts in tried if not facts["not_reached"]]
    anomalies = sum((Counter(facts["anomalies"]) for facts in found if "anomalies" in facts), Counter())
    by_fault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for facts in cases:
        one = len(facts["faults"]) <= 2 and len(set(facts["points"])) <= 2
        kind = (facts["faults"][-1] if one else "several") + f" beside {facts['work']}" * bool(facts["work"])
        by_fault[kind + ", keyed" * facts["keyed"]].append(facts)
    print("\n| fault | cases | points | recovered after, median s | anomalies |\n|---|---|---|---|---|")
    for fault, rows in sorted(by_fault.items()):
        named = sum((Counter(facts["anomalies"]) for facts in rows), Counter())
        points = {point for facts in rows for point in facts["points"]}
        middle = sorted(facts["recovery"] for facts in rows)[len(rows) // 2]
        shown = ", ".join(f"{name} {times}" for name, times in named.items()) or "0"
        print(f"| {fault} | {len(rows)} | {len(points)} | {middle:.0f} | {shown} |")
    missed = never_reached((facts["case"], not facts["not_reached"]) for facts in tried)
    late = [facts["left_out"] for facts in found if "left_out" in facts]
    print(f"\n{seconds / 60:.1f} minutes; by name: {dict(anomalies) or 'none'}")
    for case in missed:
        print(f"not reached: {case}")
    for case in late:
        print(f"no time left for {case}")
    broken = [code for code in codes if code]
    if broken:
        print(f"lanes that broke off: {len(broken)}")
    print(f"cases={len(cases)} anomalies={sum(anomalies.values())} not_reached={len(missed)} left_out={len(late)}")
    return 1 if anomalies or missed or late or broken or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
