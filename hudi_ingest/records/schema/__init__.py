"""Columns and where they come from: Spark DDL, Avro, JSON Schema, samples; and how columns evolve.

Imports `exceptions`. Public: `columns`, and a module per source.
"""
