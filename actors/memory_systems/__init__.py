"""Systems under test: our stores and other people's memories behind one contract."""
