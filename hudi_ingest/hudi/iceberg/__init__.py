"""Iceberg metadata over a Hudi table's own files: a snapshot is a function of Hudi's timeline, which stays the truth."""
