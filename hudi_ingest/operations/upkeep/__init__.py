"""The upkeep of a table: services, sweep, TTL, savepoints, catalog, recovery."""
