"""A former name of `embedded.run_launcher`, which dagster.yaml files and code of users have."""

from hudi_ingest.orchestration.embedded.run_launcher import ForkingRunLauncher

__all__ = ["ForkingRunLauncher"]
