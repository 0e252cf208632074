"""The sensors: each tick decides whether a run begins, and which."""
