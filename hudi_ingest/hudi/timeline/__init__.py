"""A table's timeline: what was committed, who may write now, and what a crash left of it."""
