"""Test families of the correction-transfer protocol, in the form that the product runs.

Everything here is data: the fixture (state, tools, surfaces), the cases, what is expected and what
is prohibited. A family is frozen before any case runs; the scorer reads nothing else. Protocol,
sections 2 and 4, and its completed tables.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from schemas.base import Value
from schemas.identifiers import Identifier
from schemas.transfer.correction import Correction, EffectiveLifecycle, Name, Session, Words

CaseKind = Literal[
    "positive",
    "scope_negative",
    "supersession",
    "conflict",
    "expiry",
    "outcome",
    "baseline",
    "principal_negative",
    "task_negative",
    "not_yet_valid",
    "persistence",
    "persistence_negative",
    "noninterference",
]
Stage = Literal[
    "retention", "retrieval", "relevance", "resolution", "decision", "action", "outcome"
]
STAGES: tuple[Stage, ...] = (
    "retention",
    "retrieval",
    "relevance",
    "resolution",
    "decision",
    "action",
    "outcome",
)
_ALL = frozenset(STAGES)
_USED: frozenset[Stage] = _ALL - {"resolution"}
_EXCLUDED: frozenset[Stage] = _ALL - {"retrieval", "resolution"}
_LAPSED: frozenset[Stage] = frozenset({"resolution", "decision", "action", "outcome"})
NEGATIVES: tuple[CaseKind, ...] = ("scope_negative", "principal_negative", "task_negative")
LAPSES: tuple[CaseKind, ...] = ("expiry", "not_yet_valid")
ABSENT_KINDS: tuple[CaseKind, ...] = ("baseline", "persistence_negative")
"""Kinds whose retention means that the record is not in the store."""
REQUIRED_STAGES: Mapping[CaseKind, frozenset[Stage]] = {
    "positive": _USED,
    "outcome": _USED,
    "persistence": _USED,
    "scope_negative": _EXCLUDED,
    "principal_negative": _EXCLUDED,
    "task_negative": _EXCLUDED,
    "supersession": _ALL,
    "noninterference": _ALL,
    "conflict": _ALL,
    "expiry": _LAPSED,
    "not_yet_valid": _LAPSED,
    "persistence_negative": frozenset({"retention", "decision", "action", "outcome"}),
    "baseline": frozenset({"retention"}),
}
"""What a run of each kind shows; with less required, nothing is verified."""
Exercise = Literal["principal", "task", "valid_from", "persistence", "noninterference"]
"""What a family tests beyond the kinds that every family has."""
KIND_OF: Mapping[Exercise, CaseKind] = {
    "principal": "principal_negative",
    "task": "task_negative",
    "valid_from": "not_yet_valid",
    "persistence": "persistence",
    "noninterference": "noninterference",
}
"""The kind of case that shows it."""
Verdict = Literal["pass", "fail", "unobserved", "not_required"]
Grade = Annotated[
    Literal["captured", "reported", "none"],
    Meta(
        description="whose word the evidence is: ours, at our boundary; the system's own; nobody's"
    ),
]

Layer = Literal[
    "representation",
    "indexing",
    "query",
    "relevance_filter",
    "conflict_policy",
    "decision_control",
    "tool_execution",
    "outcome_check",
    "unknown",
]
"""What a repair may change, one at a time (section 7); `unknown` where a team cannot see them."""
LAYERS: tuple[Layer, ...] = (
    "representation",
    "indexing",
    "query",
    "relevance_filter",
    "conflict_policy",
    "decision_control",
    "tool_execution",
    "outcome_check",
)
"""The eight layers that a system's manifest gives a digest each."""

NEEDS_RESOLUTION = "needs_resolution"
"""The decision option of abstaining: nothing is guessed, the resolution path is called."""
DECLARE_DECISION = "declare_decision"
"""The tool that every fixture offers beside its own: ``option`` and ``basis`` (ids of records)."""

# --- fixture: state, tools and surfaces as data ---------------------------------------------------

Effect = Literal["read", "write", "decide", "resolve"]


