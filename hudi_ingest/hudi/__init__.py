"""The table's side: ids, options, timeline, base files, and the write client in the JVM."""
