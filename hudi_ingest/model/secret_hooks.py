"""Secrets from a vault: `${SCHEME:REF}`, whose value a function of another package returns.

A package registers the function as an entry point of the group `hudi_ingest.secrets` whose name is the scheme, or
HUDI_INGEST_SECRETS names it: `vault=company.vault:read`, several separated by commas. It takes REF and returns the value.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from hudi_ingest.exceptions.problems import suggestion
from hudi_ingest.model.deadline import started

ENTRY_POINTS = "hudi_ingest.secrets"
VARIABLE = "HUDI_INGEST_SECRETS"
_KEPT_SECONDS = 30.0
"""Sensors tick every few seconds, and a vault answers each question with a login and a line in its audit log."""
ANSWER_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 600.0
"""A function that has not returned by then is called a second time."""

_lock = threading.Lock()


def known_schemes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The registered schemes, sorted."""
    return tuple(sorted(_paths(environment)))


def read_secret(scheme: str, reference: str, environment: Mapping[str, str]) -> str:
    """The function's value for a reference, asked for again after half a minute; the last one while it does not answer. Raises
    ValueError, which never shows a value."""
    paths = _paths(environment)
    path = paths.get(scheme)
    if path is None:
        registered = f"registered: {', '.join(sorted(paths))}" if paths else "none is registered"
        raise ValueError(
            f"no function reads ${{{scheme}:…}}; {registered}{suggestion(scheme, paths)}; install the package that provides "
            f"it (entry point group {ENTRY_POINTS}), or set {VARIABLE}={scheme}=package.module:function"
        )
    key = (path, scheme, reference)
    now = time.monotonic()
    with _lock:
        secret = _secrets.setdefault(key, _Secret())
        value = secret.value
        if now - secret.read_at <= _KEPT_SECONDS:
            return value
        if secret.answer is None or secret.answer.done() or now - secret.asked_at > _ASK_AGAIN_SECONDS:
            secret.asked_at, secret.answer = now, started(lambda: _asked(path, scheme, reference))
        waiting, asked_at = secret.answer, secret.asked_at
    # Without the lock: other references, and others that wait for this one, must not wait for each other.
    try:
        answer = waiting.result(max(0.0, asked_at + ANSWER_SECONDS - now))
    except FutureTimeout:
        if value:
            return value
        raise ValueError(
            f"${{{scheme}:{reference}}} cannot be read by {path}: no answer within {ANSWER_SECONDS:g} s; check that the service it asks "
            "is there"
        ) from None
    with _lock:
        secret.read_at, secret.value = time.monotonic(), answer
    return answer


@dataclass(slots=True)
class _Secret:
    """The value of a reference, "" if there is none yet, and the `answer` that is waited for. Times are those of the monotonic clock."""

    read_at: float = -math.inf
    value: str = ""
    asked_at: float = -math.inf
    answer: Future[str] | None = None


_secrets: dict[tuple[str, str, str], _Secret] = {}
"""Secrets by function, scheme and reference, until the process ends."""


def _forget_questions() -> None:
    """In a forked process, which does not have the threads that wait for the answers."""
    global _lock
    _lock = threading.Lock()
    for secret in _secrets.values():
        secret.answer = None


os.register_at_fork(after_in_child=_forget_questions)


def _asked(path: str, scheme: str, reference: str) -> str:
    where = f"${{{scheme}:{reference}}} cannot be read by {path}"
    try:
        module, _, name = path.partition(":")
        function: Callable[[str], object] = getattr(import_module(module), name)
        value = function(reference)
    except Exception as error:
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(value, str) or not value:
        found = "an empty text" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ValueError(f"{where}: it returned {found}; it must return the secret as text")
    return value


def _paths(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Import paths by scheme; the variable's come before those of packages."""
    named = {}
    for entry in filter(None, environment.get(VARIABLE, "").split(",")):
        match = re.fullmatch(r"\s*([a-z][a-z0-9_]*)\s*=\s*([\w.]+:\w+)\s*", entry)
        if match is None:
            raise ValueError(f"{VARIABLE} must be like vault=package.module:function, several separated by commas")
        named[match[1]] = match[2]
    return {**_installed(), **named}


@cache
def _installed() -> Mapping[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
