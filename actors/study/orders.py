"""What a person orders in the same way of every kind of study: opening outcomes, stopping runs,
recording a re-execution or an anchor. What a kind does in its own way is in its ``freezing.py``.

The command line carries these out in its own process, through the same path as every other actor
(``actors.loop.carry_out``).
"""

from actors.loop import Done, Handlers, Work
from ledger.errors import Refused
from ledger.log import NewEvent
from projections.fold import fold
from projections.progress import Progress
from schemas.commands import (
    AnchorCheckpoint,
    InspectOutcomes,
    RecordReexecution,
    RegisterStudy,
    StopRun,
)
from schemas.counted import counted
from schemas.events.ledger import CheckpointAnchored
from schemas.events.run import RunStopped
from schemas.events.study import CellReexecuted, OutcomesInspected, StudyRegistered
from schemas.identifiers import LEDGER_STREAM, RUN_STREAM, STUDY_STREAM, parse_cell_id


def inspect_outcomes(work: Work) -> Done:
    """Write down that outcomes are about to be shown. The caller shows them afterwards."""
    command: InspectOutcomes = work.command
    progress = fold(Progress(work.artifacts.get), work.context.log_facts())
    if progress.frozen is None or progress.study is None:
        raise Refused("the study is not frozen: there are no outcomes")
    if progress.study.grading.when == "end" and not progress.completed:
        left = len(progress.cells) - progress.done_cells()
        if left == 0:
            raise Refused(
                "every cell has ended, but grading or the last gold checks have not: "
                "`ledger run` finishes them"
            )
        raise Refused(
            'this study grades at the end ([grading] when = "end"): outcomes do not exist before '
            f"its last cell ({counted(left, 'cell')} to go, then grading)"
        )
    known = progress.with_outcome()
    return Done([NewEvent(STUDY_STREAM, OutcomesInspected(reason=command.reason, graded=known))])


def register_study(work: Work) -> Done:
    """Write down where the card of the study was deposited, with what came back."""
    command: RegisterStudy = work.command
    frozen = fold(Progress(work.artifacts.get), work.facts(STUDY_STREAM)).frozen
    if frozen is None:
        raise Refused("the study is not frozen: there is nothing to register; `ledger freeze`")
    event = StudyRegistered(
        study=frozen.digest, card=command.card, where=command.where, receipt=command.receipt
    )
    return Done([NewEvent(STUDY_STREAM, event)])


def stop_run(work: Work) -> Done:
    command: StopRun = work.command
    progress = fold(Progress(work.artifacts.get), work.context.log_facts())
    event = RunStopped(
        reason=command.reason, detail=command.detail, cells_finished=progress.done_cells()
    )
    return Done([NewEvent(RUN_STREAM, event)])


def record_reexecution(work: Work) -> Done:
    command: RecordReexecution = work.command
    event = CellReexecuted(
        cell=command.cell,
        identical=command.identical,
        compared=command.compared,
        first_difference=command.first_difference,
    )
    return Done([NewEvent(parse_cell_id(command.cell).stream, event)])


def anchor_checkpoint(work: Work) -> Done:
    command: AnchorCheckpoint = work.command
    event = CheckpointAnchored(
        size=command.size,
        note=command.note,
        kind=command.kind,
        where=command.where,
        receipt=command.receipt,
    )
    return Done([NewEvent(LEDGER_STREAM, event)])


HANDLERS: Handlers = {
    InspectOutcomes: inspect_outcomes,
    RegisterStudy: register_study,
    StopRun: stop_run,
    RecordReexecution: record_reexecution,
    AnchorCheckpoint: anchor_checkpoint,
}
