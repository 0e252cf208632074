"""Stream a new file to an S3 store: one PUT while it is small, a multipart upload from then on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

PART_BYTES = 8 * 1024 * 1024
"""A file up to this size is one PUT. Parts have the same size but for the last, as some stores require; AWS requires 5 MiB."""


class Uploads(Protocol):
    """Requests of one table. All raise StoreError."""

    def write(self, path: str, content: bytes) -> None: ...
    def begin_upload(self, path: str) -> str: ...
    def upload_part(self, path: str, upload_id: str, number: int, content: bytes) -> str: ...
    def complete_upload(self, path: str, upload_id: str, etags: list[str], size_bytes: int) -> None: ...
    def give_up_upload(self, path: str, upload_id: str) -> None: ...


class S3Output:
    """A binary file, open for writing, of which nothing is visible before it is closed.

    It keeps PART_BYTES in memory at most, and no more than was written: a task may have hundreds of files open. One that is
    dropped, left by an error or refused by the store is never completed.
    """

    def __init__(self, uploads: Uploads, path: str) -> None:
        self.closed = False
        self._uploads = uploads
        self._path = path
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size = 0
        self._upload_id: str | None = None
        self._etags: list[str] = []

    def __enter__(self) -> S3Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()

    def write(self, content: bytes) -> int:
        # A copy, because the caller may reuse its buffer.
        self._waiting.append(bytes(content))
        self._waiting_bytes += len(content)
        self._size += len(content)
        if self._waiting_bytes > PART_BYTES:
            with self._given_up_on_error():
                self._send_full_parts()
        return len(content)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            with self._given_up_on_error():
                self._send_rest()
            self.closed = True

    def _send_full_parts(self) -> None:
        if self._upload_id is None:
            self._upload_id = self._uploads.begin_upload(self._path)
        content = b"".join(self._waiting)
        # The last byte stays, because close sends the last part.
        full = (len(content) - 1) // PART_BYTES * PART_BYTES
        for start in range(0, full, PART_BYTES):
            self._send_part(self._upload_id, content[start : start + PART_BYTES])
        self._waiting = [content[full:]]
        self._waiting_bytes = len(content) - full

    def _send_rest(self) -> None:
        content = b"".join(self._waiting)
        if self._upload_id is None:
            self._uploads.write(self._path, content)
        else:
            self._send_part(self._upload_id, content)
            self._uploads.complete_upload(self._path, self._upload_id, self._etags, self._size)
        self._waiting.clear()

    def _send_part(self, upload_id: str, content: bytes) -> None:
        number = len(self._etags) + 1
        self._etags.append(self._uploads.upload_part(self._path, upload_id, number, content))

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Close without completing the file: after an error a part may be missing."""
        if self.closed:
            return
        self.closed = True
        self._waiting.clear()
        if self._upload_id is not None:
            # An upload that cannot be aborted now is aborted by the rollback of its instant, or by the sweep.
            with suppress(OSError):
                self._uploads.give_up_upload(self._path, self._upload_id)
