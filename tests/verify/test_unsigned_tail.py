"""What is signed is folded first: records that somebody appended without the program."""

from collections.abc import Callable

import pytest
from sample_ledger import SampleLedger, append_one

from ledger.checkpoint import Checkpointer
from ledger.cli.main import main
from ledger.clock import new_id
from ledger.errors import Integrity
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from schemas.commands import AdvanceCell
from schemas.events.cell import ProtocolViolated
from schemas.events.command import CommandCompleted, CommandRequested
from schemas.events.grading import CellGraded
from schemas.identifiers import parse_cell_id

CELL = "R001-000/H000/M001/0"
STREAM = f"cell/{CELL}"
GRADED = CellGraded(
    cell=parse_cell_id(CELL),
    verdict="resolved",
    resolved=True,
    resolved_if_submitted=True,
    fail_to_pass_passed=1,
    fail_to_pass_total=1,
    pass_to_pass_passed=1,
    pass_to_pass_total=1,
    flagged=(),
    runs=(),
    sandbox="bwrap",
)


def _command(log: SqliteLog) -> str:
    request = CommandRequested(role="grader", command=AdvanceCell(cell=CELL))
    return append_one(log, request, "role/grader")


def _by(log: SqliteLog, cause: str | None, *events: NewEvent, first: int = 0) -> None:
    log.append(Batch(events=events, actor="grader", run="r", cause=cause, first_index=first))


def _grade(log: SqliteLog) -> str:
    command = _command(log)
    done = NewEvent(f"command/{command}", CommandCompleted(command=command))
    _by(log, command, NewEvent(STREAM, GRADED), done)
    return command


def _uncaused(log: SqliteLog) -> None:
    _by(log, None, NewEvent(STREAM, GRADED))


def _of_no_command(log: SqliteLog) -> None:
    _by(log, new_id(), NewEvent(STREAM, GRADED))


def _after_its_end(log: SqliteLog) -> None:
    note = NewEvent(STREAM, ProtocolViolated(turn=0, kind="k", detail="d"))
    _by(log, _grade(log), note, first=2)


def _graded_twice(log: SqliteLog) -> None:
    _grade(log)
    _grade(log)


def _ended_twice(log: SqliteLog) -> None:
    command = _grade(log)
    again = NewEvent(f"command/{command}", CommandCompleted(command=command))
    _by(log, command, again, first=2)


FORGED: dict[str, tuple[Callable[[SqliteLog], object], str]] = {
    "a verdict that no command caused": (_uncaused, "seq 31 .*no command caused it"),
    "a verdict of a command that was never requested": (_of_no_command, "seq 31 .*is no command"),
    "a record of a command that has ended": (_after_its_end, "seq 34 .*had ended with seq 33"),
    "a second verdict of one cell": (_graded_twice, "seq 35 .*has such a record already"),
    "a second end of one command": (_ended_twice, "seq 34 .*has such a record already"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_record_that_the_program_cannot_have_written_is_not_signed(
    sample: SampleLedger, what: str
) -> None:
    forge, said = FORGED[what]
    log = SqliteLog.open(sample.database)
    forge(log)
    notes = log.checkpoints()
    for refuse in (
        Checkpointer(sample.directory).sign,
        Checkpointer(sample.directory).check_before_writing,
    ):
        with pytest.raises(Integrity, match=said):
            refuse(log)
    assert log.checkpoints() == notes
    log.close()


def test_what_the_program_writes_is_signed_however_the_checkpoints_fall(
    sample: SampleLedger,
) -> None:
    """A command that was requested before the last checkpoint ends after it."""
    log = SqliteLog.open(sample.database)
    checkpointer = Checkpointer(sample.directory)
    command = _command(log)
    checkpointer.sign(log)
    _by(log, command, NewEvent(STREAM, GRADED))
    checkpointer.sign(log)
    done = NewEvent(f"command/{command}", CommandCompleted(command=command))
    further = CommandRequested(role="grader", command=AdvanceCell(cell=CELL))
    _by(log, command, done, NewEvent("role/grader", further), first=1)
    checkpointer.sign(log)
    assert log.checkpoints()[-1][0] == 35
    log.close()


def test_the_first_line_says_how_much_no_signature_covers(
    sample: SampleLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    def first_line() -> str:
        with pytest.raises(SystemExit):
            main(["verify-chain", "--study", str(sample.directory.root), "--no-last-seen"])
        return capsys.readouterr().out.splitlines()[0]

    assert first_line() == "status     verified; every record is under a signature"
    sample.grow(3, sign=False)
    assert first_line() == "status     verified; no signature covers the last 3 records"
