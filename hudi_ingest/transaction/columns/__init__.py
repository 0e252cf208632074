"""Which columns a transaction writes, where they come from, and who approves a change."""
