"""H018: the upper-bound control. H000's tools, and the names of the gold production files.

Names only: no line numbers, no tests, never gold code. What an arm could gain by finding the right
files at once is the distance between this arm and that arm.
"""

from collections.abc import Generator
from string import Template

from harnesses.contract import CellInput, Effect, EffectResult, Harness
from harnesses.conversation import converse
from harnesses.retrieval.snapshot import display_path
from harnesses.tools.create_file import CREATE_FILE
from harnesses.tools.delete_file import DELETE_FILE
from harnesses.tools.edit_file import EDIT_FILE
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.list_files import LIST_FILES
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH

ID = "H018"
TITLE = "oracle: names of the gold production files"
PROMPT_FILES = ("prompts/h018_system.md", "prompts/h018_task.md")
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
    """The common conversation with this arm's prompts and tools.

    Raises ValueError without oracle files: a cell of this arm would be one of H000.
    """
    if not cell.oracle_files:
        raise ValueError("H018 needs the names of the gold production files; the cell has none")
    system = Template(cell.prompts["prompts/h018_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    oracle_files = "\n".join(f"- {display_path(path)}" for path in cell.oracle_files)
    task = Template(cell.prompts["prompts/h018_task.md"]).substitute(
        statement=cell.statement, oracle_files=oracle_files
    )
    yield from converse(cell, system, task, TOOLS)


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
    needs_oracle_files=True,
)
