"""A002: a controlled adaptation of SWE-agent's interface (Yang et al., 2024; version 0.7).

Preserved: one action a turn, a stateful window of 100 lines with an overlap of two, searches that
refuse more than 100 hits, a range edit with a syntax guard, the last five observations kept and
older ones elided, a message for empty output, and the present diff handed in where a budget ends
(graded as a sensitivity: interpretations 1). Deviations, declared: no shell, no demonstration,
tests through the capped tool only, and a format error spends a turn.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from string import Template

from harnesses.answers import CUT_ANSWER, NO_CALL, UNREADABLE_CALL
from harnesses.contract import (
    TEST_RUNS_USED_UP,
    CallTool,
    CellInput,
    Effect,
    EffectResult,
    Harness,
    Message,
    RejectedCall,
    RunPublicTests,
    Submit,
    ask,
    perform,
    with_reasoning,
)
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.output import BLOCK_TOKENS, TURN_TOKENS, fenced_report
from harnesses.tools.window import (
    CREATE,
    EDIT,
    FIND_FILE,
    GOTO,
    OPEN,
    SCROLL_DOWN,
    SCROLL_UP,
    SEARCH_DIR,
    SEARCH_FILE,
)

ID = "A002"
TITLE = "controlled adaptation of SWE-agent"
PROMPT_FILES = ("prompts/a002_system.md", "prompts/a002_task.md")
TOOLS = (
    OPEN,
    GOTO,
    SCROLL_DOWN,
    SCROLL_UP,
    FIND_FILE,
    SEARCH_FILE,
    SEARCH_DIR,
    EDIT,
    CREATE,
    RUN_TESTS,
    SUBMIT,
)

KEPT_OBSERVATIONS = 5
NO_OUTPUT = "The command ran and printed nothing."


def run(cell: CellInput) -> Generator[Effect, EffectResult, None]:
    """One action a turn until the model submits."""
    system = Template(cell.prompts["prompts/a002_system.md"]).substitute(
        turns=cell.turns, tool_calls=cell.tool_calls, test_runs=cell.test_runs
    )
    task = Template(cell.prompts["prompts/a002_task.md"]).substitute(statement=cell.statement)
    messages = [Message("system", system), Message("user", task)]
    while True:
        shown = with_reasoning(elided(messages), cell.reasoning_history)
        answer = yield from ask(shown, TOOLS, one_action=True)
        messages.append(
            Message(
                "assistant", answer.content, tool_calls=answer.calls, reasoning=answer.reasoning
            )
        )
        if not answer.calls:
            unreadable = UNREADABLE_CALL if answer.salvage == "failed" else NO_CALL
            messages.append(Message("user", CUT_ANSWER if answer.cut else unreadable))
            continue
        for call in answer.calls:  # one that was accepted, or all that were refused
            if isinstance(call, RejectedCall):
                text = call.error
            elif call.name == SUBMIT.name:
                yield Submit()
                return
            elif call.name == RUN_TESTS.name:
                result = yield from perform(RunPublicTests())
                refused = not result.ok and result.text == TEST_RUNS_USED_UP.text
                text = result.text if refused else fenced_report(result.text, BLOCK_TOKENS)
            else:
                result = yield from perform(CallTool(call.name, call.arguments, TURN_TOKENS))
                text = result.text
            messages.append(
                Message("tool", f"{text or NO_OUTPUT}\n{_state(cell)}", tool_call_id=call.id)
            )


def elided(messages: Sequence[Message]) -> list[Message]:
    """The last five observations as they were, older ones by their number of lines."""
    observations = [at for at, message in enumerate(messages) if message.role == "tool"]
    old = set(observations[:-KEPT_OBSERVATIONS])
    return [
        replace(message, content=f"Old output omitted ({message.content.count(chr(10)) + 1} lines)")
        if at in old
        else message
        for at, message in enumerate(messages)
    ]


def _state(cell: CellInput) -> str:
    window = cell.workspace.window
    return f"(Open file: {window.path if window else 'n/a'})"


HARNESS = Harness(
    id=ID,
    title=TITLE,
    run=run,
    prompt_files=PROMPT_FILES,
    tools=TOOLS,
)
