"""H007: exact, BM25 and fuzzy, tree-sitter symbols and dense retrieval, fused by reciprocal ranks.

Everything of the baseline, and one tool over five ranked lists and their fused order.
"""

from collections.abc import Generator
from string import Template

from harnesses.contract import CellInput, Effect, EffectResult, Harness
from harnesses.conversation import converse
from harnesses.tools.create_file import CREATE_FILE
from harnesses.tools.delete_file import DELETE_FILE
from harnesses.tools.edit_file import EDIT_FILE
from harnesses.tools.find_code import FIND_CODE
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.list_files import LIST_FILES
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH

ID = "H007"
TITLE = "hybrid retrieval with reciprocal-rank fusion"
PROMPT_FILES = ("prompts/h007_system.md", "prompts/h007_task.md")
TOOLS = (
    SEARCH,
    FIND_CODE,
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
    system = Template(cell.prompts["prompts/h007_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    task = Template(cell.prompts["prompts/h007_task.md"]).substitute(statement=cell.statement)
    yield from converse(cell, system, task, TOOLS)


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
    needs_index=True,
)
