"""The vocabulary of repair studies: their study file, tasks, and how tasks are selected."""
