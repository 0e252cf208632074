"""An S3 bucket, as botocore's client shows it: conditional writes, answers that are lost, and tries that botocore repeats by itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import lru_cache
from hashlib import md5
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from hudi_ingest_tests.simulation.programs import stop

if TYPE_CHECKING:
    from hudi_ingest_tests.simulation.world import World

_PREFIX = "orders/"


class NoConnection(EndpointConnectionError):  # type: ignore[misc]
    """Nothing was done."""

    def __init__(self, where: str) -> None:
        super().__init__(endpoint_url=where)


class NoAnswer(ReadTimeoutError):  # type: ignore[misc]
    """All was done, and none of botocore's tries had an answer."""

    def __init__(self, where: str) -> None:
        super().__init__(endpoint_url=where)


class SentAgain(Exception):
    """All was done, the answer was lost, and botocore sends the request once more."""


class BucketClient:
    """The requests that hudi/storage/s3.py makes for small files."""

    def __init__(self, world: World) -> None:
        self._world = world

    def put_object(
        self, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str = "", IfMatch: str = ""
    ) -> dict[str, Any]:
        def put() -> dict[str, Any]:
            before = self._texts.get(Key.removeprefix(_PREFIX))
            if IfNoneMatch == "*" and before is not None:
                raise _refusal("PreconditionFailed", "PutObject")
            if IfMatch and before is None:
                raise _refusal("NoSuchKey", "PutObject")
            if IfMatch and before is not None and _etag(before) != IfMatch:
                raise _refusal("PreconditionFailed", "PutObject")
            self._world.put(Key.removeprefix(_PREFIX), Body)
            return {"ETag": _etag(Body)}

        return self._request(f"put {Key}", put)

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        def get() -> dict[str, Any]:
            content = self._texts.get(Key.removeprefix(_PREFIX))
            if content is None:
                raise _refusal("NoSuchKey", "GetObject")
            return {"Body": io.BytesIO(content), "ETag": _etag(content)}

        return self._request(f"get {Key}", get)

    def head_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        def head() -> dict[str, Any]:
            content = self._texts.get(Key.removeprefix(_PREFIX))
            if content is None:
                raise _refusal("404", "HeadObject")
            return {"ContentLength": len(content), "ETag": _etag(content)}

        return self._request(f"head {Key}", head)

    def delete_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        def delete() -> dict[str, Any]:
            self._texts.pop(Key.removeprefix(_PREFIX), None)
            return {}

        return self._request(f"delete {Key}", delete)

    def delete_objects(self, Bucket: str, Delete: Mapping[str, Any]) -> dict[str, Any]:
        def delete() -> dict[str, Any]:
            for each in Delete["Objects"]:
                self._texts.pop(each["Key"].removeprefix(_PREFIX), None)
            return {}

        return self._request("delete objects", delete)

    def list_objects_v2(self, Bucket: str, Prefix: str) -> dict[str, Any]:
        def list_objects() -> dict[str, Any]:
            found = {f"{_PREFIX}{path}": content for path, content in sorted(self._texts.items())}
            modified = datetime(2026, 1, 1, tzinfo=timezone.utc)
            return {
                "Contents": [
                    {"Key": key, "Size": len(content), "LastModified": modified}
                    for key, content in found.items()
                    if key.startswith(Prefix)
                ]
            }

        return self._request(f"list {Prefix}", list_objects)

    @property
    def _texts(self) -> dict[str, bytes]:
        return self._world.texts

    def _request(self, what: str, serve: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        while True:
            stop(what, NoConnection)
            answer = serve()
            try:
                stop(f"answer to {what}", NoAnswer, SentAgain)
            except SentAgain:
                continue
            return answer


@lru_cache(4096)
def _etag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'


def _refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, operation)
