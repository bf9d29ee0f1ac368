"""A study of kind ``transfer``: does a correction change what a system does in a fresh session?

A suite is a study. It shares identity, documents, server, models, thresholds' freeze, amendments,
inspections and report with every other; its own part are families, memories, drivers and systems.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from schemas.base import Value
from schemas.identifiers import CellId, Identifier
from schemas.study import (
    Grading,
    Refuse,
    Study,
    check_server,
    declared,
    fields_that_differ,
    is_inside,
    missing_ids,
    needed_by_cells,
    other_models,
    other_residency,
)
from schemas.transfer.correction import CorrectionClass, Name

CountName = Literal[
    "retrieval_recall",
    "retrieval_precision",
    "supersession_accuracy",
    "abstention_accuracy",
    "decision_compliance",
    "action_compliance",
    "verified_outcome_success",
    "verified_transfer_success",
    "behavioural_success",
    "unsupported_memory_claims",
    "prohibited_actions",
]
"""The counts of the protocol's section 5, and the two successes of scoring rule 6."""


class Suite(Value):
    """Which families are run, how often, and among how many unrelated records."""

    version: Annotated[Name, Meta(description="version of prompts, fixtures and predicates")]
    families: Annotated[
        tuple[str, ...], Meta(min_length=1, description="family files beside study.toml")
    ]
    trials: Annotated[
        int, Meta(ge=1, le=100, description="runs of a case; it passes at all of them")
    ] = 3
    distractors: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=1000)], ...],
        Meta(min_length=1, description="unrelated records in the store, one unit for each number"),
    ] = (0, 50)
    reported_evidence: Annotated[
        Literal["unobserved", "counts"],
        Meta(
            description="whether the system's own word is evidence (scoring rule 5); where it "
            "counts it is printed apart"
        ),
    ] = "unobserved"
    declared_basis: Annotated[
        Literal["captured", "reported"],
        Meta(
            description="grade of the records that a decision names as its basis, for relevance "
            "and resolution"
        ),
    ] = "reported"
    session_s: Annotated[
        int, Meta(ge=1, le=3600, description="seconds until a session has timed out")
    ] = 120
    max_calls: Annotated[
        int, Meta(ge=1, le=1000, description="tool calls until a session has flooded")
    ] = 64
    max_turns: Annotated[int, Meta(ge=1, le=64, description="turns of a chat driver")] = 12


class Memory(Value):
    """Where corrections are kept between sessions: one arm."""

    id: Annotated[Identifier, Meta(description="its name here: part of every cell")]
    kind: Annotated[
        Literal["store", "mcp", "folder", "mem0", "command"],
        Meta(
            description="our own store; an MCP memory server; instruction files; mem0ai; a command "
            "that speaks JSON lines and brings its own driver"
        ),
    ]
    policy: Annotated[
        Literal["none", "everything", "retrieval", "full"],
        Meta(
            description="of our store: deliver nothing; everything; what the query finds; what it "
            "finds with scope, expiry, supersession and conflict handled"
        ),
    ] = "full"
    query: Annotated[
        Literal["prompt", "project", "everything"],
        Meta(description="what is asked of the memory: part of the system's identity"),
    ] = "prompt"
    layout: Annotated[
        Literal["CLAUDE.md", "AGENTS.md"], Meta(description="name of the instruction files")
    ] = "CLAUDE.md"
    command: Annotated[
        tuple[str, ...], Meta(description="program and arguments of `mcp` and `command`")
    ] = ()
    deterministic: Annotated[
        bool, Meta(description="the same inputs give the same answers: with such a driver k = 1")
    ] = False
    results: Annotated[int, Meta(ge=1, le=1000, description="records a query delivers at most")] = 8


class Driver(Value):
    """What reads the memory and acts: one agent."""

    id: Annotated[Identifier, Meta(description="its name here: part of every cell")]
    kind: Annotated[
        Literal[
            "reader",
            "null",
            "over_applier",
            "ignorer",
            "liar",
            "early_acknowledger",
            "chat",
            "own",
        ],
        Meta(
            description="rule-based ones; `chat` asks a model; `own` goes with a memory of kind "
            "`command`"
        ),
    ]
    model: Annotated[str, Meta(description="model of a `chat` driver, by its id")] = ""


