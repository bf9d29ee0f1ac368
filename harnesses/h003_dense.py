"""H003: H000 and dense code embeddings.

Everything of the baseline, and two tools over vectors of production code: free text, and the
passage around a line. No model is asked for a query: interpretations 9, ``retrieval/hybrid.py``.
"""

from collections.abc import Generator
from string import Template

from harnesses.contract import CellInput, Effect, EffectResult, Harness
from harnesses.conversation import converse
from harnesses.tools.create_file import CREATE_FILE
from harnesses.tools.delete_file import DELETE_FILE
from harnesses.tools.edit_file import EDIT_FILE
from harnesses.tools.find_meaning import FIND_MEANING, SIMILAR_TO
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.list_files import LIST_FILES
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH

ID = "H003"
TITLE = "exact search and dense code embeddings"
PROMPT_FILES = ("prompts/h003_system.md", "prompts/h003_task.md")
TOOLS = (
    SEARCH,
    FIND_MEANING,
    SIMILAR_TO,
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
    system = Template(cell.prompts["prompts/h003_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    task = Template(cell.prompts["prompts/h003_task.md"]).substitute(statement=cell.statement)
    yield from converse(cell, system, task, TOOLS)


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
    needs_index=True,
)
