"""The first part of docs/systems-under-test.md, followed word by word."""

import re
import shutil
from pathlib import Path

import msgspec

from schemas.events.transfer import CaseFinished
from tests.end_to_end.rehearsal_study import ROOT, StudyOnDisk, initialise

PAGE = (ROOT / "docs" / "systems-under-test.md").read_text()


def test_the_tutorial_leads_to_a_report(tmp_path: Path) -> None:
    study = StudyOnDisk(tmp_path / "my-agent", tmp_path / "config")
    initialise(study, "--template", "transfer")
    (study.path / "agent").mkdir()
    shutil.copy(ROOT / "docs" / "examples" / "notes_agent.py", study.path / "agent")
    toml = study.path / "study.toml"
    text = toml.read_text()
    (block, *_) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    toml.write_text(text[: text.index("documents = ")] + block)
    (study.path / "agent" / "AGENTS.md").write_text("Answer in one line.\n")
    words = re.search(r"```sh\n(ledger freeze\n.*?)```", PAGE, re.DOTALL)
    assert words is not None
    for line in words[1].splitlines():
        name, *more = re.findall(r'"[^"]*"|\S+', line)[1:]
        done = study.ledger_command(name, *(word.strip('"') for word in more))
        assert done.status in (0, 8), (line, done.err)
        assert ("not bound      agent/AGENTS.md: " in done.out) == (name == "freeze")
        assert ("agent/AGENTS.md changed: what runs" in done.err) == (name == "run")
        (study.path / "agent" / "AGENTS.md").write_text("Answer in two lines.\n")
    ended = [fact.event for fact in study.facts() if isinstance(fact.event, CaseFinished)]
    assert {event.ended for event in ended} == {"completed"}
    assert len(ended) == 7
    audit = study.ledger_command("audit", "identity")
    assert audit.status == 3 and "notes is not the frozen one: agent/AGENTS.md changed" in audit.out
    scores = study.ledger_command("report", "--json")
    assert scores.status in (0, 8), scores.err
    assert msgspec.json.encode(scores.json)
