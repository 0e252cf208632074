"""`make chaos CASES=200 SEED=…`: the kill matrix and random combinations beyond it, on whole stacks.

Prints the seed, a line per case, a table of faults and anomalies, and last `cases=… anomalies=…`; exits 1 on any anomaly.
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
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hudi_ingest_tests.chaos.cases import choose, split
from hudi_ingest_tests.chaos.lane import CASES_A_TABLE, Lane, small_disk, unmount
from hudi_ingest_tests.support import postgres

TABLES_MEGABYTES = 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--lanes", type=int, default=2, help="stacks that run side by side")
    parser.add_argument("--minutes", type=float, default=120, help="after this no further case begins")
    parser.add_argument("--only", default="", help="only cases whose text holds this")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first cases, to go on with an earlier run")
    parser.add_argument("--lane", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lane is not None:
        return _run_lane(options)
    print(f"seed={options.seed} cases={options.cases} lanes={options.lanes}", flush=True)
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
    return _summary(found, codes, time.monotonic() - began)


def _run_lane(options: argparse.Namespace) -> int:
    cases = [case for case in choose(options.cases, options.seed)[options.skip :] if options.only in str(case)]
    mine = [*split(tuple(cases), options.lanes)][options.lane]
    if not mine:
        return 0
    blocks = [mine[start : start + CASES_A_TABLE] for start in range(0, len(mine), CASES_A_TABLE)]
    last = time.monotonic() + options.minutes * 60

    def say(line: str) -> None:
        print(f"[{options.lane}] {line}", flush=True)

    root = Path(tempfile.mkdtemp(prefix=f"hudi-ingest-chaos-lane{options.lane}-"))
    small = small_disk(root / "tables", TABLES_MEGABYTES)
    if not small:
        say("no small file system may be mounted here: the cases with disk_full are left out")
    failed = False
    # Every other lane has its ledger in PostgreSQL, where there is one.
    ledger = postgres.running(root) if options.lane % 2 else nullcontext()
    try:
        with (
            ledger as ledger_url,
            Lane(root, len(blocks), options.seed + options.lane, say, ledger_url or "") as lane,
            options.results.open("w") as results,
        ):
            say(f"ledger in {lane.home.ledger_url.split(':')[0]}, everything in {root}")

            def note(**facts: Any) -> None:
                results.write(json.dumps(facts) + "\n")
                results.flush()

            for block in blocks:
                if time.monotonic() > last:
                    break
                lane.next_table()
                for case in block:
                    if time.monotonic() > last or (not small and "disk_full" in str(case)):
                        continue
                    verdict = lane.run(case)
                    failed |= bool(verdict.anomalies)
                    shown = ", ".join(f"{name}={times}" for name, times in verdict.anomalies.items()) or "exact"
                    missed = f" NOT REACHED: {verdict.not_reached}" if verdict.not_reached else ""
                    say(f"{case}: {shown} in {verdict.seconds:.0f} s{missed} {verdict.detail}")
                    note(
                        faults=[each.fault for each in case.blows],
                        points=[each.point for each in case.blows],
                        anomalies=verdict.anomalies,
                        not_reached=verdict.not_reached,
                        recovery=verdict.recovery_seconds,
                    )
                left = lane.finish_table()
                failed |= bool(left)
                say(f"table {lane.name}: {dict(left) or 'exact, nothing left behind'}")
                note(faults=[], points=[], anomalies=left, not_reached=[], recovery=0.0)
    finally:
        if small:
            unmount(root / "tables")
        if failed or os.environ.get("KEEP"):
            say(f"everything is kept in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return 0


def _summary(found: list[dict[str, Any]], codes: list[int], seconds: float) -> int:
    # A case whose point no process came to has tried nothing.
    cases = [each for each in found if each["faults"] and not each["not_reached"]]
    anomalies = sum((Counter(each["anomalies"]) for each in found), Counter())
    by_fault: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in cases:
        by_fault[
            each["faults"][-1] if len(each["faults"]) <= 2 and len(set(each["points"])) <= 2 else "several"
        ].append(each)
    print("\n| fault | cases | points | recovered after, median s | anomalies |\n|---|---|---|---|---|")
    for fault, rows in sorted(by_fault.items()):
        named = sum((Counter(each["anomalies"]) for each in rows), Counter())
        points = {point for each in rows for point in each["points"]}
        middle = sorted(each["recovery"] for each in rows)[len(rows) // 2]
        shown = ", ".join(f"{name} {times}" for name, times in named.items()) or "0"
        print(f"| {fault} | {len(rows)} | {len(points)} | {middle:.0f} | {shown} |")
    missed = [name for each in found for name in each["not_reached"]]
    print(f"\nnot reached: {missed or 'none'}; {seconds / 60:.0f} minutes; by name: {dict(anomalies) or 'none'}")
    broken = [code for code in codes if code]
    if broken:
        print(f"lanes that broke off: {len(broken)}")
    print(f"cases={len(cases)} anomalies={sum(anomalies.values())}")
    return 1 if anomalies or broken or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
