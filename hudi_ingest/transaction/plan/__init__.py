"""Which offsets the next transaction reads."""
