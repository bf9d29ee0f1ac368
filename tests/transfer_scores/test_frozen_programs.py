"""A file that no document binds changed after the freeze: found, listed, exploratory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.study.analysis import Recorded
from actors.transfer.analysis import report
from projections.audits.run import run_audits
from projections.fold import fold
from projections.transfer.frozen_programs import FrozenPrograms
from schemas.base import Event
from schemas.events.study import AmendmentRecorded
from schemas.events.transfer import FamiliesFrozen, SystemDescribed
from tests.transfer_scores.recorded_story import record
from tests.transfer_scores.test_transfer_analysis import analysed
from tests.transfer_scores.transfer_story import Story

AGENT = {"agent/main.py": "1" * 64, "agent/rules.py": "2" * 64}
OTHER = {**AGENT, "agent/rules.py": "3" * 64, "agent/more.py": "4" * 64}
WHAT = "agent/more.py is new, agent/rules.py changed"


def replaced(story: Story, kind: type[Event], number: int, **fields: Any) -> None:
    facts = [fact for fact in story.facts if isinstance(fact.event, kind)]
    event = msgspec.structs.replace(facts[number].event, **fields)
    story.facts[facts[number].seq] = msgspec.structs.replace(facts[number], event=event)


def told(
    *ran_with: Mapping[str, str],
    recorded: bool = True,
    versions: Mapping[int, str] = {},
    amended: tuple[Any, Mapping[str, str]] | None = None,
) -> Story:
    """Runs of a command, each with the files that it began with."""
    story = Story()
    if recorded:
        replaced(story, FamiliesFrozen, 0, programs=story.put({"full": AGENT}))
    if amended is not None:
        finding, files = amended
        amendment = AmendmentRecorded(
            reason="a helper",
            changes_claim=False,
            finding=finding,
            inspections=(),
            changed=(),
            study=story.put(story.study_toml),
            programs=story.put({"full": files}),
        )
        story.add("study", amendment)
    for number, sources in enumerate(ran_with):
        case = story.family.cases[number]
        story.run(case.case_id)
        manifest = {
            "kind": "command",
            "id": "full",
            "settings": {"version": versions.get(number, "1")},
            "sources": sources,
        }
        replaced(story, SystemDescribed, number, memory=story.put(manifest))
    return story


def others(story: Story) -> list[tuple[str, int]]:
    found = fold(FrozenPrograms(story.read), story.facts).others
    return [(each.what, each.amendment) for each in found.values()]


def test_a_helper_that_changed_between_two_runs_is_found() -> None:
    assert others(told(AGENT, AGENT)) == []
    assert others(told(AGENT, OTHER, AGENT)) == [(WHAT, -1)]
    # Nothing was recorded at the freeze: the first run says what it was.
    assert others(told(OTHER, OTHER, recorded=False)) == []
    assert others(told(OTHER, AGENT, recorded=False)) == [
        ("agent/more.py is gone, agent/rules.py changed", -1)
    ]


def test_another_version_of_the_same_files_is_found() -> None:
    (found,) = others(told(AGENT, AGENT, versions={1: "2"}))
    assert found == ("it calls its `version` otherwise than in its first run", -1)


def test_an_amendment_moves_what_is_frozen_until_the_first_cell_alone() -> None:
    assert others(told(OTHER, amended=("before_first_cell", OTHER))) == []
    ((what, amendment),) = others(told(OTHER, amended=("after_first_cell", OTHER)))
    assert (what, amendment) == (WHAT, 3)
    third = {**OTHER, "agent/rules.py": "5" * 64}
    assert others(told(third, amended=("after_first_cell", OTHER))) == [(WHAT, -1)]


def test_another_program_at_this_moment_is_said_before_it_runs() -> None:
    programs = fold(FrozenPrograms(told().read), told().facts)
    assert programs.changed({"full": AGENT, "elsewhere": OTHER}) == []
    assert programs.changed({"full": OTHER}) == [
        "full: agent/more.py is new",
        "full: agent/rules.py changed",
    ]


@pytest.mark.parametrize("amended", [None, ("after_first_cell", OTHER)])
def test_it_is_a_finding_a_deviation_and_exploratory(tmp_path: Path, amended: Any) -> None:
    context = record(told(AGENT, OTHER, OTHER, amended=amended), tmp_path / "study")
    (audit,) = run_audits(context.log, context.artifacts.get, ["identity"])
    listed = [each for each in audit.findings if "program of full is not the frozen" in each.text]
    assert {each.severity for each in listed} == {"note" if amended else "violation"}
    assert len(listed) == 2 and all(WHAT in each.text for each in listed)
    results = analysed(context)
    assert [each.label for each in results.systems][0] == "full + reader (exploratory)"
    assert len(results.other_programs) == 2
    content = context.artifacts.put(msgspec.json.encode(results), "application/json")
    files = report(context, Recorded(0, results, content, root="", checkpoint=""), False)
    page = files["report.md"].decode()
    assert "runs of a program that is not the frozen one: exploratory" in page
    assert f"2 runs of full: {WHAT}" in page
    assert "Exploratory, since runs did not have the program that was frozen: full" in page
