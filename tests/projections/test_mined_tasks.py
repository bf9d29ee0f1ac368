"""Which verdicts a funnel has, and what a selection of tasks was taken from."""

import msgspec
import pytest

from projections.fold import fold
from projections.repair.audits.funnel import FunnelAudit
from projections.repair.tasks import MinedTasks
from schemas.events.mining import CandidateValidated, RepositoryMined
from schemas.events.study import TasksFrozen
from schemas.identifiers import STUDY_STREAM, repository_stream
from schemas.repair.selection import changed_settings, selection_settings, settings_digest
from schemas.repair.study import RepairStudy
from tests.projections.tiny_study import COMMITS, TinyStudy

STREAM = repository_stream("R001")
FIRST, SECOND = (row["commit"] for row in COMMITS if row["verdict"] == "candidate")


def declared(study: RepairStudy, **changes: object) -> RepairStudy:
    """The study with other rules for its tasks."""
    rules = msgspec.structs.replace(study.tasks, **changes)
    return msgspec.structs.replace(study, tasks=rules)


def mine(tiny: TinyStudy, study: RepairStudy) -> None:
    rows = [{"date": "2024-01-01T00:00:00Z", "subject": "A change", **row} for row in COMMITS]
    mined = RepositoryMined(
        repository="R001",
        head="a" * 40,
        walked=3,
        candidates=2,
        rejected={"no_test_file": 1},
        audit=tiny.put("".join(msgspec.json.encode(row).decode() + "\n" for row in rows)),
        settings=selection_settings(study, study.repositories[0]),
    )
    tiny.append(STREAM, mined)


def validate(tiny: TinyStudy, study: RepairStudy, commit: str, *, valid: bool) -> None:
    task = msgspec.structs.replace(tiny.task(), commit=commit)
    verdict = CandidateValidated(
        repository="R001",
        commit=commit,
        valid=valid,
        criterion="" if valid else "no_fail_to_pass",
        reason="",
        arms=tiny.put({}),
        task=tiny.put(task) if valid else None,
        environment="environment-1",
        sandbox="bubblewrap",
        settings=settings_digest(selection_settings(study, study.repositories[0])),
        duration_ns=1,
    )
    tiny.append(STREAM, verdict)


def freeze_tasks(tiny: TinyStudy, commit: str) -> None:
    task = msgspec.structs.replace(tiny.task(), commit=commit)
    tiny.append(STUDY_STREAM, TasksFrozen(tasks=tiny.put([task]), count=1, packs={}))


def mined_tasks(tiny: TinyStudy) -> MinedTasks:
    return fold(MinedTasks(tiny.artifacts.get), tiny.facts())


def test_a_verdict_belongs_to_the_settings_it_was_made_under(tiny: TinyStudy) -> None:
    one, other = tiny.study, declared(tiny.study, whole_suite_s=0)
    mine(tiny, one)
    validate(tiny, one, FIRST, valid=False)
    mine(tiny, other)  # the same commits are candidates
    assert mined_tasks(tiny).validated["R001"] == {}
    assert mined_tasks(tiny).waiting("R001") == [FIRST, SECOND]
    validate(tiny, other, FIRST, valid=True)
    assert [task.commit for task in mined_tasks(tiny).valid_tasks("R001")] == [FIRST]
    # Back under the first settings nothing is tried a second time.
    mine(tiny, one)
    verdicts = mined_tasks(tiny).validated["R001"]
    assert [(commit, verdict.valid) for commit, verdict in verdicts.items()] == [(FIRST, False)]
    assert mined_tasks(tiny).waiting("R001") == [SECOND]


def test_what_is_mined_after_the_tasks_are_frozen_is_not_what_they_were_taken_from(
    tiny: TinyStudy,
) -> None:
    one, other = tiny.study, declared(tiny.study, not_before="2024-06-01")
    mine(tiny, one)
    validate(tiny, one, FIRST, valid=True)
    freeze_tasks(tiny, FIRST)
    before = list(mined_tasks(tiny).rows())
    mine(tiny, other)
    validate(tiny, other, FIRST, valid=False)
    found = mined_tasks(tiny)
    assert list(found.rows()) == before
    assert list(found.selection().validated["R001"]) == [FIRST]
    assert found.changed_since_frozen(one, "") == []
    (changed,) = found.changed_since_frozen(other, "")
    assert str(changed) == 'tasks.not_before of R001 was "2023-01-01" and is "2024-06-01"'
    freeze_tasks(tiny, FIRST)
    assert mined_tasks(tiny).changed_since_frozen(other, "") == []


@pytest.mark.parametrize("again", [1, 3])
def test_the_audit_counts_a_funnel_once(tiny: TinyStudy, again: int) -> None:
    for _ in range(again):
        mine(tiny, tiny.study)
        validate(tiny, tiny.study, FIRST, valid=True)
    freeze_tasks(tiny, FIRST)
    for _ in range(again):
        mine(tiny, declared(tiny.study, whole_suite_s=0))
    verdict = fold(FunnelAudit(tiny.artifacts.get), tiny.facts()).verdict()
    assert (verdict.status, verdict.findings) == ("ok", ())
    assert verdict.checked == {"commits": 3, "validated": 1, "tasks": 1}


def test_every_setting_that_decides_about_tasks_is_named(tiny: TinyStudy) -> None:
    """All of the rules, the platform and the repository, but for where it lies and how many tasks
    it gives."""
    study = tiny.study
    (repository,) = study.repositories
    settings = selection_settings(study, repository)
    expected = {
        *(f"tasks.{name}" for name in study.tasks.__struct_fields__),
        *(f"platform.{name}" for name in study.platform.__struct_fields__),
        *(f"repositories.layout.{name}" for name in repository.layout.__struct_fields__),
        *(f"repositories.{name}" for name in repository.__struct_fields__),
        "content of tasks.texts",
    } - {f"repositories.{name}" for name in ("id", "url", "layout", "tasks")}
    assert set(settings) == expected
    moved = msgspec.structs.replace(repository, url="elsewhere", tasks=7)
    assert selection_settings(study, moved) == settings
    other = selection_settings(study, repository, "digest of other texts")
    (changed,) = changed_settings("R001", settings, other)
    assert changed.key == "content of tasks.texts"
