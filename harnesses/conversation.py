"""The conversation that the interactive component arms have in common: ask, carry out the calls in
order, report, until the model submits.

One loop for all of them, so that what differs between two arms is what their files say: prompts and
tools. A change here changes every such arm, and the identity of each.
"""

from collections.abc import Generator
from itertools import count

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
    ToolSpec,
    ask,
    perform,
    with_reasoning,
)
from harnesses.tools.finish import RUN_TESTS, SUBMIT
from harnesses.tools.output import (
    BLOCK_TOKENS,
    MIN_ROOM,
    TURN_TOKENS,
    estimate_tokens,
    fenced_report,
)


def converse(
    cell: CellInput, system: str, task: str, tools: tuple[ToolSpec, ...]
) -> Generator[Effect, EffectResult, None]:
    """Yields effects until the model submits; the engine ends the cell when a budget does."""
    messages = [Message("system", system), Message("user", task)]
    tool_calls_left, test_runs_left = cell.tool_calls, cell.test_runs

    for turn in count(1):
        answer = yield from ask(with_reasoning(messages, cell.reasoning_history), tools)
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
