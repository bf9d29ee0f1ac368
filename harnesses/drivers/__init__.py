"""Who reads a memory and acts: one file a driver over one contract."""
