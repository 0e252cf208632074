"""One module for each engine: functions that return the rows of a table as mappings, and a main that prints them, for an environment in which
the rest of hudi-ingest is not installed.
"""
