"""What a kind of study is: one record. The kinds there are stand in ``actors/study_kinds.py``."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.loop import Context, Handlers
from actors.study.reexecution import Execute
from actors.study.scheduler import NextStep
from projections.plan_balance import PlanBalance
from projections.progress import Progress
from schemas.base import Event
from schemas.commands import Command, Role
from schemas.events.study import StudyFrozen
from schemas.study import Study

if TYPE_CHECKING:
    from actors.study.analysis import Analysis
    from actors.study.components import Component


@dataclass(frozen=True)
class Template:
    """Which ``study.toml`` a new study begins with: ``NAME.toml`` of
    ``actors/rehearsal/templates``, and files that stand beside it."""

    beside: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """(package, file in it) by the path in the study's folder."""
    present_python: bool = False
    """Whether its ``python`` becomes the one that is here."""


@dataclass(frozen=True)
class FreezeSummary:
    """What ``ledger freeze`` says that was bound."""

    counts: Mapping[str, Any]
    """For programs, by name."""
    bound: Sequence[str]
    """The same in words, each with its number."""
    lines: Sequence[str] = ()
    """What else there is to know, a line each."""


@dataclass(frozen=True)
class StudyKind:
    """One kind of study. Its functions import what they need when they are called, so that a
    command loads no more than it uses."""

    form: type[Study]
    """What its ``study.toml`` may hold."""
    templates: Mapping[str, Template]
    """By the name that ``ledger init --template`` knows."""
    first_command: str
    """What comes after ``ledger init``."""
    before_freeze: Callable[[Context, Study], str]
    """What comes next while nothing is frozen: a command in backquotes, or what stands in its
    way."""
    orders: Callable[[], Handlers]
    """Handlers of what a person orders in this kind's own way: plan, freeze, amend, start a run."""
    plan_balance: Callable[[Progress, Study], PlanBalance | None]
    """How even the prepared plan of a declared study is; None where its order has no design."""
    freeze_summary: Callable[[Context, Progress, StudyFrozen], FreezeSummary]
    status: Callable[[Progress], Sequence[str]]
    """What ``ledger status`` says of a frozen study of this kind alone, a line each."""
    components: "Callable[[Study], Sequence[Component]]"
    """The parts of the program that decide the results of a study that declares this."""
    roles: tuple[Role, ...]
    """Of its workers, beside scheduler and model server. One process each, but as many graders as
    the machine has room for."""
    workers: Callable[[Context, Collection[Role], ExitStack], Handlers]
    """Handlers of those of its ``roles`` that are asked for. What they keep open is closed with
    the stack."""
    next_step: NextStep
    advance: Callable[[str], Command]
    """The command that takes a cell on once its model is there or has answered."""
    before_run: Callable[[Context], Sequence[str]]
    """Warnings, a line each."""
    briefs: Callable[[Context], Sequence[Any]]
    """What simulated agents are told of the tasks (``actors.rehearsal.simulated_agent.Brief``)."""
    execute_again: Execute
    analysis: "Callable[[], Analysis[Any]]"
    units_frozen: type[Event]
    """The event that froze what its cells are made of: tells the kind from types alone."""
    shown_of_a_cell: Collection[type[Event]] | None
    """Of a cell's stream, what may be shown before outcomes are: all else shows how the cell fared,
    whatever its type says, and so does what its model was asked. None: types alone decide."""
