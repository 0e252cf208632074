"""Is it well? Findings, status, the overview, incidents and `doctor`."""
