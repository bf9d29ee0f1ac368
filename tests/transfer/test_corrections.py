"""Corrections in the ledger: every guard names what it refuses, and no secret reaches the log."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.families.yaml_file import BadFile
from actors.loop import Context
from actors.transfer.corrections import carry_out, read_records
from ledger.artifacts import Artifacts
from ledger.errors import Refused
from ledger.memory_log import MemoryLog
from ledger.study_directory import StudyDirectory
from projections.transfer.corrections import Corrections, corrections_at
from schemas.commands import (
    AddCorrections,
    ApproveCorrection,
    DisputeCorrection,
    ExpireCorrection,
    ResolveDispute,
    SupersedeCorrection,
    WithdrawCorrection,
)
from schemas.transfer.correction import Correction, Scope, Session
from schemas.transfer.lifecycle import effective_lifecycle, eligible

SCOPE = Scope(principal="role:maintainer", project="halyard", task_classes=("code_edit",))
NOW = Session(
    principal="role:maintainer",
    project="halyard",
    task_class="code_edit",
    now="2026-07-01T09:00:00Z",
)


def record(name: str, **fields: Any) -> Correction:
    start = Correction(
        correction_id=name,
        class_="boundary",
        semantic_expectation="Edits are made in the staging tree.",
        source_reference=f"ref:log/{name}",
        persistence_allowed=True,
        scope=SCOPE,
        valid_from="2026-01-01T00:00:00Z",
        expires_at=None,
        lifecycle="active",
        supersedes=None,
        expected_decision=f"tree-{name}",
        expected_action=f"write under tree-{name} today",
        prohibited_actions=("start the release job",),
        authoritative_outcome_check="surface tree: it is there",
        consequence="low",
    )
    return msgspec.structs.replace(start, **fields)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    directory = StudyDirectory(tmp_path)
    directory.var.mkdir(parents=True)
    return Context(MemoryLog(), Artifacts(directory.artifacts), directory, "run-1")


@pytest.fixture
def do(context: Context) -> Callable[..., None]:
    def do(*commands: Any) -> None:
        for command in commands:
            carry_out(context, command)

    return do


def known(context: Context, position: int | None = None) -> Corrections:
    return corrections_at(context.log_facts(), position)


def add(*records: Correction) -> AddCorrections:
    return AddCorrections(records=records, proposer="Ann")


def approve(name: str, approver: str = "Bob", **fields: Any) -> ApproveCorrection:
    return ApproveCorrection(correction_id=name, approver=approver, **fields)


def dispute(one: str, other: str) -> DisputeCorrection:
    return DisputeCorrection(correction_id=one, against=other, reason="they disagree")


def resolve(winner: str, *losers: str, approver: str = "Bob") -> ResolveDispute:
    return ResolveDispute(winner=winner, losers=losers, approver=approver, reason="asked")


def expire(name: str, at: str, approver: str = "") -> ExpireCorrection:
    return ExpireCorrection(
        correction_id=name, at=at, reason="the audit is over", approver=approver
    )


def supersede(name: str, by: str, approver: str = "") -> SupersedeCorrection:
    return SupersedeCorrection(correction_id=name, by=by, reason="moved", approver=approver)


def withdraw(name: str, approver: str = "") -> WithdrawCorrection:
    return WithdrawCorrection(correction_id=name, reason="a mistake", approver=approver)


def states(context: Context) -> dict[str, str]:
    standings = known(context).standings
    return {name: effective_lifecycle(name, standings, list(standings), NOW) for name in standings}


A, B = record("A"), record("B")
ELSEWHERE = record("X", scope=msgspec.structs.replace(SCOPE, project="ketch"))


def test_a_life(context: Context, do: Callable[..., None]) -> None:
    do(add(A, record("C", supersedes="A")), approve("A"))
    assert states(context) == {"A": "active", "C": "proposed"}
    do(approve("C"))
    assert states(context) == {"A": "superseded", "C": "active"}
    do(add(B), approve("B"), dispute("B", "C"))
    assert states(context) == {"A": "superseded", "B": "disputed", "C": "disputed"}
    do(resolve("B", "C"))
    assert states(context) == {"A": "superseded", "B": "active", "C": "superseded"}
    do(expire("B", "2026-06-01T00:00:00Z"))
    assert states(context)["B"] == "expired"
    do(withdraw("B"))
    assert states(context)["B"] == "withdrawn"
    transitions = [(t.correction_id, t.transition) for t in known(context).transitions]
    assert transitions == [
        ("A", "proposed"),
        ("C", "proposed"),
        ("A", "approved"),
        ("C", "approved"),
        ("B", "proposed"),
        ("B", "approved"),
        ("B", "disputed"),
        ("C", "disputed"),
        ("B", "won"),
        ("C", "lost"),
        ("B", "expired"),
        ("B", "withdrawn"),
    ]


def test_a_dispute_stands_in_the_streams_of_both(context: Context, do: Callable[..., None]) -> None:
    do(add(A, B), approve("A"), approve("B"), dispute("A", "B"), resolve("A", "B"))
    for name in ("A", "B"):
        types = [s.envelope().type for s in context.log.read_stream(f"correction/{name}")]
        assert types == [
            "correction.proposed.v1",
            "correction.approved.v1",
            "correction.disputed.v1",
            "dispute.resolved.v1",
        ]


def test_what_replaces_stands_after_what_is_replaced(
    context: Context, do: Callable[..., None]
) -> None:
    do(add(record("C", supersedes="A"), A))
    assert list(known(context).standings) == ["A", "C"]


HIGH = record("H", consequence="high")
CONDITIONAL = record("K", persistence_allowed="conditional")
REFUSED: dict[str, tuple[list[Any], Any, str]] = {
    "the same again": ([add(A)], add(A), "A: is there already, as it is written here"),
    "rewriting": ([add(A)], add(record("A", consequence="high")), "a record is never rewritten"),
    "twice at once": ([], add(A, A), "is there already|duplicate id"),
    "a dangling predecessor": ([], add(record("C", supersedes="Z")), "Z does not exist"),
    "a cycle": (
        [],
        add(record("C", supersedes="D"), record("D", supersedes="C")),
        "a cycle: C → D → C",
    ),
    "scopes apart": (
        [add(ELSEWHERE)],
        add(record("C", supersedes="X")),
        "no session in common",
    ),
    "replacing what was withdrawn": (
        [add(A), withdraw("A")],
        add(record("C", supersedes="A")),
        "A was withdrawn",
    ),
    "clocks backwards": (
        [],
        add(record("C", expires_at="2025-01-01T00:00:00Z")),
        "`expires_at`: 2025-01-01T00:00:00Z is not after valid_from",
    ),
    "approving the unknown": ([add(A)], approve("Z"), "no correction Z; there are: A"),
    "approving twice": ([add(A), approve("A")], approve("A"), "A is approved already"),
    "one's own high consequence": (
        [add(HIGH)],
        approve("H", " ann "),
        "H has high consequence and was proposed by Ann: somebody else approves it",
    ),
    "conditional without condition": ([add(CONDITIONAL)], approve("K"), "name the condition"),
    "a condition for nothing": (
        [add(A)],
        approve("A", condition="on Mondays"),
        "a condition belongs to `conditional`",
    ),
    "no residual scope": (
        [add(A)],
        approve("A", keep_residual_scope=True),
        "no residual scope to keep",
    ),
    "a successor before its predecessor": (
        [add(A, record("C", supersedes="A"))],
        approve("C"),
        "A, which C supersedes, is not approved",
    ),
    "superseding a proposal": ([add(A, B)], supersede("A", "B"), "A is proposed: only an approved"),
    "superseding by itself": ([add(A), approve("A")], supersede("A", "A"), "replace itself"),
    "superseding twice": (
        [add(A, B), approve("A"), approve("B"), supersede("A", "B")],
        supersede("A", "B"),
        "B replaces A already",
    ),
    "superseding in a circle": (
        [add(A, B), approve("A"), approve("B"), supersede("A", "B")],
        supersede("B", "A"),
        "a cycle: B already stands in the place of A",
    ),
    "superseding elsewhere": (
        [add(A, ELSEWHERE), approve("A"), approve("X")],
        supersede("A", "X"),
        "no session in common",
    ),
    "expiring before it began": (
        [add(A), approve("A")],
        expire("A", "2025-12-31T00:00:00Z"),
        "the record would never have held",
    ),
    "prolonging": (
        [add(A), approve("A"), expire("A", "2026-06-01T00:00:00Z")],
        expire("A", "2026-07-01T00:00:00Z"),
        "A ends at 2026-06-01T00:00:00Z already",
    ),
    "an impossible day": (
        [add(A), approve("A")],
        expire("A", "2026-02-31T00:00:00Z"),
        "no instant of the calendar",
    ),
    "disputing with itself": ([add(A), approve("A")], dispute("A", "A"), "contradict itself"),
    "disputing twice": (
        [add(A, B), approve("A"), approve("B"), dispute("A", "B")],
        dispute("B", "A"),
        "are disputed already",
    ),
    "disputing elsewhere": (
        [add(A, ELSEWHERE), approve("A"), approve("X")],
        dispute("A", "X"),
        "no session in common",
    ),
    "disputing what is replaced": (
        [add(A, record("C", supersedes="A")), approve("A"), approve("C")],
        dispute("A", "C"),
        "C replaces A",
    ),
    "deciding nothing": (
        [add(A, record("B", expected_decision="tree-A")), approve("A"), approve("B")],
        resolve("A", "B"),
        "nothing is to be decided between them",
    ),
    "a winner that loses": ([add(A), approve("A")], resolve("A", "A"), "different records"),
    "deciding for oneself": (
        [add(HIGH, B), approve("H"), approve("B"), dispute("H", "B")],
        resolve("H", "B", approver="ANN"),
        "somebody else decides for it",
    ),
    "withdrawing twice": ([add(A), withdraw("A")], withdraw("A"), "A was withdrawn already"),
    "approving what was withdrawn": ([add(A), withdraw("A")], approve("A"), "A is withdrawn"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_each_guard_names_what_it_refuses(
    context: Context, do: Callable[..., None], what: str
) -> None:
    before, command, message = REFUSED[what]
    do(*before)
    held = known(context).standings
    with pytest.raises(Refused, match=message):
        do(command)
    assert known(context).standings == held


def test_a_named_condition_is_kept(context: Context, do: Callable[..., None]) -> None:
    do(add(CONDITIONAL), approve("K", condition="while the audit lasts"))
    assert known(context).standings["K"].condition == "while the audit lasts"


def test_a_narrower_record_retires_the_wide_one_unless_the_rest_is_kept(
    context: Context, do: Callable[..., None]
) -> None:
    wide = record("W", scope=msgspec.structs.replace(SCOPE, project="*"))
    for number, keep in ((1, False), (2, True)):
        old = msgspec.structs.replace(wide, correction_id=f"W{number}")
        new = record(f"N{number}", supersedes=f"W{number}")
        do(add(old, new), approve(f"W{number}"))
        do(approve(f"N{number}", keep_residual_scope=keep))
    elsewhere = msgspec.structs.replace(NOW, project="ketch")
    standings = known(context).standings
    found = {
        name: effective_lifecycle(name, standings, [name, f"N{name[1]}"], elsewhere)
        for name in ("W1", "W2")
    }
    assert found == {"W1": "superseded", "W2": "active"}


def test_a_late_record_with_an_earlier_start_changes_nothing_that_was_known(
    context: Context, do: Callable[..., None]
) -> None:
    do(add(A), approve("A"))
    head = context.log.head()
    assert head is not None
    freeze = head.seq
    late = record("L", supersedes="A", valid_from="2025-01-01T00:00:00Z")
    do(add(late), approve("L"))
    then, now = known(context, freeze).standings, known(context).standings
    assert eligible(then, ["A", "L"], NOW) == ("A",)
    assert eligible(now, ["A", "L"], NOW) == ("L",)
    assert list(then) == ["A"]


SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    "command",
    [
        add(record("S", semantic_expectation=f"use {SECRET} for it")),
        approve("A", condition=SECRET),
        supersede("A", "B"),
        expire("A", "2026-06-01T00:00:00Z"),
        dispute("A", "B"),
        resolve("A", "B"),
        withdraw("A"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_no_secret_reaches_the_log_or_the_message(context: Context, command: Any) -> None:
    carry_out(context, add(A, B))
    if hasattr(command, "reason"):
        command = msgspec.structs.replace(command, reason=f"because of {SECRET}")
    with pytest.raises(Refused, match="a GitHub token: nothing was recorded") as refused:
        carry_out(context, command)
    assert SECRET not in str(refused.value)
    assert not any(SECRET.encode() in stored.record for stored in context.log.read())


FILE = """\
correction_id: CT-1
class: boundary
semantic_expectation: Edits are made in the staging tree.
source_reference: ref:log/1
persistence_allowed: true
scope: {principal: "role:maintainer", project: halyard, task_classes: [code_edit]}
valid_from: 2026-01-01T00:00:00Z
expires_at: null
lifecycle: active
supersedes: null
expected_decision: staging
expected_action: write under the staging tree
prohibited_actions: [start the release job]
authoritative_outcome_check: "surface tree: it is there"
consequence: low
"""


def test_a_file_holds_one_record_or_many() -> None:
    indented = "\n".join(f"  {line}" for line in FILE.splitlines())
    one = read_records(FILE.encode(), "a.yaml")
    assert [found.correction_id for found in one] == ["CT-1"]
    listed = f"records:\n- {indented.strip()}\n"
    assert read_records(listed.encode(), "a.yaml") == one
    assert read_records(f"- {indented.strip()}\n".encode(), "a.yaml") == one
    given = Path(__file__).parents[2] / "actors" / "families" / "examples" / "F104.yaml"
    assert len(read_records(given.read_bytes(), "F104.yaml")) == 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class: boundary", "class: rule", r'a.yaml:2: `class`: allowed: "factual_revision"'),
        ("class: boundary", "class: rule", r'"boundary" \(what is not touched, or by whom alone\)'),
        ("class: boundary", "class: null", r"`class`: .*\(it is null\)"),
        ("class: boundary\n", "", r'`class` is missing; allowed: .*"procedure" \(how something is'),
        ("consequence: low\n", "", r"a.yaml:1: `consequence` is missing"),
        ("lifecycle:", "lifecicle:", r"unknown key `lifecicle` \(did you mean `lifecycle`"),
        ("staging tree.", f"tree of {SECRET}.", r"a.yaml:3: `semantic_expectation`: looks like"),
        ("[start the release job]", "[]", r"a.yaml:13: `prohibited_actions`: expected `array`"),
    ],
)
def test_a_bad_file_is_refused_by_line_and_key(old: str, new: str, message: str) -> None:
    assert old in FILE
    with pytest.raises(BadFile, match=message) as refused:
        read_records(FILE.replace(old, new).encode(), "a.yaml")
    assert SECRET not in str(refused.value)


def test_the_key_of_a_listed_record_is_named_with_its_place() -> None:
    text = "records:\n- " + "\n  ".join(FILE.replace("class: b", "class: x").splitlines()) + "\n"
    with pytest.raises(BadFile, match=r"a.yaml:3: .*`class`: allowed"):
        read_records(text.encode(), "a.yaml")


@pytest.mark.parametrize(
    "name",
    [
        "ann",
        " A n n ",
        "\uff21nn",  # fullwidth
        "\u0410nn",  # Cyrillic A
        "Ann\u200b",  # with a space that nobody sees
        "A\u0301nn.",  # with an accent and a full stop
        "An\u0578",  # Armenian vo, drawn like an n: of no table here, but another script
        "\u200b",
    ],
)
def test_a_second_person_is_not_the_first_in_other_letters(
    context: Context, do: Callable[..., None], name: str
) -> None:
    do(add(HIGH))
    with pytest.raises(Refused, match="somebody else approves it"):
        do(approve("H", name))
    do(approve("H", "J\u00f6rg O'Neill"))
    assert states(context)["H"] == "active"


@pytest.mark.parametrize(
    "step",
    [
        lambda who: expire("H", "2026-06-01T00:00:00Z", who),
        lambda who: supersede("H", "A", who),
        lambda who: withdraw("H", who),
    ],
)
def test_high_consequence_is_ended_by_a_second_person_too(
    context: Context, do: Callable[..., None], step: Callable[[str], Any]
) -> None:
    do(add(HIGH, A), approve("H"), approve("A"))
    for nobody in ("", "ann"):
        with pytest.raises(Refused, match="H has high consequence"):
            do(step(nobody))
    do(step("Cleo"))
    assert known(context).transitions[-1].by == "Cleo"
    assert states(context)["H"] != "active"


def test_a_successor_is_not_weighed_less(context: Context, do: Callable[..., None]) -> None:
    do(add(HIGH, record("L", supersedes="H")), approve("H"))
    with pytest.raises(Refused, match="L has high consequence"):
        do(approve("L", "Ann"))
    do(approve("L", "Bob"), add(A), approve("A", "Ann"))
    with pytest.raises(Refused, match="L has high consequence"):
        do(supersede("L", "A"))
    with pytest.raises(Refused, match="L has high consequence"):
        do(withdraw("L", "Ann"))
    assert states(context)["L"] != "withdrawn"


def test_what_nobody_approved_is_taken_back_alone(
    context: Context, do: Callable[..., None]
) -> None:
    do(add(HIGH), withdraw("H"))
    assert states(context)["H"] == "withdrawn"
