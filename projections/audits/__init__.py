"""Audits: named questions to the log, each answered by a fold over its records.

One file a question. An audit says how much it looked at, names the record of everything it found,
and never shows an outcome: what it prints is the same whether cells were resolved or not.
"""
