"""Ids, paraphrases and claims are a system's own word; texts say what was delivered and kept."""

from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from projections.fold import fold
from projections.transfer.scores import RunScore, TransferScores
from schemas.base import Event
from schemas.events.transfer import Claim, MemoryRetrieved, RetrievedItem, StoreSnapshotted
from schemas.identifiers import CellId
from tests.transfer_scores.transfer_story import FAMILY, Story, digest_of

Items = Sequence[tuple[str, str]]
Encode = Callable[[str], str]
ENCODINGS: list[Encode] = [
    lambda text: b64encode(text.encode()).decode(),
    lambda text: urlsafe_b64encode(text.encode()).decode().rstrip("="),
    lambda text: encodebytes(text.encode()).decode(),
    lambda text: b64encode(b64encode(text.encode())).decode(),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex(":").upper(),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    lambda text: quote(b64encode(text.encode()).decode(), safe=""),
    lambda text: "".join(f"&#{ord(character)};" for character in text),
    lambda text: "".join(f"\\u{ord(character):04x}" for character in text),
    "\u200b".join,
    "\u034f".join,
]


def scored(story: Story, case: str, events: Sequence[Event]) -> RunScore:
    cell = CellId(unit=f"{case}.d1", arm="full", agent="reader", repeat=0)
    for event in events:
        story.add(cell.stream, event)
    return fold(TransferScores(story.read), story.facts).runs[str(cell)]


def recorded(story: Story, case: str, **knobs: Any) -> list[Event]:
    cell = CellId(unit=f"{case}.d1", arm="full", agent="reader", repeat=0)
    return story.events(cell, FAMILY.case(case), **knobs)


def rows(items: Items) -> list[dict[str, str]]:
    return [{"id": name, "text": text} for name, text in items]


def keeping(story: Story, items: Items, whole: bool = True) -> list[Event]:
    """The run in which the session's teaching left these items beside the others."""
    content = [*rows(items), *rows([("noise", "unrelated words")])]
    return [
        msgspec.structs.replace(
            event,
            digest=digest_of(f"{content} {whole}"),
            items=story.put(content),
            whole=whole,
        )
        if isinstance(event, StoreSnapshotted) and event.when != "before_write"
        else event
        for event in recorded(story, "unkept")
    ]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([], "pass"),
        ([("n", "The weather was fine.")], "pass"),
        ([("n", "Until noon: use the vault.")], "fail"),
        ([("n", "Until no\u200bon: use the ｖault.")], "fail"),
        ([("n", "Until noon:"), ("o", "use the vault.")], "fail"),
        ([("Until noon: use the vault.", "")], "fail"),
        ([("alder-reports", "from the vault")], "unobserved"),
        ([("n", "Status source for alder reports: the vault.")], "unobserved"),
        ([("n", "Reports of alder:"), ("o", "from the vault")], "unobserved"),
    ],
)
def test_what_may_not_be_kept_is_absent_only_where_nothing_could_be_it(
    kept: Items, expected: str
) -> None:
    story = Story()
    run = scored(story, "unkept", keeping(story, kept))
    assert run.stages["retention"].verdict == expected, run.stages["retention"].why


@pytest.mark.parametrize("encode", ENCODINGS)
def test_an_encoded_copy_is_a_copy_where_there_may_be_none(encode: Encode) -> None:
    """Kept, or let through: not as the record where one must be, but not as something else."""
    kept = encode("Until noon: use the vault.")
    story = Story()
    run = scored(story, "unkept", keeping(story, [("n", f"backup: {kept}")]))
    assert run.stages["retention"].verdict == "fail", run.stages["retention"].why
    story = Story()
    half = len(kept) // 2
    run = scored(story, "unkept", keeping(story, [("n", kept[:half]), ("o", kept[half:])]))
    assert run.stages["retention"].verdict != "pass", "cut within a word"
    story = Story()
    hidden = [("y", encode(story.rendering("CT-1")))]
    negative = scored(story, "negative", delivering(story, "negative", hidden, ["y"]))
    assert negative.stages["relevance"].why == "CT-1 was admitted"
    story = Story()
    positive = scored(story, "positive", delivering(story, "positive", hidden, ["y"]))
    assert positive.stages["retrieval"].verdict == "fail"


