"""One statistical question a file: pure functions over rows."""
