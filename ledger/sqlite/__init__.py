"""The durable log in one SQLite file."""
