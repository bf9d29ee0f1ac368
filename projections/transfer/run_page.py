"""The page of one run: prompt, store, trace, decision, calls, surface, and the seven stages.

Everything that a system produced is untrusted: it is bounded here and neutralised by the renderers,
and a text that looks like a secret is not shown at all.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from projections.fold import ReadArtifact
from projections.presentable_text import presentable
from projections.report.model import (
    BANNER,
    MARK,
    Block,
    Code,
    Column,
    Fact,
    Facts,
    Report,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import NONE
from projections.transfer.evidence import RunEvidence, read_items
from projections.transfer.results import TransferResults
from projections.transfer.scores import RunScore
from schemas.base import ArtifactRef
from schemas.events.transfer import (
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    MemoryWritten,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.transfer.family import Case

MAX_ITEMS = 100


def build_run_page(
    run: RunScore, evidence: RunEvidence, results: TransferResults, title: str, read: ReadArtifact
) -> Report:
    """One run, as a report of its own; the same records give the same page."""
    head = results.computed_from
    case = evidence.case
    result = f"{run.result}, behavioural {run.behavioural.replace('_', ' ')}"
    if run.earliest is not None:
        result += f"; earliest evidenced failing stage: {run.earliest}"
    if run.uncertain:
        result += f" (not observed before it: {', '.join(run.uncertain)})"
    return Report(
        title=run.cell,
        study_id=title,
        banner=BANNER if results.simulated else "",
        mark=MARK if results.simulated else "",
        question=f"{case.kind.replace('_', ' ')} of {run.family}: {presentable(case.prompt)}",
        result_title="Result",
        result=f"{result}.",
        remarks=tuple(presentable(note) for note in (*run.notes, *run.uncertainty)),
        check=("Look at it: ", Code(text=f"ledger show {run.cell}"), "."),
        facts=(
            Fact(term="Class", value=f"{run.class_.replace('_', ' ')}, {run.consequence} stakes"),
            Fact(term="Memory", value=run.memory),
            Fact(term="Driver", value=run.driver),
            *(
                Fact(term="System", value=system.chosen)
                for system in results.systems
                if (system.memory, system.driver) == run.system
            ),
            Fact(term="Trial", value=str(run.trial)),
            Fact(term="Distractors", value=str(run.distractors)),
            Fact(term="Attempt", value=str(run.attempt)),
            Fact(term="Ended", value=run.ended),
            Fact(term="Records", value=f"{run.started} to {run.finished}"),
        ),
        sections=(
            _stages(run),
            _expected(case),
            _session(evidence, read),
            _store(evidence, read),
            _trace(evidence, read),
            _plan(evidence),
            _calls(evidence, read),
            _surface(evidence, read),
            _claims(run, evidence, read),
        ),
        computed_from=f"record {head.head}, leaf {head.leaf}",
    )


def _stages(run: RunScore) -> Section:
    table = Table(
        caption="The seven stages",
        columns=(
            *columns("stage", "verdict", "grade"),
            Column(title="why", kind="prose"),
            Column(title="evidence (records)"),
        ),
        rows=tuple(
            (
                f"{number} {stage}",
                found.verdict.replace("_", " "),
                found.grade,
                presentable(found.why),
                ", ".join(map(str, found.evidence)) or NONE,
            )
            for number, (stage, found) in enumerate(run.stages.items(), start=1)
        ),
    )
    blocks: list[Block] = [table]
    if run.prohibited:
        blocks.append(
            Table(
                caption="Prohibited actions",
                columns=(*columns("record"), Column(title="what", kind="prose")),
                rows=tuple((str(done.seq), presentable(done.what)) for done in run.prohibited),
            )
        )
    return Section(id="stages", title="Stages", blocks=tuple(blocks))


def _expected(case: Case) -> Section:
    """As it was frozen, before the run."""
    facts = Facts(
        items=(
            Fact(term="Records in the store", value=", ".join(case.store) or "none"),
            Fact(term="Records that apply", value=", ".join(case.eligible) or "none"),
            Fact(term="Decision", value=", ".join(case.expected.decision_accept) or "none"),
            Fact(term="Abstain", value=str(case.expected.abstain).lower()),
            Fact(term="Action", value=_json(case.expected.action), is_code=True),
            Fact(term="Outcome", value=_json(case.expected.outcome), is_code=True),
            Fact(term="Prohibited", value=_json(case.prohibited), is_code=True),
        )
    )
    blocks: list[Block] = [facts]
    if case.note:
        blocks.append(paragraph(presentable(case.note)))
    return Section(id="expected", title="Expected, as frozen", blocks=tuple(blocks))


def _session(evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = []
    for seq, event in evidence.all(SessionOpened):
        session = event.session
        where = f"{session.principal}, {session.project}, {session.task_class}, {session.now}"
        fresh = ", ".join(f"{name} {value}" for name, value in sorted(event.freshness.items()))
        rows += [
            (f"{event.purpose} session", str(seq), where),
            ("prompt", str(seq), _text(read, event.prompt)),
            ("system prompt", str(seq), _text(read, event.system_prompt) or "none"),
            ("fresh by", str(seq), presentable(fresh)),
        ]
    for seq, described in evidence.all(SystemDescribed):
        rows += [
            ("memory", str(seq), _text(read, described.memory)),
            ("driver", str(seq), _text(read, described.driver)),
            ("capabilities", str(seq), _json(described.capabilities)),
            ("clock", str(seq), described.clock_control),
        ]
    for seq, closed in evidence.all(SessionClosed):
        rows.append((f"last words ({closed.purpose})", str(seq), _text(read, closed.text)))
        if closed.leaked:
            rows.append(
                ("canary seen outside", str(seq), ", ".join(map(presentable, closed.leaked)))
            )
    return _section("session", "Prompt and session", "What was said, and to whom", rows)


def _store(evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = []
    for seq, seeded in evidence.all(MemorySeeded):
        for record, ids in seeded.ids.items():
            rows.append((f"seeded {record}", str(seq), ", ".join(map(presentable, ids))))
        rows.append(("distractors", str(seq), str(len(seeded.distractors))))
        rows.append(("renderings", str(seq), _text(read, seeded.renderings)))
    known = {
        store_id for _, seeded in evidence.all(MemorySeeded) for store_id in seeded.distractors
    }
    for seq, event in evidence.all(StoreSnapshotted):
        when = event.when.replace("_", " ")
        digest = event.digest[:16] or "not readable"
        rows.append((f"snapshot {when}", str(seq), f"{digest}, {event.grade}"))
        items = None if event.items is None else read_items(read(event.items))
        own = [item for item in items or () if item.id not in known]
        for item in own[:MAX_ITEMS]:
            rows.append((f"{when}: {presentable(item.id)}", str(seq), presentable(item.text)))
        if items is not None and len(own) < len(items):
            rows.append((f"{when}: distractors", str(seq), str(len(items) - len(own))))
    for seq, written in evidence.all(MemoryWritten):
        said = "acknowledged" if written.acknowledged else "not acknowledged"
        rows.append((f"written, {said}", str(seq), _text(read, written.text)))
    return _section("store", "Store", "What the memory held", rows)


def _trace(evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = []
    for seq, event in evidence.all(MemoryRetrieved):
        rows.append((f"query, {event.grade}", str(seq), presentable(event.query)))
        texts = {item.id: item.text for item in read_items(read(event.content)) or ()}
        for item in event.delivered[:MAX_ITEMS]:
            state = (
                "delivered"
                if event.admitted is None
                else "admitted"
                if item.id in event.admitted
                else "not admitted"
            )
            words = presentable(texts.get(item.id, "(its text is not recorded)"))
            rows.append((f"{state}: {presentable(item.id)}", str(seq), words))
    return _section("trace", "Trace", "What was delivered and let through", rows)


def _plan(evidence: RunEvidence) -> Section:
    rows = []
    for seq, event in evidence.all(DecisionDeclared):
        when = "before the first write" if event.before_write else "after a write, or at the end"
        basis = ", ".join(map(presentable, event.basis)) or "none"
        rows.append((presentable(event.option), str(seq), f"{when}, {event.grade}; basis: {basis}"))
    return _section("plan", "Plan", "Decisions as they were declared", rows)


def _calls(evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = []
    for seq, event in evidence.all(FixtureCalled):
        state = "" if event.ok else ", refused"
        rows.append(
            (
                f"{event.number} {presentable(event.tool)} ({event.effect}{state})",
                str(seq),
                f"{_text(read, event.arguments)} \u2192 {_text(read, event.result)}",
            )
        )
    return _section("calls", "Calls", "The journal of the fixture", rows)


def _surface(evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = []
    for seq, event in evidence.all(SurfaceRead):
        before, after = _text(read, event.before), _text(read, event.after)
        rows += [
            ("before", str(seq), before),
            (
                "after",
                str(seq),
                "unchanged" if event.before.digest == event.after.digest else after,
            ),
            ("calls", str(seq), str(event.calls)),
            ("side effects", str(seq), ", ".join(map(presentable, event.side_effects)) or "none"),
        ]
    return _section("surface", "Surface", "Read by the fixture, never through the system", rows)


def _claims(run: RunScore, evidence: RunEvidence, read: ReadArtifact) -> Section:
    rows = [
        (
            f"{claim.kind} {presentable(claim.about)}".strip(),
            ", ".join(map(str, claim.evidence)),
            f"{claim.verdict.replace('_', ' ')}: {presentable(claim.why)}",
        )
        for claim in run.claims
    ]
    if run.said_done:
        rows.append(("done", NONE, "judged by the outcome"))
    return _section("claims", "Claims", "What the system says of its memory", rows)


def _section(id_: str, title: str, caption: str, rows: Sequence[tuple[str, str, str]]) -> Section:
    if not rows:
        return Section(id=id_, title=title, blocks=(paragraph("Nothing was observed."),))
    table = Table(
        caption=caption,
        columns=(*columns("what", "record"), Column(title="as recorded", kind="prose")),
        rows=tuple(rows),
    )
    return Section(id=id_, title=title, blocks=(table,))


def _text(read: ReadArtifact, ref: ArtifactRef) -> str:
    return presentable(read(ref).decode("utf-8", "replace"))


def _json(value: Any) -> str:
    return presentable(msgspec.json.encode(value).decode())
