"""A topic that matched a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """A topic that has a pipeline because its name matches a pattern."""

    name: str
    seen_at: datetime
    """When it was first seen, in UTC."""
    at_start: bool
    """Whether it was there when the pattern's topics were first listed. One that appears later is new from its first offset."""
