"""Finding what was altered, in records that cannot be trusted."""
