"""Whether a server accepts connections, of several that serve the same."""

from __future__ import annotations

import socket
from collections.abc import Sequence

CONNECT_SECONDS = 5.0


def first_listening(addresses: Sequence[str]) -> tuple[str | None, dict[str, OSError]]:
    """Connect to one `host:port` or `scheme://host:port` after the other until one accepts. Returns it, None if none does, and why
    those before it did not."""
    refusals: dict[str, OSError] = {}
    for address in addresses:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            return address, refusals
        except OSError as error:
            refusals[address] = error
    return None, refusals
