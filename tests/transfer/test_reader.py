"""What the rule-based reader gives a tool: what memory and sources delivered, or nothing."""

from typing import Any

import pytest

from harnesses.drivers import reader
from harnesses.drivers.contract import (
    CallTool,
    DeliveredText,
    Recall,
    Remembered,
    Result,
    SessionInput,
    ToolShown,
)
from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.family import NEEDS_RESOLUTION
from schemas.transfer.offered_tool import OfferedTool, decision_tool
from schemas.transfer.rendering import render

SESSION = Session(
    principal="role:clerk", project="birch", task_class="post", now="2026-07-01T00:00:00Z"
)
UNRELATED = Correction(
    correction_id="CT-9",
    class_="boundary",
    semantic_expectation="An invoice of larch goes into the legal box.",
    source_reference="ref:log/9",
    persistence_allowed=True,
    scope=Scope(principal="role:clerk", project="larch", task_classes=("post",)),
    valid_from="2026-01-01T00:00:00Z",
    expires_at=None,
    lifecycle="active",
    supersedes=None,
    expected_decision="legal",
    expected_action="send the invoice to the legal box",
    prohibited_actions=("delete the invoice",),
    authoritative_outcome_check="surface boxes: it is there",
    consequence="low",
)


def tool(name: str, description: str, **parameters: str) -> OfferedTool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": list(parameters),
        "additionalProperties": False,
    }
    return OfferedTool(name=name, description=description, parameters=schema)


TOOLS = (
    tool("policy_read", "Returns policy/<project>.", project="string"),
    tool("invoice_send", "Sets boxes/<box>/<number>.", box="string", number="string"),
    tool("ask", "Asks somebody who can decide. Changes nothing.", question="string"),
    decision_tool(("finance", "legal", NEEDS_RESOLUTION)),
)


def called(prompt: str, policy: Any, *delivered: str) -> dict[str, Any]:
    """Arguments by name of every tool that the reader called."""
    steps = reader.run(SessionInput("task", (prompt,), SESSION, TOOLS))
    calls: dict[str, Any] = {}
    effect = next(steps)
    while isinstance(effect, Recall | CallTool):
        result: Result
        if isinstance(effect, Recall):
            result = Remembered(tuple(DeliveredText("s", text) for text in delivered))
        else:
            calls[effect.name] = effect.arguments
            result = ToolShown(policy is not None, policy)
        effect = steps.send(result)
    return calls


@pytest.mark.parametrize(
    ("prompt", "policy", "sent"),
    [
        ("Please dispatch invoice 77 of birch.", {"box": "finance"}, ("finance", "77")),
        ("Please dispatch invoice 77 of birch.", "finance", ("finance", "77")),
        ("Dispatch invoice 77 to customer 5, please.", {"box": "finance"}, ("finance", "77")),
        ("Please dispatch number 77 of birch.", {"box": "finance"}, ("finance", "77")),
        # It is not said which one: what was decided is no number, nor is somebody else's.
        ("Please dispatch the invoice of birch.", {"box": "finance"}, None),
        ("Please dispatch the invoice to customer 5.", {"box": "finance"}, None),
        ("Please dispatch invoice 77 to finance.", None, None),
    ],
)
def test_an_argument_is_what_was_given_or_somebody_is_asked(
    prompt: str, policy: Any, sent: tuple[str, str] | None
) -> None:
    calls = called(prompt, policy)
    if sent is None:
        assert calls["declare_decision"]["option"] == NEEDS_RESOLUTION
        assert "ask" in calls and "invoice_send" not in calls
    else:
        assert calls["invoice_send"] == dict(zip(("box", "number"), sent, strict=True))
        assert calls["declare_decision"]["option"] == "finance"


def test_a_record_that_gives_not_every_argument_is_asked_about() -> None:
    text = render(UNRELATED, "0" * 16)
    assert "invoice_send" not in called("Please dispatch the invoice.", None, text)
    told = called("Please dispatch invoice 77.", None, text)
    assert told["invoice_send"] == {"box": "legal", "number": "77"}, "what memory let through"
