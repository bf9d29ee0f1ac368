"""H000: exact, substring and regular-expression search over raw files. The baseline.

Results come in typed groups like those of the other arms (interpretations 10), so that another
arm's gain is not merely the effect of showing production code first.
"""

from collections.abc import Generator
from string import Template

from harnesses.contract import CellInput, Effect, EffectResult, Harness
from harnesses.conversation import converse
from harnesses.tools.create_file import CREATE_FILE
from harnesses.tools.delete_file import DELETE_FILE
from harnesses.tools.edit_file import EDIT_FILE
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.list_files import LIST_FILES
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH

ID = "H000"
TITLE = "exact, substring and regular-expression search"
PROMPT_FILES = ("prompts/h000_system.md", "prompts/h000_task.md")
TOOLS = (
    SEARCH,
    LIST_FILES,
    READ_FILE,
    EDIT_FILE,
    CREATE_FILE,
    DELETE_FILE,
    RUN_TESTS,
    SUBMIT,
)


def run(cell: CellInput) -> Generator[Effect, EffectResult, None]:
    """The common conversation with this arm's prompts and tools."""
    system = Template(cell.prompts["prompts/h000_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    task = Template(cell.prompts["prompts/h000_task.md"]).substitute(statement=cell.statement)
    yield from converse(cell, system, task, TOOLS)


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
)
