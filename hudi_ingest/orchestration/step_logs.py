"""A former name of `embedded.step_logs`, which dagster.yaml files and code of users have."""

from hudi_ingest.orchestration.embedded.step_logs import FileComputeLogManager

__all__ = ["FileComputeLogManager"]
