"""A former name of `embedded.sqlite_storage`, which dagster.yaml files and code of users have."""

from hudi_ingest.orchestration.embedded.sqlite_storage import QuickSqliteStorage

__all__ = ["QuickSqliteStorage"]
