"""Faults on the whole stack: the kill matrix, random combinations of it, and a soak. `make chaos`, `make soak`."""
