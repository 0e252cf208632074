"""The ledger's revisions, oldest first. A released one is never edited."""