class Operation(Value):
    """What a tool does to the state. ``path`` is keys joined by ``/``; ``{name}`` stands for the
    argument of that name, in ``path`` and in texts of ``value``. A text that is nothing but one
    ``{name}`` takes the argument with its type. A field of ``value`` that is one ``{name}`` of an
    optional argument is left out where the argument was not sent."""

    do: Annotated[
        Literal["get", "keys", "set", "merge", "append", "remove", "nothing"],
        Meta(
            description="return the value; return its keys; replace it; replace only the fields "
            "that `value` names; add to a list; take it away; none"
        ),
    ]
    path: str = ""
    value: Any = None


class Acknowledgement(Value):
    """How a tool answers a state-changing call, beside the truth: behaviour of the fixture."""

    kind: Annotated[
        Literal["honest", "false", "late"],
        Meta(
            description="`false`: says done and does nothing; `late`: says done, and it is done "
            "after `delay` further calls, at the latest when the session ends"
        ),
    ] = "honest"
    calls: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="how many calls, from the first; null: all of them"),
    ] = None
    delay: Annotated[int, Meta(ge=1)] = 1


class Tool(Value):
    """One tool of a fixture. Its name must not be evaluative (leakage lint)."""

    name: Identifier
    effect: Annotated[Effect, Meta(description="whether it reads, changes, decides or resolves")]
    description: Words
    parameters: Annotated[
        dict[str, Literal["string", "integer", "number", "boolean", "list"]],
        Meta(description="arguments by name, all of them required unless in `optional`"),
    ] = {}
    optional: tuple[str, ...] = ()
    operation: Operation
    acknowledgement: Acknowledgement = Acknowledgement()


class Fixture(Value):
    """A small world: its first state, the tools that touch it, and the surfaces that are read."""

    state: dict[str, Any]
    tools: Annotated[tuple[Tool, ...], Meta(min_length=1)]
    surfaces: Annotated[
        dict[str, str],
        Meta(description="authoritative surfaces: name → path in the state; `` is all of it"),
    ]


# --- expectations -------------------------------------------------------------------------------


class Check(Value):
    """One line of a predicate; all of a predicate's lines must hold.

    Surfaces ``journal`` and ``decision`` always exist: the call journal, and the declared decision
    with ``option`` and ``basis``.
    """

    surface: Name
    path: Annotated[str, Meta(description="keys joined by `/` below the surface; ``: all of it")]
    op: Literal[
        "equals",
        "not_equals",
        "in",
        "starts_with",
        "includes",
        "excludes",
        "between",
        "count",
        "unchanged",
        "journal_order",
    ]
    value: Annotated[
        Any,
        Meta(
            description="compared value; `includes`, `excludes`: list of which all, or none, are "
            "in a list or a text; `between`: {after, before, equals}, the list's elements between "
            "two others; `count`: length, or for the journal {tool, arguments, is}; "
            "`journal_order`: call patterns in their order; `unchanged`: nothing, or a list of "
            "paths below that may differ"
        ),
    ] = None


class ArgumentTest(Value):
    """What one argument of a call must be."""

    op: Annotated[
        Literal["equals", "in", "includes", "excludes", "within", "any"],
        Meta(description="`within`: a list of which every element is one of `value`"),
    ]
    value: Any = None


class CallPattern(Value):
    """Calls of a tool whose arguments pass every named test; unnamed arguments are free."""

    tool: Identifier
    arguments: dict[str, ArgumentTest] = {}
    times: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="exactly so many calls; null: at least one"),
    ] = None
    before: Annotated[
        Literal["write"] | None, Meta(description="the call must precede every `write` call")
    ] = None


class Expected(Value):
    abstain: Annotated[
        bool | Literal["either"],
        Meta(description="true: must not decide but resolve; either: counts in neither half"),
    ]
    decision_accept: tuple[Name, ...] = ()
    action: Annotated[
        tuple[tuple[CallPattern, ...], ...],
        Meta(description="alternatives; each is calls in this order; empty: nothing is expected"),
    ] = ()
    outcome: Annotated[tuple[Check, ...], Meta(description="predicate over surfaces")] = ()


class WriteSession(Value):
    """A session before the one that is scored, in which the correction is taught."""

    turns: Annotated[tuple[Words, ...], Meta(min_length=1)]
    teaches: Annotated[tuple[Identifier, ...], Meta(min_length=1)]


