"""Claim, perform, commit: what the loop promises whatever the handler does."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from actors.loop import Context, Done, Work, carry_out, perform, request, serve
from actors.supervisor import prove_no_worker
from ledger.errors import LeaseLost, Refused, SafetyStop
from ledger.log import Fact, NewEvent
from schemas.commands import AdvanceCell, ContinueStudy, StopRun
from schemas.events.command import (
    CommandAbandoned,
    CommandCompleted,
    CommandRefused,
    CommandRequested,
)
from schemas.events.run import StudyCompleted
from schemas.identifiers import STUDY_STREAM

FACT = NewEvent(STUDY_STREAM, StudyCompleted(cells=1, graded=1))
STOP = StopRun(reason="complete", detail="")


def types(facts: list[Fact]) -> list[str]:
    return [fact.event.TYPE for fact in facts]


def test_results_acknowledgement_and_next_commands_are_one_append(
    context: Context, events: Callable[[], list[Fact]]
) -> None:
    command = request(context, ContinueStudy())
    claim = context.log.claim(["scheduler"], 60.0)
    assert claim is not None
    perform(context, claim, {ContinueStudy: lambda w: Done([FACT], [AdvanceCell(cell="a/b/c/0")])})
    facts = events()
    assert types(facts) == [
        "command.requested.v1",
        "study.completed.v1",
        "command.completed.v1",
        "command.requested.v1",
    ]
    assert [fact.cause for fact in facts[1:]] == [command] * 3
    assert len({fact.at for fact in facts[1:]}) == 1  # one draft, one time
    assert context.log.pending() == [facts[3].id]


def test_a_refusal_is_recorded_and_raised_and_nothing_else_is_written(
    context: Context, events: Callable[[], list[Fact]]
) -> None:
    def refuse(work: Work) -> Done:
        raise SafetyStop("no disk is left")

    with pytest.raises(SafetyStop, match="no disk"):
        carry_out(context, STOP, {StopRun: refuse})
    facts = events()
    assert types(facts) == ["command.requested.v1", "command.refused.v1"]
    refused = facts[1].event
    assert isinstance(refused, CommandRefused)
    assert (refused.exit_status, refused.reason) == (7, "no disk is left")
    assert context.log.pending() == []


def test_a_fault_of_ours_leaves_the_command_pending(
    context: Context, events: Callable[[], list[Fact]]
) -> None:
    def fail(work: Work) -> Done:
        work.commit([FACT])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry_out(context, STOP, {StopRun: fail})
    assert types(events()) == ["command.requested.v1", "study.completed.v1"]
    assert len(context.log.pending()) == 1


def test_the_index_goes_on_after_what_an_earlier_process_had_committed(
    context: Context, take: Callable[[Any], Work]
) -> None:
    first = take(STOP)
    first.commit([FACT])
    context.log.release_all()  # the process died
    claim = context.log.claim(["operator"], 60.0)
    assert claim is not None
    perform(context, claim, {StopRun: lambda work: Done([FACT])})
    indices = [stored.envelope().index for stored in context.log.caused_by(claim.lease.command)]
    assert indices == [0, 1, 2]


def test_a_run_that_begins_takes_nothing_over_that_a_person_has_ordered(
    context: Context, take: Callable[[Any], Work], events: Callable[[], list[Fact]]
) -> None:
    ordered, left = take(STOP), take(ContinueStudy())
    prove_no_worker(context)
    ordered.commit([FACT])
    with pytest.raises(LeaseLost):  # of a run before, whose workers have ended
        left.commit([FACT])


def test_a_process_that_lost_its_lease_writes_nothing(
    context: Context, take: Callable[[Any], Work], events: Callable[[], list[Fact]]
) -> None:
    late = take(STOP)
    context.log.release_all()
    taken_over = context.log.claim(["operator"], 60.0)
    assert taken_over is not None
    before = len(events())
    with pytest.raises(LeaseLost):
        late.commit([FACT])
    assert len(events()) == before
    perform(context, taken_over, {StopRun: lambda work: Done()})
    with pytest.raises(LeaseLost):
        late.commit([FACT])


def test_a_command_whose_giver_is_gone_is_abandoned_before_the_next_one(
    context: Context, events: Callable[[], list[Fact]]
) -> None:
    orphan = request(context, STOP)
    carry_out(context, STOP, {StopRun: lambda work: Done()})
    ended = [f.event for f in events() if isinstance(f.event, CommandAbandoned | CommandCompleted)]
    assert isinstance(ended[0], CommandAbandoned) and ended[0].command == orphan
    assert isinstance(ended[1], CommandCompleted)


def test_two_programs_do_not_carry_out_commands_of_one_role_at_once(context: Context) -> None:
    def nested(work: Work) -> Done:
        with pytest.raises(Refused, match="another program"):
            carry_out(context, STOP, {})
        return Done()

    carry_out(context, STOP, {StopRun: nested})


def test_serve_takes_commands_of_its_roles_until_told_to_stop(
    context: Context, events: Callable[[], list[Fact]]
) -> None:
    stop = threading.Event()
    done: list[str] = []

    def advance(work: Work) -> Done:
        done.append(work.command.cell)
        if len(done) == 3:
            stop.set()
        return Done()

    request(context, ContinueStudy())
    for number in range(3):
        request(context, AdvanceCell(cell=f"t/a/m/{number}"))
    serve(context, ["cell"], {AdvanceCell: advance}, stop)
    assert done == ["t/a/m/0", "t/a/m/1", "t/a/m/2"]
    left = [f for f in events() if isinstance(f.event, CommandRequested)][0]
    assert context.log.pending() == [left.id]