class System(Value):
    """A system under test: a memory and a driver. A memory alone decides nothing."""

    memory: Annotated[Identifier, Meta(description="id of a memory")]
    driver: Annotated[Identifier, Meta(description="id of a driver")]


class Threshold(Value):
    """A limit chosen before results; where it is missed, `ledger report` ends with status 8."""

    id: Annotated[Identifier, Meta(description="its name in the report")]
    count: Annotated[CountName, Meta(description="what is counted")]
    memory: Annotated[str, Meta(description="id of a memory; empty: all")] = ""
    driver: Annotated[str, Meta(description="id of a driver; empty: all")] = ""
    class_: Annotated[CorrectionClass | Literal[""], Meta(description="empty: every class")] = (
        msgspec.field(name="class", default="")
    )
    at_least: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="share of numerator")
    ] = None
    at_most: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="numerator, as a number")
    ] = None


class TransferStudy(Study):
    """The whole of ``study.toml`` for `kind = "transfer"`."""

    KIND: ClassVar[str] = "transfer"
    GRADED: ClassVar[bool] = False
    OPEN_TO_AMENDMENTS: ClassVar[str] = (
        "study.toml may declare further memories, drivers and systems, whose cells follow the "
        "plan, and change everything else but `[suite]`; what is declared already of a memory, "
        "driver, system or model of a driver can be corrected or taken away until the first run "
        "has begun. Families (prompts, fixtures, predicates, records) are bound as documents and "
        "open to no amendment: another family is another suite, a study with another "
        "suite.version."
    )
    kind: Annotated[Literal["transfer"], Meta(description="which study: transfer of corrections")]
    suite: Suite
    memories: Annotated[tuple[Memory, ...], Meta(min_length=1)]
    drivers: Annotated[tuple[Driver, ...], Meta(min_length=1)]
    systems: Annotated[tuple[System, ...], Meta(min_length=1)]
    thresholds: tuple[Threshold, ...] = ()
    grading: Annotated[
        Grading,
        Meta(description="a transfer study reads its surfaces while it runs; the gate blinds it"),
    ] = Grading(when="beside")
    attempts: Annotated[
        int, Meta(ge=1, le=10, description="runs of a cell whose runs are void by our own fault")
    ] = 3

    @property
    def runs_foreign_code(self) -> bool:
        """Systems that are other people's programs are; ours are not."""
        return any(memory.kind in ("mcp", "mem0", "command") for memory in self.memories)

    @property
    def bound_documents(self) -> tuple[str, ...]:
        """Documents and families."""
        return tuple(dict.fromkeys((*self.documents, *self.suite.families)))

    @property
    def fixed_documents(self) -> tuple[str, ...]:
        return self.suite.families

    @property
    def max_attempts(self) -> int:
        return self.attempts

    def model_of(self, agent: str) -> str:
        return self.driver(agent).model

    def cell_components(self, cell: CellId) -> tuple[str, ...]:
        return (f"memory {cell.arm}", f"driver {cell.agent}")

    def memory(self, memory_id: str) -> Memory:
        """Raises LookupError where the study declares no such memory."""
        return declared("memory", self.memories, memory_id)

    def driver(self, driver_id: str) -> Driver:
        """Raises LookupError where the study declares no such driver."""
        return declared("driver", self.drivers, driver_id)

    def undeclared(self, cells: Sequence[CellId]) -> list[str]:
        return missing_ids(
            {
                "memories": ((cell.arm for cell in cells), (m.id for m in self.memories)),
                "drivers": ((cell.agent for cell in cells), (d.id for d in self.drivers)),
                "systems": (
                    (f"{cell.arm} + {cell.agent}" for cell in cells),
                    (f"{system.memory} + {system.driver}" for system in self.systems),
                ),
            }
        )

    def not_amendable(self, before: Self, cells: Sequence[CellId], begun: bool) -> list[str]:
        """The suite and whether residency is demanded never; memories, drivers, systems and models
        until the first run has begun."""
        problems = other_residency(before.server, self.server)
        if self.suite != before.suite:
            problems.append(
                "[suite] changed, and families, version, trials, distractors and policies are what "
                "the suite is: another one is another suite.version, and another study"
            )
        if not begun:
            return problems
        return [
            *problems,
            *_other_systems(before, self),
            *other_models(before.models, self.models),
            *needed_by_cells(self.undeclared(cells)),
        ]

    def check(self, refuse: Refuse) -> None:
        for key, ids in (
            ("memories", [item.id for item in self.memories]),
            ("drivers", [item.id for item in self.drivers]),
            ("models", [item.id for item in self.models]),
            ("thresholds", [item.id for item in self.thresholds]),
            ("systems", [f"{item.memory}/{item.driver}" for item in self.systems]),
            ("documents", list(self.documents)),
            ("suite.families", list(self.suite.families)),
            ("suite.distractors", [str(number) for number in self.suite.distractors]),
        ):
            for index, item in enumerate(ids):
                if item in ids[:index]:
                    refuse(f"{key}[{index}]", f"duplicate {item!r}")
        for key, paths in (("documents", self.documents), ("suite.families", self.suite.families)):
            for index, path in enumerate(paths):
                if not is_inside(path):
                    refuse(f"{key}[{index}]", f"{path!r} must be a path inside the study's folder")
        memories = {memory.id: memory for memory in self.memories}
        drivers = {driver.id: driver for driver in self.drivers}
        for index, memory in enumerate(self.memories):
            key = f"memories[{index}].command"
            if memory.kind in ("mcp", "command") and not memory.command:
                refuse(key, f"a memory of kind {memory.kind!r} names its program and arguments")
            if memory.kind not in ("mcp", "command") and memory.command:
                refuse(key, f"a memory of kind {memory.kind!r} runs no program")
        models = [model.id for model in self.models]
        for index, driver in enumerate(self.drivers):
            if (driver.kind == "chat") != bool(driver.model):
                refuse(f"drivers[{index}].model", 'goes with `kind = "chat"`, and only with it')
            if driver.model and driver.model not in models:
                known = ", ".join(models) or "none"
                refuse(
                    f"drivers[{index}].model",
                    f"{driver.model!r} is not declared; declared: {known}",
                )
        for index, system in enumerate(self.systems):
            known_memory, known_driver = memories.get(system.memory), drivers.get(system.driver)
            if known_memory is None:
                refuse(f"systems[{index}].memory", f"{system.memory!r} is not declared in memories")
            elif known_driver is None:
                refuse(f"systems[{index}].driver", f"{system.driver!r} is not declared in drivers")
            elif (known_memory.kind == "command") != (known_driver.kind == "own"):
                refuse(
                    f"systems[{index}]",
                    'a memory of kind "command" brings its driver: it goes with one of kind "own", '
                    "and only with it",
                )
        used = {system.memory for system in self.systems}, {s.driver for s in self.systems}
        for key, named, used_ids in (
            ("memories", [memory.id for memory in self.memories], used[0]),
            ("drivers", [driver.id for driver in self.drivers], used[1]),
        ):
            for index, item in enumerate(named):
                if item not in used_ids:
                    refuse(
                        f"{key}[{index}]", f"{item!r} is part of no system: name it in [[systems]]"
                    )
        for index, threshold in enumerate(self.thresholds):
            key = f"thresholds[{index}]"
            if (threshold.at_least is None) == (threshold.at_most is None):
                refuse(key, "says either `at_least` (a share) or `at_most` (a number)")
            if threshold.memory and threshold.memory not in memories:
                refuse(f"{key}.memory", f"{threshold.memory!r} is not declared in memories")
            if threshold.driver and threshold.driver not in drivers:
                refuse(f"{key}.driver", f"{threshold.driver!r} is not declared in drivers")
        check_server(self.server, self.models, self.simulated, refuse)


def _other_systems(before: TransferStudy, after: TransferStudy) -> list[str]:
    """Memories and drivers of planned runs that are not what they were."""
    memories, drivers = {m.id: m for m in after.memories}, {d.id: d for d in after.drivers}
    other = [
        *(("memory", m.id, m, memories.get(m.id, m)) for m in before.memories),
        *(("driver", d.id, d, drivers.get(d.id, d)) for d in before.drivers),
    ]
    return [
        f"{kind} {name} changed in {', '.join(fields_that_differ(was, now))}, and its runs with "
        f"it would no longer be of one system: keep it as it was and declare another {kind} with "
        "its own id"
        for kind, name, was, now in other
        if was != now
    ]
