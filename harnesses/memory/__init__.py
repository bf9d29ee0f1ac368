"""Policies over a store's items: what is kept, found and shown."""
