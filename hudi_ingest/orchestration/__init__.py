"""Dagster: the coordinator sensor, the fanned-out run, and the table as an asset. Nothing else imports dagster.

Imports `operations` and what is below it. Public: `definitions`, `component`, and the classes that a dagster.yaml names.
"""
