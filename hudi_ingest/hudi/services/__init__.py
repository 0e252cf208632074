"""Hudi's own services of a table: clustering, compaction, dropping partitions, savepoints, catalogs."""
