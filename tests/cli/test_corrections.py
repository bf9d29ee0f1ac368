"""``ledger corrections`` on a study: the way from a file to a decided dispute."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run

SECRET = "ghp_" + "a1B2" * 9


def record(name: str, decision: str, **changes: str) -> str:
    fields = {
        "correction_id": name,
        "class": "boundary",
        "semantic_expectation": f"Edits are made in the {decision} tree.",
        "source_reference": f"ref:log/{name}",
        "persistence_allowed": "true",
        "scope": '{principal: "role:maintainer", project: halyard, task_classes: [code_edit]}',
        "valid_from": "2026-01-01T00:00:00Z",
        "expires_at": "null",
        "lifecycle": "active",
        "supersedes": "null",
        "expected_decision": decision,
        "expected_action": f"write under the {decision} tree",
        "prohibited_actions": "[start the release job]",
        "authoritative_outcome_check": '"surface tree: it is there"',
        "consequence": "high",
        **changes,
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


@pytest.fixture
def begun(ledger: Run, tmp_path: Path) -> Path:
    study = tmp_path / "study"
    assert ledger("init", study).status == 0
    for name, decision in (("CT-1", "staging"), ("CT-2", "canary")):
        (tmp_path / f"{name}.yaml").write_text(record(name, decision))
    return study


def test_from_a_file_to_a_decided_dispute(ledger: Run, begun: Path, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        ran = ledger("corrections", *words, "--study", begun)
        assert ran.status == 0, ran.err
        return ran.out

    def states(*words: str) -> dict[str, str]:
        ran = ledger("corrections", "list", "--json", *words, "--study", begun)
        return {row["correction_id"]: row["state"] for row in ran.json["corrections"]}

    files = [str(tmp_path / f"{name}.yaml") for name in ("CT-1", "CT-2")]
    assert "proposed: CT-1, CT-2" in run("add", *files, "--by", "ann")
    refused = ledger("corrections", "approve", "CT-1", "--by", "ann", "--study", begun)
    assert refused.status == 1 and "somebody else approves it" in refused.err
    run("approve", "CT-1", "--by", "bob")
    run("approve", "CT-2", "--by", "bob")
    now = ("--now", "2026-07-01T09:00:00Z")
    assert states(*now) == {"CT-1": "disputed", "CT-2": "disputed"}
    run("dispute", "CT-1", "--against", "CT-2", "--reason", "two trees")
    shown = ledger("corrections", "show", "CT-1", "--json", "--study", begun).json
    before = shown["transitions"][-1]["seq"]
    run("resolve", "CT-2", "CT-1", "--by", "bob", "--reason", "asked the owner")
    assert states(*now) == {"CT-1": "superseded", "CT-2": "active"}
    assert states(*now, "--at", str(before)) == {"CT-1": "disputed", "CT-2": "disputed"}
    assert states("--now", "2025-12-31T00:00:00Z")["CT-2"] == "active, not yet valid"
    assert states() == {"CT-1": "approved", "CT-2": "approved"}
    run("expire", "CT-2", "--at", "2026-06-01T00:00:00Z", "--reason", "it moved", "--by", "bob")
    assert states(*now)["CT-2"] == "expired"
    run("withdraw", "CT-1", "--reason", "never mind", "--by", "bob")
    text = run("show", "CT-1")
    for word in ("semantic_expectation", "withdrawn", "superseded by", "CT-2", "never mind"):
        assert word in text
    assert "CT-2" in run("list")


def test_no_secret_reaches_anything_that_is_kept(ledger: Run, begun: Path, tmp_path: Path) -> None:
    file = tmp_path / "leak.yaml"
    file.write_text(record("CT-9", "staging", semantic_expectation=f"use {SECRET} there"))
    refused = ledger("corrections", "add", file, "--by", "ann", "--study", begun)
    assert refused.status == 1
    assert f"{file}:3: `semantic_expectation`: looks like it holds a GitHub token" in refused.err
    ledger("corrections", "add", tmp_path / "CT-1.yaml", "--by", "ann", "--study", begun)
    named = ledger(
        "corrections", "withdraw", "CT-1", "--reason", f"leaked {SECRET}", "--study", begun
    )
    assert named.status == 1 and "`reason` looks like it holds a GitHub token" in named.err
    assert SECRET not in refused.err + refused.out + named.err + named.out
    exported = tmp_path / "export"
    assert ledger("export", exported, "--study", begun).status == 0
    for folder in (begun, exported):
        kept = [path for path in folder.rglob("*") if path.is_file()]
        assert kept and not any(SECRET.encode() in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("add", "no-such-file.yaml", "--by", "ann"), 2, "there is no file no-such-file.yaml"),
        (("add", "CT-1.yaml"), 2, "--by"),
        (("approve", "CT-7", "--by", "bob"), 1, "no correction CT-7; there are: none yet"),
        (("approve", "a b", "--by", "bob"), 2, "is not an identifier"),
        (("approve", "CT-7", "--by", ""), 2, "`approver`"),
        (("show", "CT-7"), 2, "there is no correction 'CT-7'"),
        (("list", "--now", "yesterday"), 2, "write it in UTC"),
        (("expire", "CT-7", "--at", "2026-02-31T00:00:00Z", "--reason", "x"), 2, "no instant"),
        (("supersede", "CT-7", "--with", "CT-8", "--reason", "x"), 1, "no correction CT-7"),
        (("dispute", "CT-7", "--against", "CT-8", "--reason", ""), 2, "`reason`"),
        (("resolve", "CT-7", "CT-8", "--by", "bob", "--reason", "x"), 1, "no correction CT-7"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_said(
    ledger: Run, begun: Path, words: tuple[str, ...], status: int, says: str
) -> None:
    ran = ledger("corrections", *words, "--study", begun)
    assert ran.status == status and says in ran.err, ran.err
    assert ran.out == ""
