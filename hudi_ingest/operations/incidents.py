"""Incidents: what is wrong with pipelines, and which of it a channel has not been told of. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hudi_ingest.exceptions.problems import counted, listed

_SHOWN = 20
_LONGEST_TEXT = 1500
_ONLY_WARNED = "?"
"""The end of a key in what a channel was told, if it was told of no more than a warning."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A check of a pipeline that fails. `text` says what to do; `url`: a page about it, or ""."""

    pipeline: str
    check: str
    text: str
    warning: bool = False
    url: str = ""

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.check}"

    def to_dict(self) -> dict[str, Any]:
        severity = "warning" if self.warning else "error"
        facts = {"pipeline": self.pipeline, "check": self.check, "severity": severity, "text": self.text}
        return {**facts, "url": self.url} if self.url else facts


@dataclass(frozen=True, slots=True)
class News:
    """What a channel does not know yet: incidents that began, and keys (pipeline/check) of those that ended."""

    began: tuple[Incident, ...]
    ended: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.began or self.ended)

    @property
    def title(self) -> str:
        parts = [f"{counted(len(self.began), 'check')} failing"] if self.began else []
        parts += [f"{len(self.ended)} well again"] if self.ended else []
        return f"hudi-ingest: {', '.join(parts)}"

    def to_text(self) -> str:
        """Render for chat and mail: a paragraph for each incident that began, a line for each that ended."""
        shown = [
            f"{incident.key} {'warns' if incident.warning else 'fails'}: {_cut(incident.text)}"
            + (f"\n{incident.url}" if incident.url else "")
            for incident in self.began[:_SHOWN]
        ]
        if len(self.began) > _SHOWN:
            shown.append(f"and {len(self.began) - _SHOWN} more; `hudi-ingest doctor` lists all")
        if self.ended:
            shown.append(f"well again: {listed(self.ended, _SHOWN)}")
        return "\n\n".join(shown)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": "hudi-ingest",
            "title": self.title,
            "failing": [incident.to_dict() for incident in self.began],
            "resolved": [dict(zip(("pipeline", "check"), key.split("/", 1), strict=True)) for key in self.ended],
        }


def news_for(told: Sequence[str], incidents: Sequence[Incident]) -> News:
    """Compare what a channel was told of with what is wrong now. A warning that has become a failure is news, too."""
    now = {incident.key: incident for incident in incidents}
    known = dict.fromkeys(text.removesuffix(_ONLY_WARNED) for text in told)
    return News(
        tuple(incident for key, incident in now.items() if key not in (known if incident.warning else told)),
        tuple(key for key in known if key not in now),
    )


@dataclass(frozen=True, slots=True)
class Told:
    """Which incidents each channel was told of, as keys, and not of their end: the sensor's cursor."""

    by_channel: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, cursor: str | None) -> Told:
        """Parse a cursor; one that is lost or damaged tells everything again."""
        try:
            content = json.loads(cursor or "{}")
            return cls({str(name): tuple(map(str, keys)) for name, keys in content.items()})
        except (ValueError, AttributeError, TypeError):
            return cls({})

    def of(self, channel: str) -> tuple[str, ...]:
        return self.by_channel.get(channel, ())

    def after(self, channel: str, incidents: Sequence[Incident]) -> Told:
        """The state once the channel has been told of all `incidents`."""
        before = self.of(channel)
        told = (
            f"{incident.key}{_ONLY_WARNED}" if incident.warning and incident.key not in before else incident.key
            for incident in incidents
        )
        return Told({**self.by_channel, channel: tuple(told)})

    def only(self, channels: Sequence[str]) -> Told:
        """Forget channels that are no longer there."""
        return Told({name: keys for name, keys in self.by_channel.items() if name in channels})

    def to_text(self) -> str:
        return json.dumps({name: list(keys) for name, keys in self.by_channel.items()})


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
