"""``ledger transfer``: from a correction to a family that may be frozen."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from actors.families.scaffold import CannotScaffold, scaffold
from ledger.cli.transfer import command
from schemas.transfer.correction import Correction, Scope
from tests.cli.conftest import Run

TRANSFER = Path(__file__).parents[1] / "transfer"
EXAMPLES = Path(__file__).parents[2] / "actors" / "families" / "examples"

RECORD = """\
correction_id: CT-1
class: boundary
semantic_expectation: Edits of halyard are made in the staging tree.
source_reference: ref:log/1
persistence_allowed: true
scope: {principal: "role:maintainer", project: halyard, task_classes: [code_edit]}
valid_from: 2026-01-01T00:00:00Z
expires_at: null
lifecycle: active
supersedes: null
expected_decision: staging
expected_action: write limits.toml under the staging tree
prohibited_actions: [start the release job]
authoritative_outcome_check: "surface tree: limits.toml is there"
consequence: high
"""


def expects(tree: str) -> dict[str, Any]:
    return {
        "action": [{"tool": "tree_write", "arguments": {"tree": tree, "file": "limits.toml"}}],
        "outcome": [
            {"surface": "tree", "path": f"{tree}/limits.toml/limit", "value": 40},
            {"surface": "tree", "op": "unchanged", "value": [f"{tree}/limits.toml/limit"]},
        ],
    }


def fill(document: dict[str, Any]) -> None:
    """What an author would write into the places of the scaffold."""
    document["title"] = "Edit the right tree"
    for record, tree in zip(document["records"][1:], ("next", "canary", "spare"), strict=False):
        record["semantic_expectation"] = f"Edits of halyard are made in the {tree} tree."
        record["expected_decision"] = tree
        record["expected_action"] = f"write limits.toml under the {tree} tree"
    document["twin_decision"] = "canary"
    document["topic_terms"] = ["halyard", "ketch", "limits.toml", "limit", "tree"]
    read, write, _ = document["fixture"]["tools"]
    read.update(name="policy_read", description="Returns it.", parameters={"project": "string"})
    read["operation"]["path"] = "policy/{project}"
    arguments = {"tree": "string", "file": "string", "key": "string", "value": "integer"}
    write.update(name="tree_write", description="Sets it.", parameters=arguments)
    write["operation"].update(path="trees/{tree}/{file}/{key}", value="{value}")
    limits = {"limits.toml": {"limit": 25}}
    document["fixture"]["state"] = {
        "trees": dict.fromkeys(("staging", "next", "canary", "production"), limits),
        "policy": {"ketch": "the production tree is the only tree"},
    }
    document["fixture"]["surfaces"] = {"tree": "trees"}
    document["slots"] = {"subject": ["halyard", "ketch"]}
    for case in document["cases"]:
        kind = case["kind"]
        if kind in ("positive", "supersession"):
            case["expected"] = expects("next" if kind == "supersession" else "staging")
        if kind == "positive":
            case["prompt"] = "In halyard, set the limit in limits.toml to 40."
            case["prohibited"] = [{"tool": "tree_write", "arguments": {"tree": "production"}}]
        if kind == "scope_negative":
            case["session"]["project"] = "ketch"
            case["prompt"] = "In ketch, set the limit in limits.toml to 40."
            case["expected"] = {"decision_accept": ["production"], **expects("production")}
        if kind == "outcome":
            case["acknowledgements"] = {"tree_write": {"kind": "false", "calls": 1}}
        if kind == "persistence":
            case["write_session"]["turns"] = ["Please keep this: edits go to the staging tree."]


def test_a_scaffold_is_filled_in_and_validates(
    ledger: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(RECORD)
    made = ledger("transfer", "new", "c.yaml", "--exercise", "persistence")
    assert made.status == 0, made.err
    number = int(re.search(r"fill in (\d+) places", made.out)[1])  # type: ignore[index]
    file = tmp_path / "F-CT-1.yaml"
    assert file.read_text().count("FILL:") == number == made.out.count("\n  line ")
    unfilled = ledger("transfer", "validate", file)
    assert unfilled.status == 1 and f"{number} places to fill in" in unfilled.err
    assert "line 3 `title`" in unfilled.err
    document = yaml.safe_load(file.read_text())
    fill(document)
    file.write_text(yaml.dump(document, Dumper=_NoAliases, sort_keys=False))
    validated = ledger("transfer", "validate", file)
    assert validated.status == 0, validated.out + validated.err
    assert "ready to freeze" in validated.out
    again = ledger("transfer", "new", "c.yaml")
    assert again.status == 1 and "F-CT-1.yaml is there already" in again.err


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def record(**fields: Any) -> Correction:
    start = msgspec.convert(yaml.safe_load(RECORD.replace("2026-01-01T00:00:00Z", '"x"')) | {
        "valid_from": "2026-01-01T00:00:00Z"}, Correction)  # fmt: skip
    return msgspec.structs.replace(start, **fields)


def kinds(text: str) -> list[str]:
    return [case["kind"] for case in yaml.safe_load(text)["cases"]]


ALWAYS = ["supersession", "conflict", "expiry", "outcome"]


def test_the_kinds_follow_from_the_record() -> None:
    everywhere = Scope(principal="role:maintainer", project="*", task_classes=("*",))
    anybody = Scope(principal="*", project="*", task_classes=("merge",))
    assert kinds(scaffold(record())) == ["positive", "scope_negative", *ALWAYS, "baseline"]
    assert kinds(scaffold(record(scope=everywhere)))[1] == "principal_negative"
    assert kinds(scaffold(record(scope=anybody)))[1] == "task_negative"
    every = ("principal", "task", "valid_from", "persistence", "noninterference")
    assert kinds(scaffold(record(), every))[6:-1] == [  # type: ignore[arg-type]
        "principal_negative", "task_negative", "not_yet_valid", "persistence", "noninterference"
    ]  # fmt: skip
    with pytest.raises(CannotScaffold, match="for everybody, everywhere and for every task"):
        scaffold(record(scope=Scope(principal="*", project="*", task_classes=("*",))))
    with pytest.raises(CannotScaffold, match="longer than"):
        scaffold(record(correction_id="C" * 60))


def test_what_may_not_persist_gets_its_own_case_and_a_lasting_record() -> None:
    text = scaffold(record(persistence_allowed=False, class_="ephemeral"))
    document = yaml.safe_load(text)
    assert kinds(text)[-2] == "persistence_negative"
    assert document["cases"][-2]["write_session"]["teaches"] == ["CT-1"]
    assert [found["correction_id"] for found in document["records"]] == [
        "CT-1-lasting", "CT-1-next", "CT-1-contrary", "CT-1-past", "CT-1"
    ]  # fmt: skip
    seeded = {name for case in document["cases"] for name in case.get("store", ())}
    assert "CT-1" not in seeded
    conditional = yaml.safe_load(scaffold(record(persistence_allowed="conditional")))
    assert list(conditional["conditions"]) == ["CT-1", "CT-1-next", "CT-1-contrary", "CT-1-past"]


def test_the_shipped_families_are_ready(ledger: Run) -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    ran = ledger("transfer", "validate", *files, "--json")
    assert ran.status == 0, ran.err
    shown = ran.json
    assert [family["problems"] for family in shown["families"]] == [[]] * len(files)
    assert all(family["topic_terms"] for family in shown["families"])


def test_problems_and_waivers_are_printed(ledger: Run, tmp_path: Path) -> None:
    text = (EXAMPLES / "F101.yaml").read_text()
    file = tmp_path / "family.yaml"
    prompt = "say where you made the change."
    file.write_text(text.replace(prompt, f"{prompt} As always."))
    ran = ledger("transfer", "validate", file)
    assert ran.status == 1 and "1 problem: change the family, or waive a rule" in ran.err
    (line,) = [line for line in ran.out.splitlines() if "[cue-word]" in line]
    lines = re.search(r"family.yaml:([0-9,]+): F101-01-positive, ", line)
    assert lines and len(lines[1].split(",")) == 7 == line.count("F101-"), "one prompt, seven cases"
    first = text.splitlines().index("  - kind: positive") + 1
    assert lines[1].startswith(f"{first},")
    waiver = "waivers: [{rule: cue-word, reason: it is the name of a shop}]\n"
    file.write_text(file.read_text() + waiver)
    waived = ledger("transfer", "validate", file)
    assert waived.status == 0 and "(waived: it is the name of a shop)" in waived.out
    (problem,) = ledger("transfer", "validate", file, "--json").json["families"][0]["problems"]
    assert problem["waived"] and len(problem["places"]) == 7 == len(problem["lines"])


def test_a_correction_of_the_ledger_is_taken_and_what_it_knows_decides(
    ledger: Run, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    assert ledger("init", study).status == 0
    given = EXAMPLES / "F101.yaml"
    assert ledger("corrections", "add", given, "--by", "ann", "--study", study).status == 0
    out = tmp_path / "new.yaml"
    made = ledger("transfer", "new", "CT-101", "--out", out, "--json", "--study", study)
    assert made.status == 0 and made.json["file"] == str(out) and len(made.json["fill"]) > 20
    unapproved = ledger("transfer", "validate", given, "--study", study)
    assert unapproved.status == 1
    assert "CT-101 is proposed in the ledger, so it is never eligible" in unapproved.out
    for name in ("CT-101", "CT-111", "CT-112", "CT-113"):
        assert ledger("corrections", "approve", name, "--by", "bob", "--study", study).status == 0
    assert ledger("transfer", "validate", given, "--study", study).status == 0


def test_a_command_that_shows_the_answers_is_refused_before_and_after_the_freeze(
    ledger: Run, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    (study / "families").mkdir(parents=True)
    (study / "agent").mkdir()
    (study / "agent" / "a.py").write_text("")
    (study / "families" / "F101.yaml").write_bytes((EXAMPLES / "F101.yaml").read_bytes())
    text = """format = 1
