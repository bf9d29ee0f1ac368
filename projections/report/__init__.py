"""Renderers of the report model: one HTML page, Markdown, CSV. None of them computes a number."""
