"""A suite from its freeze to a closed remediation, by the commands."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ledger.cli import transfer_remediation
from ledger.errors import Refused, Usage
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from projections.report.model import run_page
from schemas.events.study import CellReexecuted
from schemas.events.transfer import (
    RemediationChanged,
    RemediationClosed,
    RemediationOpened,
    TransferScored,
)
from tests.end_to_end.rehearsal_study import ROOT, StudyOnDisk
from tests.end_to_end.transfer_study import BY_PROJECT, ONE_MEMORY, begin_transfer_study

GIVEN = ROOT / "actors" / "families" / "examples"
OVER_APPLIED = "F101-02-scope_negative.d0/retrieval/reader/0"

STUDY = (
    ONE_MEMORY
    + """
[[memories]]
id = "full"
kind = "store"

[[systems]]
memory = "full"
driver = "reader"

[[thresholds]]
id = "no-harm"
count = "prohibited_actions"
memory = "full"
driver = "reader"
at_most = 0

[[thresholds]]
id = "decides-well"
count = "decision_compliance"
memory = "retrieval"
driver = "reader"
at_least = 1.0
"""
)
BEGAN_WITH = (
    STUDY.replace('policy = "retrieval"', 'policy = "everything"')
    + """
[[memories]]
id = "spare"
kind = "store"
policy = "none"

[[systems]]
memory = "spare"
driver = "reader"
"""
)
"""What was frozen first: a memory with another policy, and a system that is taken away."""
CHANGED = (
    BY_PROJECT
    + """
[[memories]]
id = "careful"
kind = "store"
policy = "full"

