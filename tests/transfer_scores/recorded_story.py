"""A story in a log with artifacts and a study directory, for actors and commands."""

from pathlib import Path

from actors.loop import Context
from ledger.artifacts import Artifacts
from ledger.log import Batch, EventLog, NewEvent
from ledger.memory_log import MemoryLog
from ledger.study_directory import StudyDirectory
from schemas.base import Event
from schemas.events.ledger import LedgerCreated
from schemas.events.study import AmendmentRecorded, OutcomesInspected
from tests.transfer_scores.transfer_story import FAMILY, Story


def record(story: Story, root: Path, log: EventLog | None = None) -> Context:
    """Append every fact of ``story`` that is not in the log yet."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "study.toml").write_text(story.study_toml)
    (root / "alder.yaml").write_text("# the family, as its author wrote it\n")
    log = log if log is not None else MemoryLog()
    directory = StudyDirectory(root)
    context = Context(log, Artifacts(directory.artifacts), directory, "test")
    for content in story.contents.values():
        context.artifacts.put(content, "application/json")
    if log.head() is None:
        append(
            context, "ledger", LedgerCreated(format=1, hash="sha-256", uuid="story", name="story")
        )
    for fact in story.facts:
        append(context, fact.stream, fact.event)
    return context


def append(context: Context, stream: str, event: Event) -> int:
    batch = Batch(events=[NewEvent(stream, event)], actor="test", run="test")
    return context.log.append(batch)[0].seq


def inspected(context: Context) -> Context:
    append(context, "study", OutcomesInspected(reason="as planned", graded=0))
    return context


def amended(context: Context, *changes: tuple[str, str]) -> None:
    """Change study.toml after a look, and record it."""
    inspected(context)
    toml = (context.directory.root / "study.toml").read_text()
    for before, after in changes:
        assert before in toml
        toml = toml.replace(before, after)
    append(
        context,
        "study",
        AmendmentRecorded(
            reason="it looked better",
            changes_claim=False,
            finding="after_inspection",
            inspections=(1,),
            changed=(),
            study=context.artifacts.put(toml.encode(), "application/toml"),
        ),
    )


def two_systems(story: Story) -> Story:
    """One system that does everything right, and a null memory that asks everywhere."""
    for memory in ("full", "empty"):
        for case in FAMILY.cases:
            story.run(case.case_id, memory=memory)
    return story
