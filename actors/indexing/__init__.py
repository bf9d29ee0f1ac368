"""Indexes of base trees: built and embedded before cells run, only read afterwards."""
