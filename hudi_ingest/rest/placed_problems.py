"""Problems of a pipeline file with their places, taken from the sentences that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.describe import setting_at
from hudi_ingest.rest.problems import PlacedProblem

_PLACED = re.compile(r"(?P<place>[a-z_]+(?:\.[^\s.:\[\]]+|\[\d+\])*): ")


def placed(problems: Iterable[str], lines: Mapping[str, int]) -> list[PlacedProblem]:
    """Give each problem its place. `lines`: the file's lines by dotted place."""
    return [_placed(problem, lines) for problem in problems]


def _placed(problem: str, lines: Mapping[str, int]) -> PlacedProblem:
    match = _PLACED.match(problem)
    if match is None:
        line = re.match(r"line (\d+)", problem)
        return PlacedProblem(text=problem, line=int(line[1]) if line else None)
    shown = match["place"]
    setting = setting_at(_parsed(shown), Pipeline)
    return PlacedProblem(
        text=problem,
        place=shown,
        line=lines.get(shown),
        allowed=setting.allowed or None,
        help=setting.description or None,
    )


def _parsed(shown: str) -> Place:
    return tuple(int(part[1:-1]) if part[0] == "[" else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", shown))
