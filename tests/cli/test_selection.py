"""Tasks are frozen as they were selected: no other settings, no second try, no later funnel."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import PlanPrepared, StudyFrozen, TasksFrozen
from tests.cli.conftest import Ran, Run, facts_of
from tests.end_to_end.rehearsal_study import StudyOnDisk
from tests.projections.tiny_study import of_type

EDITS = {
    "tasks.not_before": ('not_before = "2023-01-01"', 'not_before = "2019-01-01"'),
    "tasks.whole_suite_s": ("whole_suite_s = 0", "whole_suite_s = 1"),
    "tasks.part_of_suite": ('part_of_suite = "file"', 'part_of_suite = "folder"'),
    "platform.python": ('python = "3.11"', 'python = "3.12"'),
    "platform.goarch": ('goarch = "amd64"', 'goarch = "arm64"'),
    "repositories.layout.test_roots": ('test_roots = ["tests"]', 'test_roots = ["tests", "more"]'),
    "repositories.layout.requirements": ("requirements = []", 'requirements = ["more.txt"]'),
    "repositories.fallback_requirements": (
        'language = "python"',
        'language = "python"\nfallback_requirements = ["head"]',
    ),
    "repositories.head": ('\nhead = "', '\nhead = "0'),
}
"""By key: what stands in study.toml and what is put there."""


def edited(text: str, key: str) -> str:
    old, new = EDITS[key]
    assert text.count(old) == 1
    if key == "repositories.head":
        start = text.index(old) + len(old)
        return text[: start - len(old)] + new + text[start : start + 39] + text[start + 40 :]
    return text.replace(old, new)


class Study:
    """A copy of the validated rehearsal and its study.toml."""

    def __init__(self, on_disk: StudyOnDisk, ledger: Run) -> None:
        self.path = on_disk.path
        self._ledger = ledger
        self.text = self.toml.read_text()

    @property
    def toml(self) -> Path:
        return self.path / "study.toml"

    def run(self, words: str) -> Ran:
        return self._ledger(*words.split(), "--study", self.path)

    def succeed(self, words: str) -> str:
        ran = self.run(words)
        assert ran.status == 0, ran.err
        return ran.out

    def refused(self, words: str, *says: str) -> None:
        """The command says so with status 1 and records nothing but that."""
        before = self.counts()
        ran = self.run(words)
        assert ran.status == 1, ran
        for part in says:
            assert part in ran.err
        assert self.counts() == before

    def counts(self) -> list[int]:
        facts = facts_of(self.path)
        kinds = (RepositoryMined, CandidateValidated, TasksFrozen, PlanPrepared, StudyFrozen)
        return [sum(1 for _ in of_type(facts, kind)) for kind in kinds]


@pytest.fixture
def validated(
    validated_study: StudyOnDisk, tmp_path: Path, ledger: Run, monkeypatch: pytest.MonkeyPatch
) -> Study:
    copy = validated_study.copy(tmp_path / "copy")
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(copy.config))
    return Study(copy, ledger)


@pytest.fixture
def tasks_frozen(validated: Study) -> Iterator[Study]:
    validated.succeed("tasks freeze")
    yield validated


@pytest.mark.parametrize("key", EDITS)
def test_tasks_are_not_frozen_under_other_settings(validated: Study, key: str) -> None:
    validated.toml.write_text(edited(validated.text, key))
    validated.refused("tasks freeze", key, "`ledger tasks mine`", "`ledger tasks validate`")
    validated.refused("tasks validate", key, "`ledger tasks mine`")
    validated.toml.write_text(validated.text)
    assert validated.succeed("tasks freeze").startswith("1 task frozen")


def test_nothing_is_planned_or_frozen_under_other_settings(tasks_frozen: Study) -> None:
    tasks_frozen.succeed("plan")
    for key in EDITS:
        tasks_frozen.toml.write_text(edited(tasks_frozen.text, key))
        for words in ("plan", "freeze"):
            tasks_frozen.refused(words, key, "put it back, or `ledger tasks mine`")
    more = tasks_frozen.text.replace("tasks = 1\n", "tasks = 2\n")
    tasks_frozen.toml.write_text(more)
    tasks_frozen.refused(
        "freeze",
        "repositories.tasks of R001 was 1 and is 2",
        "put it back, or `ledger tasks freeze` and `ledger plan` again",
    )
    tasks_frozen.toml.write_text(tasks_frozen.text)
    tasks_frozen.succeed("freeze")


def test_frozen_tasks_are_not_selected_a_second_time(tasks_frozen: Study) -> None:
    for words in ("tasks mine", "tasks validate"):
        tasks_frozen.refused(words, "the tasks are frozen", "`ledger plan` goes on")
    audited = tasks_frozen.succeed("tasks audit --json")
    # Another selection before the freeze is another selection, and the old one is told until then.
    tasks_frozen.toml.write_text(edited(tasks_frozen.text, "tasks.not_before"))
    out = tasks_frozen.succeed("tasks mine")
    assert "next: `ledger tasks validate`" in out
    assert tasks_frozen.succeed("tasks audit --json") == audited
    tasks_frozen.toml.write_text(tasks_frozen.text)
    tasks_frozen.succeed("plan")
    tasks_frozen.succeed("freeze")
    for words in ("tasks mine", "tasks validate", "tasks freeze", "plan", "freeze"):
        tasks_frozen.refused(words, "the study is frozen", "`ledger init`")
    assert tasks_frozen.succeed("tasks audit --json") == audited
    assert tasks_frozen.succeed("audit")


def test_no_amendment_says_that_frozen_tasks_were_selected_otherwise(tasks_frozen: Study) -> None:
    tasks_frozen.succeed("plan")
    tasks_frozen.succeed("freeze")
    texts = {key: edited(tasks_frozen.text, key) for key in EDITS}
    texts["repositories.tasks"] = tasks_frozen.text.replace("tasks = 1\n", "tasks = 2\n")
    for key, text in texts.items():
        tasks_frozen.toml.write_text(text)
        tasks_frozen.refused("amend --reason x", "the tasks are frozen, and " + key)
    # Where the repository lies is another matter.
    url = 'url = "example-repository"'
    assert url in tasks_frozen.text
    tasks_frozen.toml.write_text(tasks_frozen.text.replace(url, 'url = "elsewhere"'))
    tasks_frozen.succeed("amend --reason moved")


# --- what study.toml names, and what comes next -------------------------------------------------


def test_all_that_is_not_there_is_named_at_once_and_early(tasks_frozen: Study) -> None:
    bad = tasks_frozen.text.replace('id = "H018"', 'id = "H999"').replace('"H018"', '"H999"')
    bad = bad.replace("documents = [", 'documents = ["missing.md", ')
    tasks_frozen.toml.write_text(bad)
    before = tasks_frozen.counts()
    for words in ("tasks mine", "plan", "freeze"):
        if words == "freeze":
            tasks_frozen.toml.write_text(tasks_frozen.text)
            tasks_frozen.succeed("plan")
            before = tasks_frozen.counts()
            tasks_frozen.toml.write_text(bad)
        ran = tasks_frozen.run(words)
        assert ran.status == 2, ran
        assert "`treatments[1].id`: there is no arm 'H999'" in ran.err
        assert "`documents[0]`: document 'missing.md'" in ran.err
    assert tasks_frozen.counts() == before


def test_a_preregistered_study_has_a_primary_contrast(tasks_frozen: Study) -> None:
    without = tasks_frozen.text.replace("\nprimary = true\n", "\n")
    assert without != tasks_frozen.text
    tasks_frozen.toml.write_text(without)
    ran = tasks_frozen.run("plan")
    assert ran.status == 2 and "`contrasts`: none is primary" in ran.err
    tasks_frozen.toml.write_text(without.replace("preregistered = true", "preregistered = false"))
    tasks_frozen.succeed("plan")
    out = tasks_frozen.succeed("freeze")
    assert out.count("no primary contrast: whatever this study finds is exploratory") == 1


def test_hints_name_what_can_be_done(validated: Study) -> None:
    assert "next: `ledger tasks freeze`" in validated.succeed("status")
    more = validated.text.replace("tasks = 1\n", "tasks = 90\n")
    validated.toml.write_text(more)
    out = validated.succeed("tasks mine")
    (hint,) = [line for line in out.splitlines() if line.startswith("next: ")]
    assert "1 valid task of the 90 declared, and 0 candidates to validate: declare" in hint
    assert "`ledger tasks validate`" not in hint
    other = more[more.index("[[repositories]]") : more.index("[tasks]")].replace("R001", "R002")
    validated.toml.write_text(validated.text.replace("[tasks]", f"{other}\n[tasks]", 1))
    assert "`ledger tasks mine --repository R002` (R002 is not mined" in validated.succeed("status")
    validated.toml.write_text(more)
    validated.refused("tasks freeze", "1 valid task and", "no candidate is left. Declare fewer")
    validated.toml.write_text(validated.text)
    for words, following in (
        ("tasks freeze", "`ledger plan`"),
        ("plan", "`ledger freeze`"),
    ):
        assert f"next: {following}" in validated.succeed(words)
        assert f"next: {following}" in validated.succeed("status")


def test_a_long_plan_says_how_much_is_not_shown(
    tasks_frozen: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "more" not in tasks_frozen.succeed("plan")
    monkeypatch.setattr("ledger.cli.plan.SHOWN", 1)
    out = tasks_frozen.succeed("plan")
    assert "… and 1 more: `ledger plan --json` lists all" in out and "2 cells planned" in out
