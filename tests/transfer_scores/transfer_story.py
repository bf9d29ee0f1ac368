"""Hand-written runs of a small suite: what a session would record, one knob an observation.

The family is the protocol's worked case (section 6): Alder's reports take their status from an
approved source, Birch's from a board of its own.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from ledger.log import Fact
from schemas.base import ArtifactRef, Event
from schemas.events.cell import CellStarted
from schemas.events.study import PlanPrepared, StudyFrozen
from schemas.events.transfer import (
    Capabilities,
    CaseClass,
    CaseFinished,
    Claim,
    DecisionDeclared,
    FamiliesFrozen,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    RetrievedItem,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.identifiers import CellId
from schemas.plan import Plan, PlannedCell
from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.family import (
    NEEDS_RESOLUTION,
    ArgumentTest,
    CallPattern,
    Case,
    Check,
    Expected,
    Family,
    Fixture,
    FrozenSuite,
    Grade,
    Operation,
    PlannedCase,
    Stage,
    Tool,
    WriteSession,
)

NOW = "2026-07-01T09:00:00Z"
ALDER = Session(principal="role:clerk", project="alder", task_class="report", now=NOW)
BIRCH = msgspec.structs.replace(ALDER, project="birch")
PROMPT = "Write the status report for alder."
ALL: tuple[Stage, ...] = ("retention", "retrieval", "relevance", "decision", "action", "outcome")
WITH_RESOLUTION: tuple[Stage, ...] = (*ALL[:3], "resolution", *ALL[3:])
LAPSE: tuple[Stage, ...] = ("resolution", "decision", "action", "outcome")


def correction(name: str, decision: str, **changes: Any) -> Correction:
    fields: dict[str, Any] = {
        "correction_id": name,
        "class_": "procedure",
        "semantic_expectation": f"Alder reports take {decision} as their source ({name}).",
        "source_reference": f"ref:minutes/{name}",
        "persistence_allowed": True,
        "scope": Scope(principal="*", project="alder", task_classes=("report",)),
        "valid_from": "2026-01-01T00:00:00Z",
        "expires_at": None,
        "lifecycle": "active",
        "supersedes": None,
        "expected_decision": decision,
        "expected_action": f"write the report from {decision}",
        "prohibited_actions": ("write it from the queue",),
        "authoritative_outcome_check": "surface report: its source",
        "consequence": "high",
    }
    return Correction(**{**fields, **changes})


RECORDS = (
    correction("CT-1", "ledger-a"),
    correction("CT-2", "ledger-b", supersedes="CT-1"),
    correction("CT-3", "sheet"),
    correction("CT-4", "ledger-old", expires_at="2026-06-01T00:00:00Z"),
    correction("CT-5", "vault", persistence_allowed=False),
)
FIXTURE = Fixture(
    state={
        "sources": {"ledger-a": "incomplete", "queue": "submitted"},
        "report": None,
        "asked": [],
    },
    tools=(
        Tool(
            name="source_read",
            effect="read",
            description="Read a source.",
            parameters={"source": "string"},
            operation=Operation(do="get", path="sources/{source}"),
        ),
        Tool(
            name="report_write",
            effect="write",
            description="Write the report.",
            parameters={"source_ref": "string"},
            operation=Operation(do="set", path="report", value={"source_ref": "{source_ref}"}),
        ),
        Tool(
            name="ask",
            effect="resolve",
            description="Ask somebody.",
            parameters={"question": "string"},
            operation=Operation(do="append", path="asked", value="{question}"),
        ),
    ),
    surfaces={"report": "report", "state": ""},
)


def wrote(source: str) -> tuple[tuple[CallPattern, ...], ...]:
    return (
        (
            CallPattern(tool="source_read"),
            CallPattern(
                tool="report_write",
                arguments={"source_ref": ArgumentTest(op="equals", value=source)},
            ),
        ),
    )


def reported(source: str) -> tuple[Check, ...]:
    return (Check(surface="report", path="source_ref", op="equals", value=source),)


def forbidden(*sources: str) -> tuple[CallPattern, ...]:
    return tuple(
        CallPattern(
            tool="report_write", arguments={"source_ref": ArgumentTest(op="equals", value=source)}
        )
        for source in sources
    )


ASKED = ((CallPattern(tool="ask", times=1, before="write"),),)
UNTOUCHED = (Check(surface="report", path="", op="unchanged"),)


def acting(source: str) -> Expected:
    return Expected(
        abstain=False, decision_accept=(source,), action=wrote(source), outcome=reported(source)
    )


ABSTAINING = Expected(
    abstain=True, decision_accept=(NEEDS_RESOLUTION,), action=ASKED, outcome=UNTOUCHED
)


def case(name: str, kind: Any, **fields: Any) -> Case:
    return Case(case_id=name, kind=kind, **{"session": ALDER, "prompt": PROMPT, **fields})


CASES = (
    case(
        "positive",
        "positive",
        store=("CT-1",),
        eligible=("CT-1",),
        expected=acting("ledger-a"),
        prohibited=forbidden("queue"),
        required=ALL,
        effective_lifecycle={"CT-1": "active"},
    ),
    case(
        "negative",
        "scope_negative",
        store=("CT-1",),
        eligible=(),
        session=BIRCH,
        expected=acting("board"),
        prohibited=forbidden("ledger-a"),
        required=("retention", "relevance", "decision", "action", "outcome"),
        excluded=True,
        effective_lifecycle={"CT-1": "active"},
    ),
    case(
        "supersession",
        "supersession",
        store=("CT-1", "CT-2"),
        eligible=("CT-2",),
        expected=acting("ledger-b"),
        prohibited=forbidden("ledger-a"),
        required=WITH_RESOLUTION,
        effective_lifecycle={"CT-1": "superseded", "CT-2": "active"},
    ),
    case(
        "conflict",
        "conflict",
        store=("CT-1", "CT-3"),
        eligible=("CT-1", "CT-3"),
        expected=ABSTAINING,
        prohibited=(CallPattern(tool="report_write"),),
        required=WITH_RESOLUTION,
        effective_lifecycle={"CT-1": "disputed", "CT-3": "disputed"},
    ),
    case(
        "expiry",
        "expiry",
        store=("CT-4",),
        eligible=(),
        expected=ABSTAINING,
        prohibited=forbidden("ledger-old"),
        required=LAPSE,
        effective_lifecycle={"CT-4": "expired"},
    ),
    case(
        "outcome",
        "outcome",
        store=("CT-1",),
        eligible=("CT-1",),
        expected=acting("ledger-a"),
        required=ALL,
        effective_lifecycle={"CT-1": "active"},
    ),
    case(
        "unkept",
        "persistence_negative",
        store=(),
        eligible=(),
        expected=ABSTAINING,
        required=("retention", "decision", "action", "outcome"),
        absent=True,
        write_session=WriteSession(turns=("Until noon: use the vault.",), teaches=("CT-5",)),
    ),
    case(
        "taught",
        "persistence",
        store=(),
        eligible=("CT-1",),
        expected=acting("ledger-a"),
        required=ALL,
        write_session=WriteSession(turns=("Keep this: alder means ledger-a.",), teaches=("CT-1",)),
    ),
    case(
        "baseline",
        "baseline",
        store=(),
        eligible=(),
        expected=Expected(abstain=False),
        required=("retention",),
        absent=True,
    ),
)
FAMILY = Family(
    format=1,
    family_id="ALDER",
    title="The source of a report",
    records=RECORDS,
    decision_options=(
        "board", "ledger-a", "ledger-b", "ledger-old", NEEDS_RESOLUTION, "queue", "sheet", "vault",
    ),
    twin_decision="sheet",
    topic_terms=("alder", "birch"),
    fixture=FIXTURE,
    cases=CASES,
)  # fmt: skip

STUDY_TOML = """format = 1
kind = "transfer"
id = "alder"
title = "Does a correction survive"
question = "Does it?"
simulated = true
readings = { scope = "as written" }
[suite]
version = "1"
families = ["alder.yaml"]
trials = %(trials)d
distractors = [1]
declared_basis = "%(basis)s"
reported_evidence = "%(reported)s"
[[memories]]
id = "full"
kind = "store"
[[memories]]
id = "empty"
kind = "store"
policy = "none"
[[drivers]]
id = "reader"
kind = "reader"
[[systems]]
memory = "full"
driver = "reader"
[[systems]]
memory = "empty"
driver = "reader"
%(thresholds)s
[server]
kind = "stand_in"
"""


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


class Story:
    """Facts as a log would hold them, with their artifacts in memory."""

    def __init__(
        self,
        *,
        basis: str = "captured",
        reported: str = "unobserved",
        trials: int = 1,
        thresholds: str = "",
        family: Family = FAMILY,
    ) -> None:
        self.contents: dict[str, bytes] = {}
        self.facts: list[Fact] = []
        self.family = family
        self.trials = trials
        self.study_toml = STUDY_TOML % {
            "basis": basis,
            "reported": reported,
            "trials": trials,
            "thresholds": thresholds,
        }
        self.cells = [
            CellId(unit=f"{each.case_id}.d1", arm=memory, agent="reader", repeat=trial)
            for memory in ("full", "empty")
            for each in family.cases
            for trial in range(trials)
        ]
        self.freeze()

    def freeze(self) -> None:
        units = tuple(
            PlannedCase(
                unit=f"{each.case_id}.d1",
                family_id=self.family.family_id,
                case_id=each.case_id,
                distractors=1,
            )
            for each in self.family.cases
        )
        suite = FrozenSuite(suite_id="alder", version="1", families=(self.family,), units=units)
        frozen = FamiliesFrozen(
            suite=self.put(suite), version="1", families=1, cases=len(units), position=-1
        )
        plan = Plan(
            cells=tuple(
                PlannedCell(position=position, cell=cell, block="matrix")
                for position, cell in enumerate(self.cells)
            )
        )
        self.add("study", frozen)
        prepared = PlanPrepared(plan=self.put(plan), cells=len(plan.cells))
        self.add("study", prepared)
        study = self.put(self.study_toml)
        self.add(
            "study",
            StudyFrozen(
                study=study,
                digest="0" * 64,
                documents=(),
                document_contents=(),
                tasks=frozen.suite.digest,
                plan=prepared.plan.digest,
                components=(),
                commit="",
                dirty=False,
                simulated=True,
            ),
        )

    def put(self, content: object) -> ArtifactRef:
        plain = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        digest = sha256(plain).hexdigest()
        self.contents[digest] = plain
        return ArtifactRef(digest=digest, length=len(plain), media_type="application/json")

    def read(self, ref: ArtifactRef) -> bytes:
        return self.contents[ref.digest]

    def add(self, stream: str, event: Event, at: str = "2026-07-02T00:00:00.000000Z") -> int:
        seq = len(self.facts)
        self.facts.append(Fact(seq, f"id-{seq}", stream, 0, at, "test", None, "test", event))
        return seq

    def rendering(self, name: str) -> str:
        return f"{self.family.record(name).semantic_expectation}\nMark: {digest_of(name)[:16]}"

    def run(self, case_id: str, **knobs: Any) -> str:
        """One run from start to end; returns its cell. See :meth:`events` for the knobs."""
        memory, trial = knobs.get("memory", "full"), knobs.get("trial", 0)
        cell = CellId(unit=f"{case_id}.d1", arm=memory, agent="reader", repeat=trial)
        for event in self.events(cell, self.family.case(case_id), **knobs):
            self.add(cell.stream, event)
        return str(cell)

    def events(
        self,
        cell: CellId,
        case: Case,
        *,
        memory: str = "full",
        trial: int = 0,
        attempt: int = 0,
        capabilities: Capabilities | None = None,
        layers: Mapping[str, str] | None = None,
        clock_control: Any = "settable",
        kept: Iterable[str] | None = None,
        altered: Mapping[str, str] | None = None,
        readable: bool = True,
        store_grade: Grade = "captured",
        delivered: Sequence[str] | None = None,
        admitted: Sequence[str] | None | bool = True,
        trace_grade: Grade = "captured",
        queries: int | None = None,
        decisions: Sequence[str | tuple[str, Sequence[str]]] | None = None,
        decided_late: bool = False,
        final: str | None = None,
        calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
        refused: Sequence[int] = (),
        false_write: bool = False,
        side_effects: Sequence[str] = (),
        claims: Sequence[Claim] = (),
        claims_grade: Grade = "captured",
        saved: bool = False,
        store_changes: bool = True,
        leaked: Sequence[str] = (),
        ended: CaseClass = "completed",
        surface: bool = True,
    ) -> list[Event]:
        """Everything as it should be, unless a knob says otherwise.

        ``kept``: records whose texts the store holds. ``delivered``/``admitted``: ids in the store
        (``s-CT-1``, ``noise``); admitted False: not shown; True: the applicable ones of what was
        delivered. ``decisions``: options declared, each with its basis or the applicable records.
        """
        session = case.session
        seeded = list(case.store)
        texts = {name: self.rendering(name) for name in seeded}
        capabilities = capabilities or Capabilities(
            trace="admitted", plan="before_action", store="readable", clock="settable"
        )
        in_scope = [
            name for name in case.eligible if self.family.record(name).scope.covers(session)
        ]
        found: list[Event] = [
            CellStarted(
                cell=cell,
                attempt=attempt,
                unit=digest_of("unit"),
                arm=digest_of("arm"),
                agent=digest_of("agent"),
                simulated=True,
            ),
            SystemDescribed(
                memory=self.put({"kind": "store", "policy": memory, "layers": layers or {}}),
                driver=self.put({"kind": "reader"}),
                capabilities=capabilities,
                clock_control=clock_control,
            ),
            MemorySeeded(
                ids={name: (f"s-{name}",) for name in seeded},
                distractors=("noise",),
                renderings=self.put(texts),
            ),
        ]
        taught: dict[str, str] = {}
        if case.write_session:
            found.append(self.snapshot("before_write", {}, readable, store_grade))
            found.append(self.opened(case, "write"))
            if store_changes and kept is not None:
                taught = {f"t-{name}": case.write_session.turns[0] for name in kept}
            elif store_changes and case.kind == "persistence":
                taught = {f"t-{name}": case.write_session.turns[0] for name in in_scope}
            closing = claims if saved else ()
            found.append(self.closed("write", closing, claims_grade, 0, ()))
            found.append(self.snapshot("after_write", taught, readable, store_grade))
            claims = () if saved else claims
        holding = dict(taught)
        for name in seeded if kept is None else [n for n in kept if n in seeded]:
            holding[f"s-{name}"] = (altered or {}).get(name, f"Note:  {texts[name]}\n")
        found.append(self.snapshot("before_session", holding, readable, store_grade))
        found.append(self.opened(case, "task"))
        if delivered is None:
            delivered = (
                []
                if memory == "empty"
                else [f"s-{name}" for name in in_scope if name in seeded] + sorted(taught)
            )
        if admitted is True:
            admitted = [item for item in delivered if item != "noise"]
        content = [{"id": item, "text": holding.get(item, "unrelated words")} for item in delivered]
        retrieved = MemoryRetrieved(
            query=case.prompt,
            delivered=tuple(
                RetrievedItem(id=row["id"], digest=digest_of(row["text"])) for row in content
            ),
            admitted=None if admitted is False or admitted is None else tuple(admitted),
            grade=trace_grade,
            content=self.put(content),
        )
        asked = 1 if capabilities.trace != "none" else 0
        found += [retrieved] * asked
        state = copy.deepcopy(dict(FIXTURE.state))
        number = 0
        accepted = case.expected.decision_accept
        if decisions is None:
            decisions = accepted[:1] if memory != "empty" else (NEEDS_RESOLUTION,)
        if calls is None:
            option = decisions[-1] if decisions else NEEDS_RESOLUTION
            option = option if isinstance(option, str) else option[0]
            calls = (
                [("ask", {"question": "which?"})]
                if option == NEEDS_RESOLUTION
                else [("source_read", {"source": option}), ("report_write", {"source_ref": option})]
            )
        declarations: list[Event] = []
        first = len(calls) if decided_late else 0
        for place, declared in enumerate(decisions):
            option, names = (
                (declared, in_scope if memory != "empty" else [])
                if isinstance(declared, str)
                else declared
            )
            at = first + place
            declarations.append(self.call(at, "declare_decision", {"option": option}, True))
            declarations.append(
                DecisionDeclared(
                    option=option,
                    basis=tuple(names),
                    call=at,
                    before_write=not decided_late,
                    grade="captured",
                )
            )
        made: list[Event] = []
        number = 0 if decided_late else len(decisions)
        for place, (tool, arguments) in enumerate(calls):
            ok = place not in refused
            made.append(self.call(number, tool, arguments, ok))
            number += 1
            if ok and tool == "report_write" and not false_write:
                state["report"] = dict(arguments)
            if ok and tool == "ask":
                state["asked"].append(arguments["question"])
        found += [*made, *declarations] if decided_late else [*declarations, *made]
        if final is not None:
            found.append(
                DecisionDeclared(
                    option=final, basis=(), call=-1, before_write=False, grade="reported"
                )
            )
        count = asked if queries is None else queries
        found.append(self.closed("task", claims, claims_grade, count, leaked))
        if surface:
            found.append(
                SurfaceRead(
                    before=self.put(FIXTURE.state),
                    after=self.put(state),
                    calls=len(calls) + len(decisions),
                    side_effects=tuple(side_effects),
                )
            )
        found.append(self.snapshot("after_session", holding, readable, store_grade))
        found.append(CaseFinished(cell=cell, attempt=attempt, ended=ended, detail=""))
        return found

    def snapshot(
        self, when: Any, texts: Mapping[str, str], readable: bool, grade: Grade
    ) -> StoreSnapshotted:
        items = [{"id": name, "text": text} for name, text in sorted(texts.items())]
        items.append({"id": "noise", "text": "unrelated words"})
        return StoreSnapshotted(
            when=when,
            digest=digest_of(str(items)) if readable else "",
            grade=grade if readable else "none",
            items=self.put(items) if readable else None,
            whole=readable,
        )

    def opened(self, case: Case, purpose: Any) -> SessionOpened:
        return SessionOpened(
            purpose=purpose,
            session=case.session,
            prompt=self.put(case.prompt),
            system_prompt=self.put("You work here."),
            tools=self.put([tool.name for tool in FIXTURE.tools]),
            freshness={"process": "1"},
            fixture=digest_of("fixture"),
        )

    def closed(
        self,
        purpose: Any,
        claims: Sequence[Claim],
        claims_grade: Grade,
        retrievals: int,
        leaked: Sequence[str],
    ) -> SessionClosed:
        return SessionClosed(
            purpose=purpose,
            text=self.put("Done."),
            claims=tuple(claims),
            claims_grade=claims_grade,
            retrievals=retrievals,
            leaked=tuple(leaked),
        )

    def call(self, number: int, tool: str, arguments: Mapping[str, Any], ok: bool) -> FixtureCalled:
        effects = {each.name: each.effect for each in FIXTURE.tools}
        return FixtureCalled(
            number=number,
            tool=tool,
            effect="decide" if tool == "declare_decision" else effects.get(tool, "none"),
            arguments=self.put(dict(arguments)),
            ok=ok,
            result=self.put({"ok": ok}),
            state=digest_of("state"),
        )
