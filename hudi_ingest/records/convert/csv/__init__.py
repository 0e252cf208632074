"""CSV: a fast path, and the exact reading that decides wherever that one doubts."""
