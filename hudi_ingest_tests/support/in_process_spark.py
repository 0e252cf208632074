"""As much of Spark's driver as `write_slices` uses: its tasks run in this process, so that the real driver code around them is under fast tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any


class _Dataset:
    def __init__(self, context: InProcessContext, partitions: Sequence[Sequence[Any]]) -> None:
        self._context, self._partitions = context, partitions

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterable[Any]]) -> _Dataset:
        self._work = work
        return self

    def id(self) -> int:
        self._context.environments.append(dict(self._context.environment))
        return len(self._context.environments)

    def collect(self) -> list[Any]:
        self._context.tasks.append(len(self._partitions))
        return [outcome for partition in self._partitions for outcome in self._work(iter(partition))]


class InProcessContext:
    """`tasks`: how many each job had, in order; `environments`: of the workers of each job that asked for one."""

    defaultParallelism = 2
    pythonExec = "python3"

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self.environments: list[dict[str, str]] = []
        self.tasks: list[int] = []
        self.cancelled: list[str] = []
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    def parallelize(self, items: Iterable[Any], parts: int) -> _Dataset:
        listed = [*items]
        bounds = [len(listed) * part // parts for part in range(parts + 1)]
        return _Dataset(self, [listed[start:end] for start, end in pairwise(bounds)])

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:
        pass

    def setLocalProperty(self, name: str, value: str | None) -> None:
        pass


def in_process_spark() -> Any:
    """A session; its `sparkContext` says which jobs ran."""
    return SimpleNamespace(sparkContext=InProcessContext())
