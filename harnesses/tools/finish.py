"""``run_tests`` and ``submit``: tools that an arm turns into effects of their own."""

from harnesses.contract import ToolSpec
from schemas.base import Value


class NoArguments(Value):
    pass


RUN_TESTS = ToolSpec(
    name="run_tests",
    description="Run the repository's public tests on the workspace as it is now. They passed "
    "before your changes. Counts as a tool call and as a test run.",
    arguments=NoArguments,
)

SUBMIT = ToolSpec(
    name="submit",
    description="Hand in the workspace as it is now and end the work.",
    arguments=NoArguments,
)
