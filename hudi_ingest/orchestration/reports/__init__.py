"""Reports to Dagster: checks, materializations, observations, alerts."""
