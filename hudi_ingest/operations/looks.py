"""One look at many pipelines: the only pool of threads that asks the tables and brokers of more than one, and its answers about each.

Nothing can stop a table or broker that hangs: it keeps its thread, but no other pipeline from its turn.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timezone
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from hudi_ingest.exceptions import IngestError, TopicMissing, Transient
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.shared_clusters import ClusterSnapshot, snapshot
from hudi_ingest.operations.observation import Observation, look_at
from hudi_ingest.pipeline.pipeline import Pipeline

_logger = logging.getLogger(__name__)
AT_ONCE = 8
"""How many questions are asked at the same time; each waits for its broker or table most of the time."""
_MOST_THREADS = 32
"""Beyond this many looks that hang, others are taken one at a time."""
_BROKERS_SHARE, _PATIENCE = 1 / 2, 1 / 3
"""The parts of a deadline in which clusters, and each of their answers, must come, so that tables can be read if a broker is silent."""
Found = TypeVar("Found")
Key = TypeVar("Key", bound=Hashable)


class Named(Protocol):
    """A pipeline, or anything else that is looked at."""

    @property
    def name(self) -> str: ...


One = TypeVar("One", bound=Named)


class Timeout(Transient):
    """A table or broker that did not answer within the deadline of a look."""


class Looks(Generic[Found]):
    """Looks that were begun, and may end after the evaluation that began them: nothing can stop one that hangs, and a pipeline never
    has two at a time. For one thread at a time."""

    def __init__(self, name: str) -> None:
        """`name`: of the threads."""
        self._name = name
        self._begun: dict[Any, tuple[Future[Found], float]] = {}

    def late(self) -> dict[Any, float]:
        """Return for how many seconds each look has hung that an earlier evaluation began."""
        return {name: time.monotonic() - since for name, (look, since) in self._begun.items() if not look.done()}

    def ask(self, questions: Mapping[Key, Callable[[], Found]], seconds: float) -> dict[Key, Future[Found]]:
        """Return the answers that this evaluation begins, which have come, or hang after so many `seconds`. A question that has hung since
        an earlier evaluation is not asked a second time, and its late answer is dropped."""
        self._begun = {key: begun for key, begun in self._begun.items() if not begun[0].done()}
        return self._begin(questions, seconds)

    def take(
        self,
        turns: Iterable[One],
        look: Callable[[One], Found],
        seconds: float,
        *,
        most: int | None = None,
        counts: Callable[[Found], bool] = lambda found: True,
    ) -> dict[str, Future[Found]]:
        """Return the looks by pipeline: those that have ended since the last time, and those that this evaluation begins, in the order
        of `turns`, which have ended, or hang after so many `seconds`. Pipelines that are not among them wait for their turn. At most
        `most` results `count`."""
        ended = [name for name, (each, _) in self._begun.items() if each.done()][:most]
        looks = {name: self._begun.pop(name)[0] for name in ended}
        left = None if most is None else most - sum(_counts(each, counts) for each in looks.values())
        questions = {each.name: partial(look, each) for each in turns if each.name not in looks}
        return looks | self._begin(questions, seconds, left, counts)

    def _begin(
        self,
        questions: Mapping[Key, Callable[[], Found]],
        seconds: float,
        left: int | None = None,
        counts: Callable[[Found], bool] = lambda found: True,
    ) -> dict[Key, Future[Found]]:
        deadline = time.monotonic() + seconds
        at_once = max(1, min(AT_ONCE, _MOST_THREADS - len(self._begun)))
        waiting = deque(key for key in questions if key not in self._begun)
        executor = ThreadPoolExecutor(at_once, thread_name_prefix=self._name)
        looks: dict[Key, Future[Found]] = {}
        running: set[Future[Found]] = set()
        try:
            while time.monotonic() < deadline:
                # Each that runs may count.
                while waiting and len(running) < (at_once if left is None else min(at_once, left)):
                    key = waiting.popleft()
                    looks[key] = begun = executor.submit(questions[key])
                    self._begun[key] = begun, time.monotonic()
                    running.add(begun)
                if not running:
                    break
                seconds = deadline - time.monotonic()
                done, running = wait(running, None if math.isinf(seconds) else seconds, FIRST_COMPLETED)
                if left is not None:
                    left -= sum(_counts(each, counts) for each in done)
        finally:
            executor.shutdown(wait=False)
        for key, each in looks.items():
            if each.done():
                self._begun.pop(key, None)
        return looks


def _counts(look: Future[Found], counts: Callable[[Found], bool]) -> bool:
    return look.exception() is None and counts(look.result())


def observe_all(
    pipelines: Sequence[Pipeline],
    deadline: float = math.inf,
    looks: Looks[Any] | None = None,
) -> dict[str, Observation | IngestError]:
    """Look at the tables and brokers of all pipelines, for at most `deadline` seconds: by name, the observation, or the table's error, which
    is Timeout if it has not answered. See `see_all`."""
    return see_all(pipelines, lambda observation: observation, deadline, looks)


def see_all(
    pipelines: Sequence[Pipeline],
    see: Callable[[Observation], Found],
    deadline: float = math.inf,
    looks: Looks[Any] | None = None,
) -> dict[str, Found | IngestError]:
    """Look at all pipelines, and return by name what `see` makes of each, in the threads that look, or its error.

    Each cluster is asked once, about all topics. One that is silent, as a table or `see` that hangs, delays no other pipeline. `looks`: those
    of a caller that looks repeatedly: it has no two looks at a pipeline at a time."""
    until, at = time.monotonic() + deadline, datetime.now(timezone.utc)
    looks = looks or Looks("look")
    sources = defaultdict(list)
    for pipeline in pipelines:
        sources[settings_of(pipeline.source)].append(pipeline.source)
    asked = looks.ask(
        {key: partial(snapshot, own, deadline * _PATIENCE) for key, own in sources.items()}, deadline * _BROKERS_SHARE
    )

    def seen(pipeline: Pipeline) -> Found:
        key = settings_of(pipeline.source)
        silent = Timeout(f"The brokers {pipeline.source.bootstrap_servers} have not answered in time.")
        cluster: ClusterSnapshot | IngestError = _outcome(asked.get(key), silent)
        held = cluster if isinstance(cluster, IngestError) else cluster.of(pipeline.source)
        observation = look_at(pipeline, held, at=at)
        if isinstance(observation.error, TopicMissing):
            # The answer was to the question of all pipelines. That to its own says what to do with its file.
            observation = look_at(pipeline, None, observation.table, at)
        return see(observation)

    answers = looks.ask({pipeline.name: partial(seen, pipeline) for pipeline in pipelines}, until - time.monotonic())
    silence = f"Its table has not answered within {deadline:g} s."
    return {pipeline.name: _outcome(answers.get(pipeline.name), Timeout(silence)) for pipeline in pipelines}


def _outcome(look: Future[Found] | None, late: IngestError) -> Found | IngestError:
    """Return what the look found, or its error; `late` if it has not ended."""
    if look is None or not look.done():
        return late
    try:
        return look.result()
    except IngestError as error:
        return error.with_traceback(None)
    except Exception as error:
        # One pipeline must not hide the others, whatever is wrong with it.
        _logger.exception("a look at a pipeline failed")
        return IngestError(f"Looking at it failed: {type(error).__name__}: {error}. The log has the whole error.")
