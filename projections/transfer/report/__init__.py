"""The report of a transfer study, a file for each part; ``build`` puts them in order."""
