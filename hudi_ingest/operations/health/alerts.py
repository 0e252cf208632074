"""Alerts: the incidents of pipelines, which of them a channel does not know yet (pure), and the channels: webhooks and mail."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.message import EmailMessage
from functools import partial
from html import escape
from http.client import HTTPException
from typing import Any

from hudi_ingest.exceptions import ChannelFailed
from hudi_ingest.exceptions.problems import counted, duration_text
from hudi_ingest.model.deadline import within
from hudi_ingest.pipeline.code_location import AlertSettings, Email, Webhook

_SHOWN = 20
_LONGEST_TEXT = 1500
_LONGEST_KEPT = 300
"""The characters kept of a message for the one about its end: the cursor has it of every incident and channel."""
EMAIL = "email"
TIMEOUT_SECONDS = 10.0
DEADLINE_SECONDS = 25.0
"""Less than the minute that Dagster gives the sensor's tick."""


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
class Announced:
    """An incident as it was first sent to a channel, and when, in seconds since 1970."""

    incident: Incident
    at: float

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.incident.to_dict(),
            "since": datetime.fromtimestamp(self.at, timezone.utc).isoformat(timespec="seconds"),
        }

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Announced:
        """The inverse of `to_dict`. Raises KeyError, TypeError, ValueError."""
        pipeline, check, text = (str(facts[name]) for name in ("pipeline", "check", "text"))
        incident = Incident(pipeline, check, text, facts["severity"] == "warning", str(facts.get("url", "")))
        return cls(incident, datetime.fromisoformat(facts["since"]).timestamp())


@dataclass(frozen=True, slots=True)
class News:
    """The news for a channel: incidents that began, and those that ended before `now`, in seconds since 1970."""

    began: tuple[Incident, ...]
    ended: tuple[Announced, ...] = ()
    now: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.began or self.ended)

    @property
    def title(self) -> str:
        parts = [f"{counted(len(self.began), 'check')} failing"] if self.began else []
        parts += [f"{len(self.ended)} well again"] if self.ended else []
        return f"hudi-ingest: {', '.join(parts)}"

    def to_text(self) -> str:
        """Render for chat and mail: a paragraph for each incident that began or ended."""
        shown = [
            _paragraph(incident, "warns" if incident.warning else "fails", incident.text)
            for incident in self.began[:_SHOWN]
        ]
        if len(self.began) > _SHOWN:
            shown.append(f"and {len(self.began) - _SHOWN} more; `hudi-ingest doctor` lists all")
        shown += [
            _paragraph(
                past.incident, f"is well again after {duration_text(self.now - past.at)}. It said", past.incident.text
            )
            for past in self.ended[:_SHOWN]
        ]
        if len(self.ended) > _SHOWN:
            shown.append(f"and {len(self.ended) - _SHOWN} more are well again")
        return "\n\n".join(shown)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": "hudi-ingest",
            "title": self.title,
            "failing": [incident.to_dict() for incident in self.began],
            "resolved": [{**past.to_dict(), "seconds": round(self.now - past.at)} for past in self.ended],
        }


def news_for(told: Sequence[Announced], incidents: Sequence[Incident], now: float) -> News:
    """Compare the incidents that a channel was sent with the open ones. A warning that has become a failure is news, too."""
    known = {past.incident.key: past.incident for past in told}
    keys = {incident.key for incident in incidents}
    began = (
        incident
        for incident in incidents
        if incident.key not in known or (known[incident.key].warning and not incident.warning)
    )
    return News(tuple(began), tuple(past for past in told if past.incident.key not in keys), now)