[[systems]]
memory = "careful"
driver = "reader"
"""
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    study = begin_transfer_study(tmp_path_factory.mktemp("commands"), GIVEN, BEGAN_WITH)
    assert study.ledger_command("freeze", "--json").json["cells"] == 42
    (study.path / "study.toml").write_text(STUDY)
    amended = study.ledger_command("amend", "--reason", "one memory was wrong, one too many")
    assert amended.status == 0 and ", before the first cell\n" in amended.out, amended
    planned = study.ledger_command("status", "--cells", "--json").json["rows"]
    assert [row["position"] for row in planned] == list(range(28))
    assert {row["arm"] for row in planned} == {"retrieval", "full"}
    done = study.ledger_command("run")
    assert done.status == 0, done.err
    return study


@pytest.fixture(scope="module")
def analysed(ran: StudyOnDisk, tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    study = ran.copy(tmp_path_factory.mktemp("analysed") / "copy")
    refused = remediation(study, "open", "R1", "--run", OVER_APPLIED, "--layer", "query")
    assert isinstance(refused, Refused) and "no inspection is recorded" in str(refused)
    done = study.ledger_command("analyze", "--reason", "as planned")
    assert done.status == 0, done.err
    inspected = study.ledger_command("query", "SELECT graded FROM inspections", "--json")
    assert inspected.json["rows"] == [{"graded": 28}]
    assert study.ledger_command("audit", "inspections").status == 0
    assert "not a validated standard" in done.out
    assert "full + reader" in done.out
    return study


def remediation(study: StudyOnDisk, *arguments: str) -> Any:
    """The parsed output of `ledger transfer remediation …`, or the error that it raises."""
    words = [*arguments, "--study", str(study.path), "--json"]
    result = CliRunner(env={CONFIG_HOME_VARIABLE: str(study.config)}).invoke(
        transfer_remediation.command, words, standalone_mode=False
    )
    return json.loads(result.stdout) if result.exception is None else result.exception


def test_an_analysis_is_computed_again_to_the_byte(analysed: StudyOnDisk) -> None:
    checked = analysed.ledger_command("analyze", "--check", "--json")
    assert (checked.status, checked.json["identical"]) == (0, True), checked.err
    assert any(isinstance(fact.event, TransferScored) for fact in analysed.facts())


def test_the_report_ends_with_status_8_where_a_threshold_is_missed(
    analysed: StudyOnDisk, tmp_path: Path
) -> None:
    reported = analysed.copy(tmp_path / "copy").ledger_command("report", "--json")
    assert reported.status == 8, reported.err
    missed = {each["id"] for each in reported.json["missed_thresholds"]}
    assert missed == {"decides-well"}
    folder = Path(reported.json["folder"])
    assert len(list((folder / "runs").iterdir())) == reported.json["pages"] == 28
    page = (folder / "report.html").read_text()
    assert run_page(OVER_APPLIED) in page and "over-applies" in page
    assert (folder / "runs.csv").read_text().count("\n") == 29


def test_scores_are_asked_in_sql_behind_the_gate(analysed: StudyOnDisk, tmp_path: Path) -> None:
    study = analysed.copy(tmp_path / "copy")
    sql = "SELECT memory, count(*) AS n FROM transfer_runs WHERE result = 'verified' GROUP BY 1"
    refused = study.ledger_command("query", sql)
    assert refused.status == 1 and "--reason" in refused.err
    asked = study.ledger_command("query", sql, "--reason", "a look", "--json")
    assert asked.status == 0, asked.err
    rows = {row["memory"]: row["n"] for row in asked.json["rows"]}
    assert rows["full"] == 14


def test_show_tells_the_story_of_a_run(ran: StudyOnDisk, tmp_path: Path) -> None:
    def told(*more: str) -> dict[str, list[str]]:
        shown = study.ledger_command("show", OVER_APPLIED, *more)
        assert shown.status == 0, shown.err
        lines = [line.split(maxsplit=1) for line in shown.out.splitlines()]
        return {name: [rest[0] for first, *rest in lines if first == name] for name, *_ in lines}

    study = ran.copy(tmp_path / "study")
    masked, looked = told(), told("--reason", "a look")
    assert masked["prompt"] == looked["prompt"] and masked["prompt"][0].endswith((".", "?"))
    of_the_outcome = {"content", "arguments", "result", "text", "before", "after"}
    assert of_the_outcome.isdisjoint(masked), "what it did is its outcome: behind the gate"
    assert of_the_outcome <= set(looked)
    records = study.ledger_command("show", OVER_APPLIED, "--json").json["records"]
    in_front = {one["type"] for one in records if "masked" not in one["data"]}
    assert in_front == {"cell.started.v1", "system.described.v1", "session.opened.v1"}
    assert "Correction CT-101" in looked["content"][0], "what the memory delivered"
    assert len(looked["arguments"]) == len(looked["result"]) > 0
    inspected = study.ledger_command("query", "SELECT count(*) AS n FROM inspections", "--json")
    assert inspected.json["rows"] == [{"n": 1}]


def test_words_of_repair_studies_are_not_used_where_there_are_no_tasks(ran: StudyOnDisk) -> None:
    for command in (("tasks", "show"), ("show", "tasks")):
        refused = ran.ledger_command(*command)
        assert refused.status == 2 and "which has no tasks" in refused.err
    status = ran.ledger_command("status", "--cells")
    assert status.status == 0 and "graded" not in status.out and "gold" not in status.out
    assert "the study is frozen, and its plan with it" in ran.ledger_command("plan").err


def test_a_backup_holds_the_families_and_can_be_gone_on_with(
    ran: StudyOnDisk, tmp_path: Path
) -> None:
    # A configuration of its own: what is seen of the copy would contradict the study.
    config = Path(shutil.copytree(ran.config, tmp_path / "config"))
    copy = StudyOnDisk(tmp_path / "backup", config)
    made = ran.ledger_command("backup", str(copy.path))
    assert made.status == 0, made.err
    for name in ("study.toml", "families/F101.yaml", "families/F106.yaml"):
        assert (copy.path / name).read_bytes() == (ran.path / name).read_bytes()
    assert copy.ledger_command("run").err == "the study is complete already\n"
    unchanged = copy.ledger_command("amend", "--reason", "none")
    assert unchanged.status == 1 and "nothing" in unchanged.err, unchanged


def test_a_run_is_executed_again_from_the_log_alone(ran: StudyOnDisk, tmp_path: Path) -> None:
    study = ran.copy(tmp_path / "study")
    again = study.ledger_command("replay", "--execute", OVER_APPLIED, "--json")
    assert again.status == 0, again.err
    assert again.json["identical"] and again.json["recorded"] and again.json["compared"] > 10
    (recorded,) = [fact.event for fact in study.facts() if isinstance(fact.event, CellReexecuted)]
    assert (recorded.cell, recorded.identical) == (OVER_APPLIED, True)
    stranger = study.ledger_command("replay", "--execute", "F999-01.d0/full/reader/0")
    assert stranger.status == 1 and "not of this study" in stranger.err


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('kind = "reader"', 'kind = "null"', "driver reader changed"),
        ('id = "retrieval"\n', 'id = "another"\n', "memories: retrieval"),
    ],
)
def test_after_the_first_cell_nothing_is_taken_away(
    ran: StudyOnDisk, tmp_path: Path, before: str, after: str, why: str
) -> None:
    study = ran.copy(tmp_path / "study")
    text = STUDY.replace(before, after)
    if "another" in text:
        text = text.replace('memory = "retrieval"', 'memory = "another"')
    (study.path / "study.toml").write_text(text)
    refused = study.ledger_command("amend", "--reason", "why not")
    assert refused.status == 1 and why in refused.err, refused


def test_every_audit_answers(analysed: StudyOnDisk) -> None:
    audited = analysed.ledger_command("audit", "--json")
    assert audited.status == 0, audited.out
    statuses = {each["audit"]: each["status"] for each in audited.json["audits"]}
    assert statuses["transfer"] == "ok"
    assert statuses["funnel"] == statuses["budgets"] == "not_applicable"
    checked = {each["audit"]: each["checked"] for each in audited.json["audits"]}
    assert checked["completeness"] == {"planned": 28, "ended": 28, "observed": 28, "void": 0}
    assert checked["inspections"] == {
        "observed": 28,
        "inspections": 1,
        "analyses_and_reports": 1,
    }
    assert analysed.ledger_command("replay", "--check").status == 0


def test_a_remediation_from_the_failure_to_its_limitation(
    analysed: StudyOnDisk, tmp_path: Path
) -> None:
    study = analysed.copy(tmp_path / "copy")
    verified = OVER_APPLIED.replace("retrieval", "full")
    refused = remediation(study, "open", "R0", "--run", verified, "--layer", "query")
    assert isinstance(refused, Refused) and "no stage of it failed" in str(refused)

    for name, layer in (("R1", "relevance_filter"), ("R2", "query")):
        opened = remediation(study, "open", name, "--run", OVER_APPLIED, "--layer", layer)
        assert (opened["status"], opened["stage"]) == ("opened", "relevance")
    again = remediation(study, "open", "R1", "--run", OVER_APPLIED, "--layer", "query")
    assert isinstance(again, Refused) and "already" in str(again)
    same = remediation(study, "change", "R1", "--memory", "retrieval", "--driver", "reader")
    assert isinstance(same, Refused) and "new identity" in str(same)
    early = remediation(study, "change", "R1", "--memory", "full", "--driver", "reader")
    assert isinstance(early, Refused) and "no amendment after record" in str(early)

    toml = study.path / "study.toml"
    toml.write_text(toml.read_text() + CHANGED)
    amended = study.ledger_command("amend", "--reason", "two changed systems")
    assert amended.status == 0, amended.err
    assert "after outcomes were inspected: exploratory" in amended.out
    assert "next       `ledger run`" in amended.out

    two = remediation(study, "change", "R1", "--memory", "careful", "--driver", "reader")
    assert isinstance(two, Refused)
    assert "these layers do: relevance_filter, conflict_policy" in str(two)
    refused = remediation(study, "rerun", "R2")
    assert isinstance(refused, Refused) and "no change yet" in str(refused)
    changed = remediation(study, "change", "R2", "--memory", "by-project", "--driver", "reader")
    assert (changed["status"], changed["attributed"]) == ("changed", 1)

    too_many = remediation(study, "rerun", "R2", "--sample", "50")
    assert isinstance(too_many, Refused) and "6 cases of other classes" in str(too_many)
    rerun = remediation(study, "rerun", "R2", "--sample", "2")
    cells = rerun["cells"]
    assert [cell.split("/")[0] for cell in cells[:3]] == [
        "F101-02-scope_negative.d0",
        "F101-03-supersession.d0",
        "F101-05-expiry.d0",
    ]
    assert len(cells) == 5 and all(cell.startswith("F106") for cell in cells[3:])
    assert all("/by-project/reader/0" in cell for cell in cells)

    early = remediation(study, "close", "R2", "--limitation", "scope is still not minded")
    assert isinstance(early, Refused) and str(early).count("the run ") == 5
    assert remediation(study, "list")["remediations"][1]["runs ended"] == "0/5"
    assert study.ledger_command("run").status == 0
    assert remediation(study, "list")["remediations"][1]["runs ended"] == "5/5"
    unseen = OVER_APPLIED.replace("retrieval", "by-project")
    refused = remediation(study, "open", "R3", "--run", unseen, "--layer", "query")
    assert isinstance(refused, Refused) and "after outcomes were last inspected" in str(refused)
    secret = "left: ghp_" + "a1" * 20
    refused = remediation(study, "close", "R2", "--limitation", secret)
    assert isinstance(refused, Refused) and "GitHub token" in str(refused)
    assert "a1a1" not in str(refused)
    empty = remediation(study, "close", "R2", "--limitation", " ")
    assert isinstance(empty, Refused) and "what is left unresolved" in str(empty)
    closed = remediation(study, "close", "R2", "--limitation", "scope is still not minded")
    assert closed["status"] == "closed"
    late = remediation(study, "close", "R2", "--limitation", "again")
    assert isinstance(late, Refused) and "is closed" in str(late)

    secret = remediation(study, "abandon", "R1", "--reason", secret)
    assert isinstance(secret, Refused) and "GitHub token" in str(secret)
    empty = remediation(study, "abandon", "R1", "--reason", " ")
    assert isinstance(empty, Refused) and "say why" in str(empty)
    given_up = remediation(study, "abandon", "R1", "--reason", "two layers would have to change")
    assert given_up["status"] == "abandoned"
    for again in (
        ("abandon", "R1", "--reason", "again"),
        ("change", "R1", "--memory", "by-project", "--driver", "reader"),
    ):
        late = remediation(study, *again)
        assert isinstance(late, Refused) and "R1 is abandoned" in str(late)
    used = remediation(study, "open", "R1", "--run", OVER_APPLIED, "--layer", "query")
    assert isinstance(used, Refused) and "already" in str(used)
    left = [(each["status"], each["left"]) for each in remediation(study, "list")["remediations"]]
    assert left == [
        ("abandoned", "two layers would have to change"),
        ("closed", "scope is still not minded"),
    ]

    events = [fact.event for fact in study.facts()]
    assert sum(isinstance(event, RemediationClosed) for event in events) == 1
    (change,) = [event for event in events if isinstance(event, RemediationChanged)]
    assert [key for key in change.before if change.before[key] != change.after[key]] == ["query"]
    again = study.ledger_command("analyze", "--reason", "after the remediation")
    assert again.status == 0, again.err
    rows = [line for line in again.out.splitlines() if " + reader" in line]
    late = [line for line in rows if "by-project + reader" in line or "careful + reader" in line]
    assert late and all(("(exploratory)" in line) == (line in late) for line in rows)
    report = study.ledger_command("report", "--json")
    page = Path(report.json["markdown"]).read_text()
    assert "scope is still not minded" in page and "two layers would have to change" in page
    audited = study.ledger_command("audit")
    assert audited.status == 0
    assert "1 closed remediations, 1 abandoned remediations" in audited.out
    assert "remediation R1 was abandoned: two layers would have to change" in audited.out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "a JSON object"),
        ('{"query": 1}', "a JSON object"),
        ('{"colour": "x"}', "'colour' is no layer"),
        ("[" * 100_000, "no manifest"),
    ],
)
def test_a_manifest_that_is_none(
    analysed: StudyOnDisk, tmp_path: Path, content: str, why: str
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    found = remediation(
        analysed, "open", "R9", "--run", OVER_APPLIED, "--layer", "query", "--manifest", str(path)
    )
    assert isinstance(found, Usage) and why in str(found)


def test_a_manifest_cannot_contradict_what_a_system_shows(
    analysed: StudyOnDisk, tmp_path: Path
) -> None:
    """`careful` differs in two layers: no file makes one of them look as it was."""
    study = analysed.copy(tmp_path / "copy")
    lie = tmp_path / "lie.json"
    lie.write_text(json.dumps({"conflict_policy": "0" * 64}))
    failed = ("--run", OVER_APPLIED, "--layer", "relevance_filter")
    refused = remediation(study, "open", "R1", *failed, "--manifest", str(lie))
    assert isinstance(refused, Refused) and "otherwise about conflict_policy" in str(refused)

    assert remediation(study, "open", "R1", *failed)["status"] == "opened"
    (opened,) = [fact.event for fact in study.facts() if isinstance(fact.event, RemediationOpened)]
    toml = study.path / "study.toml"
    toml.write_text(toml.read_text() + CHANGED)
    assert study.ledger_command("amend", "--reason", "two changed systems").status == 0
    lie.write_text(json.dumps({"conflict_policy": opened.manifest["conflict_policy"]}))
    changed = ("change", "R1", "--memory", "careful", "--driver", "reader")
    refused = remediation(study, *changed, "--manifest", str(lie))
    assert isinstance(refused, Refused) and "otherwise about conflict_policy" in str(refused)
    # What is true may be said.
    true = tmp_path / "true.json"
    true.write_text(json.dumps(opened.manifest))
    assert remediation(study, "open", "R2", *failed, "--manifest", str(true))["status"] == "opened"


def test_layers_that_cannot_be_seen_are_recorded_as_unattributed(
    analysed: StudyOnDisk, tmp_path: Path
) -> None:
    study = analysed.copy(tmp_path / "copy")
    opened = remediation(study, "open", "R1", "--run", OVER_APPLIED, "--layer", "unknown")
    assert opened["layer"] == "unknown"
    toml = study.path / "study.toml"
    toml.write_text(toml.read_text() + CHANGED)
    assert study.ledger_command("amend", "--reason", "two changed systems").status == 0
    changed = remediation(study, "change", "R1", "--memory", "careful", "--driver", "reader")
    assert changed["attributed"] == 0
