"""Text that obeys nobody: what a ledger, a model or an argument holds never speaks to the terminal.

Escape sequences, direction marks and the like reach a terminal only as escapes, in every form of
output: tables, JSON, CSV and messages.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli.printable import printable, printable_lines
from schemas.events.study import (
    AmendmentRecorded,
    FrozenFile,
    OutcomesInspected,
    TasksFrozen,
)
from tests.cli.conftest import Run, facts_of, record
from tests.projections.tiny_study import STUDY_TOML, TinyStudy

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202edlrow\u2066 \x9b31m \x7f \x00 \u2028 \u00a0 \ue000"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ue000]")
"""What must not reach a terminal; line ends and tabs of our own may."""


def test_every_kind_of_it_is_escaped() -> None:
    assert not RAW.search(printable(HOSTILE))
    assert printable("Ünïcode 字 text") == "Ünïcode 字 text"
    assert printable_lines(f"{HOSTILE}\nnext").count("\n") == 1


@pytest.fixture
def hostile_study(tmp_path: Path) -> Path:
    def write(tiny: TinyStudy) -> None:
        tiny.write_everything()
        # A reason is what a person typed: any text at all.
        seen = OutcomesInspected(reason=HOSTILE, graded=0)
        tiny.append("study", seen)
        # What was bound is named where it is not as bound: here it is gone.
        bound = FrozenFile(name=f"documents/{HOSTILE}", digest="0" * 64)
        amendment = AmendmentRecorded(
            reason=HOSTILE,
            changes_claim=False,
            finding="after_first_cell",
            inspections=(),
            changed=(bound,),
            study=tiny.put(STUDY_TOML, "application/toml"),
        )
        tiny.append("study", amendment)

    return record(tmp_path / "hostile", write)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "study", "--reason", "seen"),
        ("show", "study", "--json", "--reason", "seen"),
        ("show", "study", "--artifacts", "--reason", "seen"),
        ("show", "study", "--artifacts", "--json", "--reason", "seen"),
        ("query", "SELECT * FROM inspections"),
        ("query", "SELECT * FROM inspections", "--json"),
        ("query", "SELECT * FROM inspections", "--csv"),
        ("query", f"SELECT '{HOSTILE}' AS \"{HOSTILE}\"".replace("\x00", "")),
        ("query", f"SELECT '{HOSTILE}' AS \"{HOSTILE}\"".replace("\x00", ""), "--json"),
        ("query", f"SELECT '{HOSTILE}' AS \"{HOSTILE}\"".replace("\x00", ""), "--csv"),
        ("status", "--cells"),
        ("audit",),
        ("audit", "--json"),
        ("analyze", "--reason", "seen"),
        ("verify-chain",),
        ("verify-chain", "--json"),
    ],
    ids=lambda words: " ".join(word for word in words if "\x1b" not in word),
)
def test_output(ledger: Run, hostile_study: Path, words: tuple[str, ...]) -> None:
    ran = ledger(*words, "--study", hostile_study)
    assert ran.out
    assert not RAW.search(ran.out.replace("\r\n", "\n")) and not RAW.search(ran.err)
    if "--json" in words:
        assert ran.out.isascii()
        json.loads(ran.out)


@pytest.mark.parametrize("command", ["status", "audit", "replay"])
def test_content_that_is_not_what_its_type_says(ledger: Run, tmp_path: Path, command: str) -> None:
    """Its bytes are those that were recorded, so verification has nothing against it."""

    def write(tiny: TinyStudy) -> None:
        tiny.mine()
        tiny.append("study", TasksFrozen(tasks=tiny.put("{"), count=1, packs={}))

    made = record(tmp_path / "made", write)
    assert ledger("verify-chain", "--study", made).status == 0
    ran = ledger(command, "--study", made)
    assert ran.status == 3
    assert "holds something else than its type says" in ran.err and "Traceback" not in ran.err


def test_the_text_itself_is_not_lost(ledger: Run, hostile_study: Path) -> None:
    ran = ledger("query", "SELECT reason FROM inspections", "--json", "--study", hostile_study)
    assert HOSTILE in [row["reason"] for row in ran.json["rows"]]


@pytest.mark.parametrize(
    "words",
    [
        (HOSTILE,),
        ("show", HOSTILE),
        ("show", f"cell/{HOSTILE}/H000/M002/0"),
        ("query", f"SELECT {HOSTILE}"),
        ("query", f"SELECT * FROM '{HOSTILE}'"),
        ("audit", HOSTILE),
        ("tasks", "show", HOSTILE),
        ("tasks", HOSTILE),
        ("replay", "--execute", HOSTILE),
        ("worker", "--roles", HOSTILE),
        ("verify-chain", "--key", HOSTILE),
        ("verify-chain", "--require", HOSTILE),
        ("verify-chain", "--path", HOSTILE.replace("\x00", "")),
        ("checkpoint", "--branch", HOSTILE, "--push", "/nowhere"),
        ("export", HOSTILE.replace("\x00", "") + "/\x1b"),
        (f"--{HOSTILE}",),
    ],
    ids=lambda words: " ".join(word for word in words if "\x1b" not in word),
)
def test_messages(
    ledger: Run, study: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_STUDY", str(study))
    monkeypatch.chdir(study)
    ran = ledger(*words)
    assert ran.status in ((0, 2) if words[0] == "export" else (1, 2))
    assert not RAW.search(ran.out) and not RAW.search(ran.err)


@pytest.mark.parametrize(
    "words", [["show", b"\xff"], ["query", b"SELECT '\xff'"], [b"\xff"], ["audit", b"\xff"]]
)
def test_an_argument_that_is_no_text(study: Path, words: list[str | bytes]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ledger", *words], cwd=study, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert b"is not UTF-8" in done.stderr and b"Traceback" not in done.stderr


# --- numbers without measure ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("--max-rows", "99999999999999999999"),
        ("--max-rows", "10000001"),
        ("--seconds", "inf"),
        ("--seconds", "nan"),
        ("--seconds", "-1"),
    ],
    ids="=".join,
)
def test_a_bound_that_is_none(ledger: Run, study: Path, words: tuple[str, ...]) -> None:
    ran = ledger("query", "SELECT 1", *words, "--study", study)
    assert (ran.status, ran.out) == (2, "")


@pytest.mark.parametrize("target", ["9" * 30, "9223372036854775807", "9223372036854775808", "²"])
def test_a_record_beyond_all_numbers(ledger: Run, study: Path, target: str) -> None:
    ran = ledger("show", target, "--study", study)
    assert (ran.status, ran.out) == (2, "")


# --- files that are not what they are said to be -------------------------------------------------


def words_at_random(path: Path) -> None:
    path.write_bytes(b"dear diary\n")


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


@pytest.mark.parametrize("write", [words_at_random, nothing, binary])
def test_a_note_that_is_none(
    ledger: Run, study: Path, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "note"
    write(path)
    before = facts_of(study)
    for words in (
        ("verify-chain", "--against", path),
        ("verify-chain", "--time-authority", path),
        ("checkpoint", "--note", path, "--time-token", path),
        ("prove", "0", "--against", path),
    ):
        ran = ledger(*words, "--study", study)
        assert (ran.status, ran.out) == (2, ""), words
    assert ledger("check-proof", path).status == 2
    assert facts_of(study) == before


def test_a_note_beside_something_else_is_none(ledger: Run, study: Path, tmp_path: Path) -> None:
    note = ledger("checkpoint", "--study", study).out
    path = tmp_path / "note"
    path.write_text(note + "\nand more\n", encoding="utf-8")
    ran = ledger("verify-chain", "--against", path, "--study", study)
    assert (ran.status, ran.out) == (2, "")
    path.write_text(note, encoding="utf-8")
    assert ledger("verify-chain", "--against", path, "--study", study).status == 0


@pytest.mark.parametrize("branch", ["--upload-pack=touch x", "-x", "a:b", "+a", "a..b", "a b", ""])
def test_a_branch_is_no_option(ledger: Run, study: Path, tmp_path: Path, branch: str) -> None:
    ran = ledger("checkpoint", "--push", tmp_path, f"--branch={branch}", "--study", study)
    assert (ran.status, ran.out) == (2, "")
    assert "is not the name of a branch" in ran.err


def test_a_remote_is_no_option(ledger: Run, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git would run the program that ``--upload-pack`` and ``--receive-pack`` name."""
    monkeypatch.chdir(study)
    before = sorted(study.rglob("*"))
    for remote in ("--upload-pack=touch pwned;", "--receive-pack=touch pwned;", "--exec=touch x"):
        ran = ledger("checkpoint", f"--push={remote}", "--study", study)
        assert ran.status == 5, ran
        assert "git push" in ran.err
    assert sorted(study.rglob("*")) == before
