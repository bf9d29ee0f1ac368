"""H011: specialised retrieval tools and one hop in the graph of files.

Everything of the baseline, and definitions, references, callers, imports, tests of a file, and the
files one hop away. The graph has its own tool and changes no ranking.
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
from harnesses.tools.symbols import (
    CALLERS,
    DEFINITIONS,
    IMPORTS,
    NEIGHBOURS,
    REFERENCES,
    TESTS_OF,
)

ID = "H011"
TITLE = "specialised tools and one graph hop"
PROMPT_FILES = ("prompts/h011_system.md", "prompts/h011_task.md")
TOOLS = (
    SEARCH,
    DEFINITIONS,
    REFERENCES,
    CALLERS,
    IMPORTS,
    TESTS_OF,
    NEIGHBOURS,
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
    system = Template(cell.prompts["prompts/h011_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    task = Template(cell.prompts["prompts/h011_task.md"]).substitute(statement=cell.statement)
    yield from converse(cell, system, task, TOOLS)


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
    needs_index=True,
)
