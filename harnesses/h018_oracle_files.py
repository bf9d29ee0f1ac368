"""H018: the upper-bound control. H000's tools, and the names of the gold production files.

Names only: no line numbers, no tests, never gold code. What an arm could gain by finding the right
files at once is the distance between this arm and that arm.
"""

from collections.abc import Generator
from itertools import count
from string import Template

from harnesses.answers import CUT_ANSWER, NO_CALL, UNREADABLE_CALL
from harnesses.contract import (
    TEST_RUNS_USED_UP,
    TOOL_CALLS_USED_UP,
    CallTool,
    CellInput,
    Effect,
    EffectResult,
    Message,
    RejectedCall,
    RunPublicTests,
    Submit,
    ask,
    perform,
    with_reasoning,
)
from harnesses.retrieval.snapshot import display_path
from harnesses.tools.create_file import CREATE_FILE
from harnesses.tools.edit_file import EDIT_FILE
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.list_files import LIST_FILES
from harnesses.tools.output import (
    BLOCK_TOKENS,
    MIN_ROOM,
    TURN_TOKENS,
    estimate_tokens,
    fenced_report,
)
from harnesses.tools.read_file import READ_FILE
from harnesses.tools.search import SEARCH

ID = "H018"
TITLE = "oracle: names of the gold production files"
PROMPT_FILES = ("prompts/h018_system.md", "prompts/h018_task.md")
TOOLS = (SEARCH, LIST_FILES, READ_FILE, EDIT_FILE, CREATE_FILE, RUN_TESTS, SUBMIT)


def run(cell: CellInput) -> Generator[Effect, EffectResult, None]:
    """Ask, carry out the calls in order, report, until the model submits.

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
    messages = [Message("system", system), Message("user", task)]
    tool_calls_left, test_runs_left = cell.tool_calls, cell.test_runs

    for turn in count(1):
        answer = yield from ask(with_reasoning(messages, cell.reasoning_history), TOOLS)
        messages.append(
            Message(
                "assistant",
                answer.content,
                tool_calls=answer.calls,
                reasoning=answer.reasoning,
            )
        )
        replies: list[Message] = []
        room = TURN_TOKENS
        for call in answer.calls:
            if isinstance(call, RejectedCall):
                text = call.error
            elif call.name == SUBMIT.name:
                yield Submit()
                return
            else:
                is_test_run = call.name == RUN_TESTS.name
                effect = CallTool(call.name, call.arguments, max(room, 0))
                result = yield from perform(RunPublicTests() if is_test_run else effect)
                text = result.text
                if result not in (TOOL_CALLS_USED_UP, TEST_RUNS_USED_UP):
                    tool_calls_left -= 1
                    if is_test_run:
                        test_runs_left -= 1
                        text = fenced_report(text, min(BLOCK_TOKENS, max(room, MIN_ROOM)))
            room -= estimate_tokens(text)
            replies.append(Message("tool", text, tool_call_id=call.id))
        if answer.cut:
            replies.append(Message("user", CUT_ANSWER))
        elif not answer.calls:
            unreadable = answer.salvage == "failed"
            replies.append(Message("user", UNREADABLE_CALL if unreadable else NO_CALL))

        turns_left = cell.turns - turn
        left = f"[left: {turns_left} answers, {tool_calls_left} tool calls, "
        left += f"{test_runs_left} test runs]"
        if turns_left == 1:
            left += " The next answer is the last one: without submit the work counts as not done."
        last = replies.pop()
        replies.append(
            Message(last.role, f"{last.content}\n\n{left}", tool_call_id=last.tool_call_id)
        )
        messages += replies
