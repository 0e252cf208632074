"""The ops and jobs: transactions, requests, and the upkeep of tables."""