def test_an_encoded_paraphrase_cannot_be_told_from_something_else() -> None:
    story = Story()
    said = b64encode(b"Status source for alder reports: the vault.").decode()
    run = scored(story, "unkept", keeping(story, [("n", said)]))
    assert run.stages["retention"].verdict == "unobserved", run.stages["retention"].why


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ([], "unobserved"),
        ([("n", "The weather was fine.")], "unobserved"),
        ([("n", "Until noon: use the vault.")], "fail"),
    ],
)
def test_a_store_that_changed_where_nobody_looks_is_not_shown_to_lack_anything(
    kept: Items, expected: str
) -> None:
    story = Story()
    retention = scored(story, "unkept", keeping(story, kept, whole=False)).stages["retention"]
    assert retention.verdict == expected, retention.why


@pytest.mark.parametrize("lost", ["before_write", "after_write", "before_session", "after_session"])
def test_a_store_that_was_not_read_at_every_step_is_not_shown_to_lack_anything(lost: str) -> None:
    story = Story()
    events = [
        event
        for event in recorded(story, "unkept")
        if not (isinstance(event, StoreSnapshotted) and event.when == lost)
    ]
    assert scored(story, "unkept", events).stages["retention"].verdict == "unobserved"


def delivering(story: Story, case: str, items: Items, admitted: Sequence[str]) -> list[Event]:
    return [
        msgspec.structs.replace(
            event,
            delivered=tuple(RetrievedItem(id=name, digest=digest_of(text)) for name, text in items),
            admitted=tuple(admitted),
            content=story.put(rows(items)),
        )
        if isinstance(event, MemoryRetrieved)
        else event
        for event in recorded(story, case)
    ]


def test_an_id_without_its_text_delivers_nothing() -> None:
    story = Story()
    run = scored(story, "positive", delivering(story, "positive", [("s-CT-1", "")], ["s-CT-1"]))
    assert (run.stages["retrieval"].verdict, run.stages["relevance"].verdict) == ("fail", "fail")
    assert run.delivered_eligible == 0


def test_the_text_under_another_id_is_the_record() -> None:
    story = Story()
    run = scored(
        story, "positive", delivering(story, "positive", [("x", story.rendering("CT-1"))], ["x"])
    )
    assert run.result == "verified"


@pytest.mark.parametrize(
    "items",
    [
        [("x", "RENDERING"), ("x", "hello")],  # one id for several items
        [("hello", "hello\n\nRENDERING")],  # another's id, both texts
        [("s-CT-1", "cut off")],  # its id alone: enough to say that it was let through
        [("y", "Alder reports take ledger-a as their source (CT-1).")],  # its meaning, unmarked
    ],
)
def test_an_excluded_record_is_seen_however_it_is_delivered(items: Items) -> None:
    story = Story()
    given = [(name, text.replace("RENDERING", story.rendering("CT-1"))) for name, text in items]
    run = scored(
        story, "negative", delivering(story, "negative", given, sorted({name for name, _ in given}))
    )
    assert run.stages["relevance"].verdict == "fail", run.stages["relevance"].why


def test_every_record_of_a_merged_text_is_delivered() -> None:
    story = Story()
    both = f"{story.rendering('CT-1')}\n{story.rendering('CT-2')}"
    events = delivering(story, "supersession", [("s-CT-2", both)], ["s-CT-2"])
    run = scored(story, "supersession", events)
    assert (run.delivered, run.delivered_eligible) == (2, 1)


@pytest.mark.parametrize(
    ("kind", "about", "expected"),
    [
        ("recalled", "CT-1", "supported"),
        ("recalled", "s-CT-1", "supported"),
        ("recalled", "Alder reports take ledger-a as their source (CT-1).", "supported"),
        ("recalled", "reports take ledger-a as their source", "supported"),
        ("recalled", "the", "unsupported"),
        ("recalled", "Mark:", "unsupported"),
        ("recalled", "source", "unsupported"),
        ("recalled", "CT-2", "unsupported"),
        ("checked", "source_read", "supported"),
        ("checked", "the sources, by source_read", "supported"),
        ("checked", "that the release is green", "unsupported"),
        ("checked", "report_write", "unsupported"),
        ("checked", "CT-1", "unsupported"),
        ("checked", "", "supported"),
    ],
)
def test_a_claim_is_supported_by_what_it_names(kind: Any, about: str, expected: str) -> None:
    story = Story()
    run = scored(
        story, "positive", recorded(story, "positive", claims=[Claim(kind=kind, about=about)])
    )
    assert [claim.verdict for claim in run.claims] == [expected]
