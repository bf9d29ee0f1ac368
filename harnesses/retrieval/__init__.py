"""Methods of search over a snapshot: pure functions, one method a file."""
