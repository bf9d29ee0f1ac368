"""Every event that can be recorded: one file a subject, one explicit list.

Adding an event: write the struct in its subject's file, add it here, add its golden record with
`make golden`, regenerate `docs/event-catalogue.md` with `ledger docs`.
"""

from schemas.base import Event
from schemas.events.cell import (
    AnswerParsed,
    BudgetCharged,
    CellFinished,
    CellStarted,
    CellVoided,
    ProtocolViolated,
    ToolCalled,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.command import (
    CommandAbandoned,
    CommandCompleted,
    CommandRefused,
    CommandRequested,
)
from schemas.events.grading import CellGraded, GoldChecked, TestRunFinished
from schemas.events.ledger import CheckpointAnchored, LedgerCreated
from schemas.events.mining import (
    CandidateValidated,
    EnvironmentBuilt,
    LeakProbed,
    RepositoryMined,
    SandboxProbed,
)
from schemas.events.run import RunStarted, RunStopped, StudyCompleted
from schemas.events.server import (
    ModelLoaded,
    ModelLoadStarted,
    ModelLost,
    ModelUnloaded,
    ServerChecked,
    ServerMismatched,
)
from schemas.events.study import (
    AmendmentRecorded,
    AnalysisCompleted,
    CellReexecuted,
    OutcomesInspected,
    PlanPrepared,
    ReportWritten,
    StudyFrozen,
    TasksFrozen,
)

ALL_EVENTS: tuple[type[Event], ...] = (
    LedgerCreated,
    CheckpointAnchored,
    CommandRequested,
    CommandCompleted,
    CommandRefused,
    CommandAbandoned,
    RepositoryMined,
    EnvironmentBuilt,
    SandboxProbed,
    CandidateValidated,
    LeakProbed,
    TasksFrozen,
    PlanPrepared,
    StudyFrozen,
    AmendmentRecorded,
    OutcomesInspected,
    AnalysisCompleted,
    ReportWritten,
    CellReexecuted,
    RunStarted,
    RunStopped,
    StudyCompleted,
    ServerChecked,
    ModelLoadStarted,
    ModelLoaded,
    ModelUnloaded,
    ModelLost,
    ServerMismatched,
    CellStarted,
    TurnStarted,
    TurnAnswered,
    TurnFailed,
    TurnAbandoned,
    BudgetCharged,
    AnswerParsed,
    ProtocolViolated,
    ToolCalled,
    CellFinished,
    CellVoided,
    TestRunFinished,
    CellGraded,
    GoldChecked,
)

EVENT_TYPES: dict[str, type[Event]] = {event.TYPE: event for event in ALL_EVENTS}
