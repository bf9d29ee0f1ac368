"""Audits of what only repair studies have: mined tasks, budgets, hidden tests."""
