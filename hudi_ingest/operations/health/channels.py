"""Sends news about incidents to webhooks and by mail."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from functools import partial
from html import escape
from http.client import HTTPException
from typing import Any

from hudi_ingest.exceptions import ChannelFailed
from hudi_ingest.model.deadline import within
from hudi_ingest.operations.health.incidents import News
from hudi_ingest.pipeline.code_location import AlertSettings, Email, Webhook

EMAIL = "email"
TIMEOUT_SECONDS = 10.0
DEADLINE_SECONDS = 25.0
"""Less than the minute that Dagster gives the sensor's tick."""

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
