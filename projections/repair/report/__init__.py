"""The report of a repair study, a file for each part; ``build`` puts them in order."""
