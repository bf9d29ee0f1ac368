"""Audits of what only transfer studies have: suites, systems, scored evidence."""
