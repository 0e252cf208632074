"""Backfills, replays and retries, from a person's range to the plan of the next transaction."""
