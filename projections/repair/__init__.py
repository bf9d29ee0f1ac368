"""What a repair study's events mean: tasks, outcomes, analyses, report."""
