"""What a system says of its own memory, against what was seen (``docs/scoring.md``, "Claims")."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from projections.presentable_text import presentable
from projections.transfer.evidence import Reading, StoreItem, content_words, folded
from schemas.base import Value
from schemas.events.transfer import Claim, SessionClosed, StoreSnapshotted
from schemas.transfer.family_checks import Call
from schemas.transfer.rendering import read_record


class ClaimScore(Value):
    """One claim of the system about its memory, against what was seen."""

    kind: str
    about: str
    verdict: Literal["supported", "unsupported", "not_judged"]
    evidence: tuple[int, ...]
    why: str


def judge_claims(reading: Reading) -> tuple[ClaimScore, ...]:
    """Claims about the memory in both sessions. Whether something is `done` is stage 7's question
    and is not judged here."""
    found = []
    for purpose in ("write", "task"):
        for seq, event in reading.run.all(SessionClosed, purpose):
            for claim in event.claims:
                if claim.kind != "done":
                    found.append(_judge_claim(reading, claim, seq, event, purpose))
    return tuple(found)


def _judge_claim(
    reading: Reading, claim: Claim, seq: int, event: SessionClosed, purpose: str
) -> ClaimScore:
    def judged(supported: bool | None, evidence: Iterable[int], why: str) -> ClaimScore:
        verdict = {True: "supported", False: "unsupported", None: "not_judged"}[supported]
        return msgspec.convert(
            {
                "kind": claim.kind,
                "about": presentable(claim.about, 200),
                "verdict": verdict,
                "evidence": tuple(dict.fromkeys((seq, *evidence))),
                "why": why,
            },
            ClaimScore,
        )

    if not reading.usable(event.claims_grade):
        return judged(None, (), "that it was claimed is the system's own word")
    match claim.kind:
        case "recalled":
            before = reading.snapshots()
            items = reading.items(before[-1][1]) if before else None
            if items is None or not reading.usable(before[-1][1].grade):
                return judged(None, (), "the store cannot be read")
            there = any(_recalls(reading, claim.about, item) for item in items)
            return judged(
                there, [before[-1][0]], "the record is in the store" if there else "no such record"
            )
        case "saved":
            labels = (
                ("before_write", "after_write")
                if purpose == "write"
                else (
                    "before_session",
                    "after_session",
                )
            )
            shots = {shot.when: (at, shot) for at, shot in reading.run.all(StoreSnapshotted)}
            pair = [shots[label] for label in labels if label in shots]
            if len(pair) < 2 or not all(
                shot.digest and reading.usable(shot.grade) for _, shot in pair
            ):
                return judged(None, (), "the store before and after cannot be compared")
            changed = pair[0][1].digest != pair[1][1].digest
            return judged(
                changed,
                (at for at, _ in pair),
                "the store changed" if changed else "the store did not change",
            )
        case _:
            if not reading.journal_complete or reading.surface is None or purpose != "task":
                return judged(None, (), "there is no complete journal of calls")
            reads = [call for call in reading.journal if _checks(reading, call, claim.about)]
            evidence = [reading.journal_seqs[call.number] for call in reads]
            return judged(
                bool(reads),
                (*evidence, reading.surface[0]),
                "it was read" if reads else "no call read it",
            )


MIN_CLAIM_WORDS = 3


def _recalls(reading: Reading, about: str, item: StoreItem) -> bool:
    """Whether an item of the store is the record that a claim is about: by its id, or by words that
    are its meaning or at least three together out of it. A claim about nothing in particular is
    about any of the family's records."""
    if not about:
        return any(
            reading.mentions(record.correction_id, item.text) for record in reading.family.records
        )
    if reading.record(about):
        return reading.mentions(about, item.text)
    read = read_record(item.text)
    if about == item.id or (read is not None and about == read.record_id):
        return True
    said = folded(about)
    return any(
        reading.mentions(record.correction_id, item.text)
        and (
            (meaning := folded(record.semantic_expectation)) in said
            or (len(content_words(about)) >= MIN_CLAIM_WORDS and said in meaning)
        )
        for record in reading.family.records
    )


def _checks(reading: Reading, call: Call, about: str) -> bool:
    """Whether a call reads what the claim is about: a tool or surface that it names, or, where it
    is about nothing in particular, anything at all."""
    if not call.ok or call.effect != "read":
        return False
    surfaces = reading.family.fixture.surfaces
    tools = {tool.name: tool for tool in reading.family.fixture.tools}
    if not about:
        return True
    named = {about, *re.findall(r"[\w.-]+", about)}
    if call.tool in named:
        return True
    read_at = tools[call.tool].operation.path.split("/")[0] if call.tool in tools else None
    return read_at is not None and any(
        name in named and (not path or path.split("/")[0] == read_at)
        for name, path in surfaces.items()
    )
