"""Deletion of runs, events, ticks and snapshots that nobody needs any more."""
