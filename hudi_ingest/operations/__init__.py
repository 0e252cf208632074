"""Operations besides live ingestion: backfill, replay, retries, recovery, sweep, table services, sample, status, health.

Imports `transaction` and what is below it. Public: a module per operation.
"""
