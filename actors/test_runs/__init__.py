"""Running the tests of a repository: environments, workspaces, patches, reports."""
