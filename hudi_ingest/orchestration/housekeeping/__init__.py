"""Deletion of expired runs, events, ticks and snapshots."""
