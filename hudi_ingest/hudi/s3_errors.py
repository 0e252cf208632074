"""The error of a request to an S3 store."""

from __future__ import annotations

from typing import Any

from hudi_ingest.hudi.store_errors import store_advice
from hudi_ingest.model.storage_options import StorageOptions


class StoreError(OSError):
    """A store refused or did not answer. Its text says what happened; `remedy` is a sentence that says what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return (StoreError, (str(self), self.remedy))


def store_error(error: Exception, options: StorageOptions, bucket: str) -> StoreError:
    """Explain an error of botocore's or pyarrow's S3 client."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    details = response.get("Error", {})
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = details.get("Region") or headers.get("x-amz-bucket-region")
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300].rstrip('.')}"
    advice = store_advice(text) or "the store gave no known reason; check table.storage and the store's own log"
    of_bucket = f" (the bucket is in {region})" if region and region != options.region else ""
    return StoreError(
        f"{options.endpoint or 'AWS S3'}, bucket {bucket}: {text}{of_bucket}", f"{advice[0].upper()}{advice[1:]}."
    )
