"""Test families and corrections as files: read, converted, reviewed, scaffolded."""
