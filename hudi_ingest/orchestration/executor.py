"""A former name of `embedded.executor`, which dagster.yaml files and code of users have."""

from hudi_ingest.orchestration.embedded.executor import EXECUTOR

__all__ = ["EXECUTOR"]
