"""OpenLineage events of transactions: which offsets of which topics became which rows, and which field became which column."""
