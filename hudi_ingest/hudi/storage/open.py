"""The storage of a table, chosen by its path."""

from __future__ import annotations

from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.s3 import S3Storage
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.storage_options import StorageOptions, is_s3


def storage_at(base_path: str, options: StorageOptions) -> TableStorage:
    """Return the storage of the table at a normalized base path. Connects only when it is used."""
    return S3Storage(base_path, options) if is_s3(base_path) else LocalStorage(base_path)