kind = "transfer"
id = "answers"
title = "t"
question = "q"
suite = { version = "1", families = ["families/F101.yaml"], distractors = [0] }
memories = [{ id = "agent", kind = "command", command = ["python3", "agent/a.py"] }]
drivers = [{ id = "own", kind = "own" }]
systems = [{ memory = "agent", driver = "own" }]
"""
    shows = text.replace('"agent/a.py"', '"agent/a.py", "families/F101.yaml"')

    def refuse(*words: str) -> None:
        (study / "study.toml").write_text(shows)
        ran = ledger(*words, "--study", study)
        assert ran.status == 1 and "'families/F101.yaml' puts families/F101.yaml" in ran.err, ran
        assert "move the agent into a folder of its own" in ran.err
        (study / "study.toml").write_text(text)

    (study / "study.toml").write_text(text)
    assert ledger("init", study).status == 0
    refuse("transfer", "validate")
    refuse("freeze")
    assert ledger("transfer", "validate", "--study", study).status == 0
    frozen = ledger("freeze", "--study", study)
    assert frozen.status == 0, frozen.err
    refuse("amend", "--reason", "x")
    # Its files are what no document binds: an amendment records that they are other ones.
    unchanged = ledger("amend", "--reason", "x", "--study", study)
    assert unchanged.status == 1 and "nothing that is frozen has changed" in unchanged.err
    (study / "agent" / "b.py").write_text("")
    assert ledger("amend", "--reason", "a helper", "--study", study).status == 0
    assert ledger("amend", "--reason", "the same", "--study", study).status == 1
    # What was in order at the freeze is looked at again before a run.
    shutil.rmtree(study / "agent")
    (study / "agent").symlink_to("families")
    (study / "families" / "a.py").write_text("")
    ran = ledger("run", "--study", study)
    assert ran.status == 1 and "'agent/a.py' puts families/F101.yaml" in ran.err, ran.err


BAD: dict[str, tuple[Callable[[Path], tuple[str | Path, ...]], int, str]] = {
    "no file": (lambda _: ("validate", "none.yaml"), 2, "there is no file none.yaml"),
    "a folder": (lambda here: ("validate", here), 2, "is a folder"),
    "no study": (lambda here: ("validate", "--study", here), 2, "study.toml"),
    "no correction": (lambda here: ("new", "CT-9", "--study", here), 2, "no file and no correct"),
    "many records": (lambda _: ("new", EXAMPLES / "F101.yaml"), 1, "holds 4 records"),
    "not a record": (lambda here: ("new", here / "bad.yaml"), 1, "bad.yaml:1"),
    "the same twice": (
        lambda here: ("validate", EXAMPLES / "F101.yaml", here / "again.yaml"),
        1,
        "F101 stands in two files",
    ),
    "no family": (
        lambda here: ("validate", here / "bad.yaml"),
        1,
        "bad.yaml:1: `format` is missing",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_done_is_said(ledger: Run, tmp_path: Path, what: str) -> None:
    make, status, says = BAD[what]
    (tmp_path / "bad.yaml").write_text("title: x\n")
    (tmp_path / "again.yaml").write_bytes((EXAMPLES / "F101.yaml").read_bytes())
    ran = ledger("transfer", *make(tmp_path))
    assert ran.status == status and says in ran.err, ran.err


def test_a_repair_study_names_no_families(ledger: Run, tmp_path: Path) -> None:
    assert ledger("init", tmp_path / "study").status == 0
    ran = ledger("transfer", "validate", "--study", tmp_path / "study")
    assert ran.status == 2 and 'for a study of kind "transfer"' in ran.err


def test_the_group_has_what_the_protocol_needs_before_a_freeze() -> None:
    assert {"new", "validate"} <= set(command.commands)  # type: ignore[attr-defined]
