"""Repair studies: cells, their grading, their re-execution."""
