"""What was said, in order: the append-only hash-chained log and everything that proves it."""
