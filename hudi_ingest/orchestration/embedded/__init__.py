"""The embedded stack's own parts of Dagster, which start runs sooner and cost less than the stock ones."""