class Case(Value):
    case_id: Identifier
    kind: CaseKind
    store: Annotated[tuple[Identifier, ...], Meta(description="records seeded into the memory")]
    eligible: Annotated[
        tuple[Identifier, ...], Meta(description="records that apply in the session")
    ]
    session: Session
    prompt: Words
    expected: Expected
    prohibited: tuple[CallPattern, ...] = ()
    required: Annotated[
        tuple[Stage, ...], Meta(description="stages that must pass; all others: not_required")
    ]
    absent: Annotated[
        bool, Meta(description="retention passes where the record is absent from the store")
    ] = False
    excluded: Annotated[
        bool, Meta(description="relevance passes where the store's records were not admitted")
    ] = False
    write_session: WriteSession | None = None
    acknowledgements: Annotated[
        dict[str, Acknowledgement], Meta(description="by tool: the fixture's behaviour here")
    ] = {}
    effective_lifecycle: Annotated[
        dict[str, EffectiveLifecycle],
        Meta(
            description="by record of the store: what it is in this session; computed at the "
            "freeze. A family may state it, as a check"
        ),
    ] = {}
    note: str = ""


LEAKAGE_RULES = frozenset(
    {
        "answer-words",
        "baseline-prompt",
        "blind-policy",
        "cue-word",
        "decision-word",
        "leading-question",
        "negative-prompt",
        "options-sorted",
        "prohibited-words",
        "record-named",
        "same-prompt",
        "shared-run",
        "tool-name",
        "topic-terms",
        "twin",
    }
)
"""Rules of the leakage lint: about words, where an author may know better."""
WAIVABLE_RULES = LEAKAGE_RULES - {"baseline-prompt"}
"""The others decide what a verdict means: a baseline that is asked otherwise contrasts nothing."""


class Waiver(Value):
    """A finding of the leakage lint that is accepted, with the reason; frozen and printed."""

    rule: Identifier
    case: Annotated[str, Meta(description="case id; empty: the whole family")] = ""
    reason: Words


class Provenance(Value):
    threads: tuple[Name, ...] = ()
    symptom: str = ""
    details: str = ""


class Family(Value):
    """One correction with its controls."""

    format: Literal[1]
    family_id: Identifier
    title: Words
    provenance: Provenance = Provenance()
    exercises: tuple[Exercise, ...] = ()
    records: Annotated[tuple[Correction, ...], Meta(min_length=1)]
    decision_options: Annotated[tuple[Name, ...], Meta(min_length=2)]
    twin_decision: Annotated[
        Name, Meta(description="decision of a counterfactual record that the prompt suits as well")
    ]
    topic_terms: Annotated[
        tuple[Name, ...], Meta(max_length=12, description="words that prompts may use freely")
    ]
    slots: Annotated[
        dict[str, tuple[Name, ...]],
        Meta(description="words in which a negative's prompt may differ, by slot"),
    ] = {}
    fixture: Fixture
    cases: Annotated[tuple[Case, ...], Meta(min_length=1)]
    conditions: Annotated[
        dict[Identifier, Words],
        Meta(
            description="by record with `persistence_allowed: conditional`: the condition under "
            "which the freeze approves it, where the ledger does not know the record"
        ),
    ] = {}
    waivers: tuple[Waiver, ...] = ()

    def case(self, case_id: str) -> Case:
        for case in self.cases:
            if case.case_id == case_id:
                return case
        raise LookupError(f"family {self.family_id} has no case {case_id}")

    def record(self, correction_id: str) -> Correction:
        for record in self.records:
            if record.correction_id == correction_id:
                return record
        raise LookupError(f"family {self.family_id} has no record {correction_id}")


class PlannedCase(Value):
    """What one unit of a transfer plan is: a case with so many distractors in the store."""

    unit: Annotated[Identifier, Meta(description="`<case id>.d<distractors>`")]
    family_id: Identifier
    case_id: Identifier
    distractors: Annotated[int, Meta(ge=0)]


class FrozenSuite(Value):
    """What `families.frozen` names: every family in the product's form, and the units."""

    suite_id: Identifier
    version: Name
    families: tuple[Family, ...]
    units: tuple[PlannedCase, ...]
