from tests.test_runs.conftest import environment

__all__ = ["environment"]
