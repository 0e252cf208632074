"""Writes docs/mutants.md."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest_tests.mutants.catalogue import MUTANTS, ROOT

PAGE = ROOT / "docs" / "mutants.md"
_HEAD = """# Mutants

Faults that `make mutants` puts into the code, one at a time, and what must find each, or has found it: a test that needs neither a broker nor a JVM, or the seed
of a simulated schedule with the promise that it breaks. Whoever finds one that nothing finds has found a missing test; add
it to `hudi_ingest_tests/mutants/catalogue.py`.

[Documentation](README.md) · [Guarantees](guarantees.md#how-it-is-tested) · [Glossary](glossary.md)

<!-- Written by `make mutants ARGS=--page`. Seconds are the CPU time of the process that finds it, imports included; – : of no run yet. -->

| in | fault | must be found by | seconds |
|---|---|---|---|
"""


def write_page(found: Mapping[str, tuple[str, float]]) -> None:
    """`found`: by the mutants' names, what found each, and the seconds that this took. Others keep the rows that they
    have, or get one of the catalogue."""
    before = PAGE.read_text(encoding="utf-8").splitlines(keepends=True) if PAGE.exists() else []
    rows = []
    for name, mutant in MUTANTS.items():
        begin = f"| `{mutant.path}` | {name} |"
        if name in found:
            by, seconds = found[name]
            rows.append(f"{begin} {_shown(by)} | {seconds:.0f} |\n")
        else:
            kept = [row for row in before if row.startswith(begin)]
            rows += kept or [f"{begin} {_shown(mutant.found_by)} | – |\n"]
    PAGE.write_text(_HEAD + "".join(rows), encoding="utf-8")


def _shown(by: str | int) -> str:
    """A test by its name, without parameters."""
    if isinstance(by, int):
        return "a seed"
    path, _, test = by.partition("[")[0].rpartition("::")
    if path:
        return f"`{test}` in `{path.partition('::')[0]}`"
    return f"`{by}`" if by.endswith(".py") else by
