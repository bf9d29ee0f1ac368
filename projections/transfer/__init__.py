"""What a transfer study's events mean: evidence, stages, scores, counts, report."""
