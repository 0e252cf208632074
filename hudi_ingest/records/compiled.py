"""Loops that are compiled to machine code, by numba. Import the modules that have them only where they run, in Spark's Python
workers: numba takes a while to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.extending

_Function = TypeVar("_Function", bound=Callable[..., Any])

intrinsic: Callable[[_Function], Any] = numba.extending.intrinsic
"""numba's, for what its Python cannot say."""


def compiled(signature: str) -> Callable[[_Function], _Function]:
    """Compile at import, or load what an earlier process of this machine has compiled. The GIL is released while it runs."""

    def decorate(function: _Function) -> _Function:
        try:
            found: _Function = numba.njit(signature, nogil=True, cache=True)(function)
        except (RuntimeError, OSError):
            # No folder to keep it in can be written to: each process compiles for itself.
            found = numba.njit(signature, nogil=True)(function)
        return found

    return decorate
