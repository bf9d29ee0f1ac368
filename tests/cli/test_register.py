"""``ledger register``: the card, its receipt, and what the audit makes of it."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, facts_of, record
from tests.projections.tiny_study import TinyStudy


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A study that is frozen and has not begun."""

    def write(tiny: TinyStudy) -> None:
        tiny.mine()
        tiny.freeze()

    return record(tmp_path / "frozen", write)


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text("<p>entry 4711, received 2026-07-18</p>")
    return path


def test_the_card_names_study_ledger_and_key_and_never_changes(
    ledger: Run, frozen: Path, receipt: Path
) -> None:
    card = ledger("register", "--study", frozen).out
    fields = dict(line.split("  ", 1) for line in card.splitlines()[1:])
    facts = facts_of(frozen)
    (digest,) = (f.event.digest for f in facts if f.event.TYPE == "study.frozen.v2")
    assert card.startswith("laboratory-ledger registration card v1\n")
    assert fields["study digest"].strip() == digest
    assert fields["ledger"].strip() == facts[0].event.uuid
    assert "+" in fields["key"]
    ledger("register", "--study", frozen, "--where", "osf.example/4711", "--receipt", receipt)
    assert ledger("register", "--study", frozen).out == card


def test_a_registration_before_the_first_answer_counts(
    ledger: Run, frozen: Path, receipt: Path
) -> None:
    before = ledger("audit", "registration", "--study", frozen, "--json").json
    done = ledger(
        "register", "--study", frozen, "--where", "osf.example/4711", "--receipt", receipt
    )
    assert done.status == 0 and "recorded at record" in done.out
    after = ledger("audit", "registration", "--study", frozen, "--json").json
    assert str(before).find("no registration is recorded") > 0
    assert "registered before the first response: osf.example/4711" in str(after)
    event = next(f.event for f in facts_of(frozen) if f.event.TYPE == "study.registered.v1")
    assert event.where == "osf.example/4711" and event.receipt.length > 0


def test_a_registration_after_the_first_answer_is_a_finding(
    ledger: Run, study: Path, receipt: Path
) -> None:
    ledger("register", "--study", study, "--where", "osf.example/4711", "--receipt", receipt)
    audit = ledger("audit", "registration", "--study", study)
    assert audit.status == 3
    assert "it registers nothing in advance" in audit.out


def test_what_cannot_be_registered(
    ledger: Run, frozen: Path, receipt: Path, tmp_path: Path
) -> None:
    alone = ledger("register", "--study", frozen, "--where", "osf.example/1")
    assert alone.status == 2 and "go together" in alone.err
    secret = "https://user:hunter22@registry.example/1"
    told = ledger("register", "--study", frozen, "--where", secret, "--receipt", receipt)
    assert told.status == 2 and "hunter22" not in told.err
    unfrozen = record(tmp_path / "mined", lambda tiny: tiny.mine())
    early = ledger("register", "--study", unfrozen)
    assert early.status == 1 and "not frozen" in early.err


def test_another_ledger_of_the_same_study_is_named(
    ledger: Run, frozen: Path, own_home: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(frozen, tmp_path / "second"))
    ledger("verify-chain", "--study", copy)
    ledger("checkpoint", "--study", copy)
    said = ledger("register", "--study", frozen)
    assert f"another ledger of this study: {copy}" in said.err
    listed = ledger("register", "--study", frozen, "--json").json
    others = listed["other_ledgers"]
    assert str(copy / "var" / "ledger.db") in others
    assert str(frozen / "var" / "ledger.db") not in others
