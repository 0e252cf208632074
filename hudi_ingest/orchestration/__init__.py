"""Dagster: the coordinator sensor, the fanned-out run, and the table as an asset. Nothing outside it imports dagster."""