@dataclass(frozen=True, slots=True)
class Told:
    """The incidents that each channel was sent without their end: the sensor's cursor."""

    by_channel: Mapping[str, tuple[Announced, ...]]

    @classmethod
    def read(cls, cursor: str | None) -> Told:
        """Parse a cursor; with one that is lost, damaged or of an older version, everything is sent once more."""
        try:
            content = json.loads(cursor or "{}")
            return cls({str(name): tuple(map(Announced.read, facts)) for name, facts in content.items()})
        except (ValueError, AttributeError, TypeError, KeyError):
            return cls({})

    def of(self, channel: str) -> tuple[Announced, ...]:
        return self.by_channel.get(channel, ())

    def after(self, channel: str, incidents: Sequence[Incident], now: float) -> Told:
        """The state once the channel has been told of all `incidents`. What it knew keeps its text and time, so that the end is told
        of the incident that was told; a warning that has become a failure keeps its time."""
        before = {past.incident.key: past for past in self.of(channel)}
        told = []
        for incident in incidents:
            past = before.get(incident.key)
            if past is None or (past.incident.warning and not incident.warning):
                kept = replace(incident, text=_cut(incident.text, _LONGEST_KEPT))
                past = Announced(kept, past.at if past else now)
            told.append(past)
        return Told({**self.by_channel, channel: tuple(told)})

    def only(self, channels: Sequence[str]) -> Told:
        """Forget channels that are no longer there."""
        return Told({name: told for name, told in self.by_channel.items() if name in channels})

    def to_text(self) -> str:
        return json.dumps({name: [past.to_dict() for past in told] for name, told in self.by_channel.items()})


def _paragraph(incident: Incident, verb: str, text: str) -> str:
    link = f"\n{incident.url}" if incident.url else ""
    return f"{incident.key} {verb}: {_cut(text, _LONGEST_TEXT)}{link}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


Send = Callable[[News], None]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: followed, the POST would become a GET without the news, which a login page answers with 200."""

    def redirect_request(self, *redirect: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def channels(settings: AlertSettings) -> dict[str, Send]:
    """Return how to reach each channel, by name. Calls raise ChannelFailed and ConfigError (a secret is gone)."""
    reach: dict[str, Send] = {webhook.name: _poster(webhook) for webhook in settings.webhooks}
    if settings.email is not None:
        reach[EMAIL] = _mailer(settings.email)
    return {name: _bounded(name, send) for name, send in reach.items()}


def _bounded(name: str, send: Send) -> Send:
    """With a deadline for all of it: a server that sends its answer byte by byte stays within the timeout of each."""

    def bounded(news: News) -> None:
        try:
            within(DEADLINE_SECONDS, partial(send, news))
        except TimeoutError:
            raise ChannelFailed(name, f"it has not taken the news within {DEADLINE_SECONDS:g} s") from None

    return bounded


def _poster(webhook: Webhook) -> Send:
    def post(news: News) -> None:
        content: dict[str, Any] = news.to_dict()
        if webhook.format == "slack":
            # Texts quote records, whose authors must not call the channel or place links in it.
            content = {"text": escape(f"*{news.title}*\n{news.to_text()}", quote=False)}
        request = urllib.request.Request(
            webhook.url.get_secret_value(),
            json.dumps(content).encode(),
            {"Content-Type": "application/json", "User-Agent": "hudi-ingest"},
        )
        try:
            with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            # Without the chain, which quotes the URL.
            correct = "; set the address that it redirects to as its url" if 300 <= error.code < 400 else ""
            raise ChannelFailed(webhook.name, f"it answered HTTP {error.code} {error.reason}{correct}") from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise ChannelFailed(webhook.name, f"it cannot be reached: {reason}") from None

    return post


def _mailer(email: Email) -> Send:
    def send(news: News) -> None:
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = news.title, email.sender, ", ".join(email.to)
        message.set_content(news.to_text())
        try:
            with _connected(email) as server:
                if email.username is not None:
                    server.login(email.username, email.password.get_secret_value() if email.password else "")
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise ChannelFailed(EMAIL, f"{email.host}:{email.port}: {error}") from error

    return send


def _connected(email: Email) -> smtplib.SMTP:
    if email.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(email.host, email.port, timeout=TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(email.host, email.port, timeout=TIMEOUT_SECONDS)
    if email.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server
