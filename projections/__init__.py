"""What it means: folds over the log, and pure analyses over what the folds give.

Delete every file that this package makes, replay, and get the same answer.
"""
