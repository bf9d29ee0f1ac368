"""What a driver is, and everything that passes between it and the actor that runs its session.

A driver reads a memory and acts: the half of a system under test that decides. It is a sans-I/O
generator that yields an :data:`Effect` and is sent what came of it:

    effect      what comes back
    Recall      Remembered   (what the memory delivered, as the memory delivered it)
    Remember    Kept         (the memory's own acknowledgement)
    CallTool    ToolShown    (the fixture's answer, which may be untrue)
    AskModel    ModelAnswer  (one turn of a model)
    Report…     Noted        (what a system says of itself; only one with its own driver does)
    Finish      nothing: the session ends, the generator is closed

A driver knows what an agent knows: prompt, session, tools by name, description and parameters, what
the memory delivered, what tools returned. The same inputs give the same effects.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harnesses.contract import Message
from schemas.transfer.correction import Session
from schemas.transfer.offered_tool import OfferedTool

ClaimKind = Literal["recalled", "saved", "checked", "done"]


@dataclass(frozen=True)
class Claimed:
    """Something that a system says it did, as its own word. ``about``: a record, or a tool."""

    kind: ClaimKind
    about: str = ""


@dataclass(frozen=True)
class SessionInput:
    """Everything that a driver may know when its session begins."""

    purpose: Literal["write", "task"]
    turns: tuple[str, ...]
    """What the user says. A task session has one turn: the frozen prompt, byte for byte."""
    session: Session
    tools: tuple[OfferedTool, ...]
    system_prompt: str = ""
    """Of a chat driver; a fixture with a digest."""
    max_turns: int = 12
    mcp_command: tuple[str, ...] = ()
    """What a system with its own driver starts as its MCP server, where it asked for one."""


@dataclass(frozen=True)
class DeliveredText:
    """One thing that the memory delivered. ``admitted``: let through to the decision."""

    id: str
    text: str
    admitted: bool = True


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recall:
    """Ask the memory. What is really asked is the memory's query policy."""

    query: str


@dataclass(frozen=True)
class Remember:
    """Hand the memory something to keep."""

    text: str


@dataclass(frozen=True)
class CallTool:
    name: str
    arguments: Any


@dataclass(frozen=True)
class AskModel:
    """One turn. With ``answer_schema`` the server constrains the answer to that JSON schema."""

    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    answer_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Finish:
    """The last words, and what they claim: structured, so that nobody has to read prose."""

    text: str
    claims: tuple[Claimed, ...] = ()
    ended: Literal["completed", "malformed"] = "completed"
    """`malformed`: it spoke, and not in the form that was agreed."""


@dataclass(frozen=True)
class ReportRetrieval:
    """What the memory of a system with its own driver delivered: its own word."""

    query: str
    items: tuple[DeliveredText, ...]
    admitted_shown: bool = False


@dataclass(frozen=True)
class ReportPlan:
    """A system that brings its own driver says what it decides: its own word."""

    option: str
    basis: tuple[str, ...] = ()


Effect = Recall | Remember | CallTool | AskModel | Finish | ReportRetrieval | ReportPlan


# --- what comes back ------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryNotice:
    """What the memory says about records: they disagree, have lapsed, or do not hold yet."""

    kind: Literal["conflict", "lapsed", "not_yet_valid"]
    records: tuple[str, ...]


@dataclass(frozen=True)
class Remembered:
    delivered: tuple[DeliveredText, ...] = ()
    notices: tuple[MemoryNotice, ...] = ()


@dataclass(frozen=True)
class Kept:
    """``acknowledged``: the memory says that it was kept."""

    acknowledged: bool
    text: str = ""


@dataclass(frozen=True)
class ToolShown:
    """What the fixture showed; ``text`` is its JSON, byte for byte."""

    ok: bool
    value: Any = None
    error: str = ""
    text: str = ""


@dataclass(frozen=True)
class ModelCall:
    """A tool call that a model asked for. ``arguments``: as it wrote them; may be no JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ModelAnswer:
    content: str
    calls: tuple[ModelCall, ...] = ()
    finish_reason: str = ""
    failed: str = ""
    """What kept the model from answering; empty: it answered."""


@dataclass(frozen=True)
class Noted:
    """A report was recorded."""


Result = Remembered | Kept | ToolShown | ModelAnswer | Noted
Steps = Generator[Effect, Result, None]
"""What a driver's ``run`` returns."""


@dataclass(frozen=True)
class Driver:
    """One registered driver. Paths are relative to the ``harnesses`` package."""

    kind: str
    title: str
    run: Callable[[SessionInput], Steps]
    prompt_files: tuple[str, ...] = ()
    layers: Mapping[str, str] = field(default_factory=dict)
    """What it does in the layers of its half that a repair may change, in words; a driver of which
    no layer can be seen (a model) names none."""


def recall(query: str) -> Generator[Effect, Result, Remembered]:
    """``found = yield from recall(...)``, with a result type that is checked."""
    result = yield Recall(query)
    if not isinstance(result, Remembered):
        raise TypeError(f"Recall was answered with {type(result).__name__}")
    return result


def remember(text: str) -> Generator[Effect, Result, Kept]:
    """``kept = yield from remember(...)``."""
    result = yield Remember(text)
    if not isinstance(result, Kept):
        raise TypeError(f"Remember was answered with {type(result).__name__}")
    return result


def call(name: str, arguments: Any) -> Generator[Effect, Result, ToolShown]:
    """``shown = yield from call(...)``."""
    result = yield CallTool(name, arguments)
    if not isinstance(result, ToolShown):
        raise TypeError(f"CallTool was answered with {type(result).__name__}")
    return result


def ask(effect: AskModel) -> Generator[Effect, Result, ModelAnswer]:
    """``answer = yield from ask(...)``."""
    result = yield effect
    if not isinstance(result, ModelAnswer):
        raise TypeError(f"AskModel was answered with {type(result).__name__}")
    return result
