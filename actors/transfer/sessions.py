"""The actor of memory sessions: drives a case of a transfer study from its start to its end.

One cell: describe the system, seed its store, teach (persistence cases), snapshot, run the task in
a fresh session, read the surface, snapshot again. Everything is recorded in the order in which it
happened. A session is an effect that may not silently repeat: ``cell.started`` is committed before
it, and an attempt that has begun and not ended when a process looks (its worker was killed) is
recorded as void and run again under the same identity, up to the study's ``attempts``. One that was
under way when the run was stopped in order (Ctrl-C) is void too, and none of these attempts.

What the system under test does wrong ends the case in an observed class: ``crashed``,
``timed_out``, ``flooded``, ``malformed``. Only our own fault is ``void``.

Drivers that ask a model stop at the question: the events so far and the request are committed, the
model server answers and asks for the session again, and the session that this process has kept
goes on. One that is not there any more cannot be driven again (its memory has moved on): void.

Clocks are data: a memory is told the case's ``now``. Nothing that is recorded here depends on the
machine's.
"""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import cast

import msgspec

from actors.diagnostics import diagnostics
from actors.loop import Done, Work
from actors.memory_systems.contract import CaseFolders
from actors.memory_systems.registry import OpenMemory, open_memory
from actors.model_turns import RecordedAnswer
from actors.sandbox import Sandbox
from actors.test_runs.task_runs import sandbox_of
from actors.transfer.case_run import CaseRun, Steps, SuiteInHand, void
from harnesses.drivers.contract import ModelAnswer, ModelCall
from ledger.errors import OF_ALL_FOLDERS, LedgerError, Refused
from ledger.log import Fact, NewEvent, decode
from projections.fold import ReadArtifact
from schemas.base import Event
from schemas.commands import AdvanceSession, ContinueStudy
from schemas.commands import AskModel as AskModelCommand
from schemas.events.cell import CellStarted, TurnAnswered, TurnFailed
from schemas.events.mining import SandboxProbed
from schemas.events.run import RunStopped
from schemas.events.transfer import CaseFinished
from schemas.identifiers import RUN_STREAM, CellId, parse_cell_id
from schemas.transfer.study import System


class MemorySessions:
    """Handler of the role ``memory_session``; keeps the session that waits for a model."""

    def __init__(
        self,
        frozen: SuiteInHand,
        *,
        opener: OpenMemory = open_memory,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._frozen = frozen
        self._open = opener
        self._monotonic = monotonic
        self._live: _Live | None = None
        self._sandbox: Sandbox | None = None

    def close(self) -> None:
        """End a session that waits for a model, with every program that it started."""
        live, self._live = self._live, None
        if live is not None:
            live.run.discard()

    def advance(self, work: Work) -> Done:
        """Go on with the cell: begin its attempt, or give its session the model's answer."""
        command: AdvanceSession = work.command
        cell = parse_cell_id(command.cell)
        facts = work.facts(cell.stream)
        attempt, status, faults = latest_attempt(facts)
        live, self._live = self._live, None
        if status == "running" and live is not None and live.fits(cell, attempt):
            answer = model_answer(facts[live.version :], work.artifacts.get)
            if answer is None:
                self._live = live
                return Done()  # asked twice: the answer is still to come
            live.version = len(facts)
            return self._go_on(work, live, answer)
        if live is not None:
            live.run.discard()
        if status == "running":
            return _done(cell, [lost(work, cell, facts)], len(facts))
        if System(memory=cell.arm, driver=cell.agent) not in self._frozen.study.systems:
            return Done(requests=[ContinueStudy()])  # an amendment took it away before it began
        if status == "observed" or faults >= self._frozen.study.attempts:
            return Done(requests=[ContinueStudy()])
        self._frozen.require_as_frozen(cell)
        unit, arm, agent = self._frozen.digests(cell)
        begin = CellStarted(
            cell=cell,
            attempt=attempt,
            unit=unit,
            arm=arm,
            agent=agent,
            simulated=self._frozen.event.simulated,
        )
        work.commit([NewEvent(cell.stream, begin)], {cell.stream: len(facts)})
        run = CaseRun(
            frozen=self._frozen,
            cell=cell,
            attempt=attempt,
            # A path that names the case would tell a system under test what is expected of it.
            folders=CaseFolders(
                work.scratch / sha256(f"{cell}/{attempt}".encode()).hexdigest()[:16]
            ),
            open=self._open,
            monotonic=self._monotonic,
            sandbox=lambda: self._open_sandbox(work),
            study_folder=work.context.directory.root,
        )
        live = _Live(cell, attempt, run, run.steps(), len(facts) + 1)
        return self._go_on(work, live, None)

    def _open_sandbox(self, work: Work) -> Sandbox:
        """Of the kind that this run was started with (``sandbox.probed``)."""
        if self._sandbox is None:
            probes = [decode(stored).event for stored in work.log.read_stream(RUN_STREAM)]
            probed = [event for event in probes if isinstance(event, SandboxProbed)]
            if not probed:
                raise Refused("the run was started without a probe of the sandbox: `ledger run`")
            self._sandbox = sandbox_of(probed[-1], work.scratch)
        return self._sandbox

    def _go_on(self, work: Work, live: "_Live", answer: ModelAnswer | None) -> Done:
        """Run until a model must answer or the case has ended; all events in one append, but that
        a prohibited action is committed with what was before it as soon as it is seen."""
        run = live.run
        run.commit = lambda: self._commit(work, live)
        try:
            question = live.steps.send(answer) if answer else next(live.steps)
        except StopIteration as stop:
            finished: CaseFinished = stop.value
            run.discard()
            self._store(work, run)
            return _done(live.cell, [*run.take(), finished], live.version)
        except LedgerError:
            run.discard()
            raise
        except Exception as error:
            # A full disk is met by the next attempt too; any other error of files comes of what a
            # case does in its own folders, and is recorded.
            if isinstance(error, OSError) and error.errno in OF_ALL_FOLDERS:
                run.discard()
                raise
            detail = f"{type(error).__name__}: {error}"
            where = "".join(traceback.format_tb(error.__traceback__, -3))
            diagnostics().error("session void", cell=str(live.cell), error=detail, where=where)
            run.discard()
            finished = void(live.cell, live.attempt, detail)
            self._store(work, run)
            return _done(live.cell, [*run.take(), finished], live.version)
        except BaseException:  # we are told to stop: leave no program of a stranger behind
            run.discard()
            raise
        recorded, version = run.take(), live.version
        live.version += len(recorded)
        self._live = live
        command = AskModelCommand(
            cell=str(live.cell),
            turn=live.turn,
            model=run.driver.model,
            request=run.request(question),
        )
        live.turn += 1
        self._store(work, run)
        return Done(
            [NewEvent(live.cell.stream, event) for event in recorded],
            [command],
            {live.cell.stream: version},
        )

    def _commit(self, work: Work, live: "_Live") -> None:
        self._store(work, live.run)
        recorded, stream = live.run.take(), live.cell.stream
        work.commit([NewEvent(stream, event) for event in recorded], {stream: live.version})
        live.version += len(recorded)

    def _store(self, work: Work, run: CaseRun) -> None:
        """Make what the events name durable, before they are: one sync a file and folder. Also what
        this process has stored before: where the record that named it was never committed, `gc` may
        have removed it since."""
        contents, run.contents = run.contents, {}
        work.artifacts.put_many(list(contents.values()))


@dataclass
class _Live:
    """A session that waits for a model, and how much of its cell's stream it knows."""

    cell: CellId
    attempt: int
    run: CaseRun
    steps: Steps
    version: int
    turn: int = 0

    def fits(self, cell: CellId, attempt: int) -> bool:
        return (self.cell, self.attempt) == (cell, attempt)


def latest_attempt(facts: Sequence[Fact]) -> tuple[int, str, int]:
    """(attempt to run or that runs; ``new``, ``running`` or ``observed``; attempts that are void by
    a fault of ours)."""
    attempt, status, faults = 0, "new", 0
    for fact in facts:
        match fact.event:
            case CellStarted() as event:
                attempt, status = event.attempt, "running"
            case CaseFinished(ended="void") as event:
                attempt, status = event.attempt + 1, "new"
                faults += not event.stopped
            case CaseFinished():
                status = "observed"
    return attempt, status, faults


def lost(work: Work, cell: CellId, facts: Sequence[Fact]) -> CaseFinished:
    """The end of an attempt that nobody runs any more: its process was killed, or told to end when
    the run was stopped."""
    begun = [fact for fact in facts if isinstance(fact.event, CellStarted)][-1]
    attempt = cast(CellStarted, begun.event).attempt
    since = [fact.event for fact in work.facts(RUN_STREAM) if fact.seq > begun.seq]
    if any(isinstance(event, RunStopped) and event.reason == "interrupted" for event in since):
        ended = void(cell, attempt, "abandoned: the run was stopped while the case ran")
        return msgspec.structs.replace(ended, stopped=True)
    return void(cell, attempt, "the worker that ran the session was lost")


def model_answer(facts: Sequence[Fact], read: ReadArtifact) -> ModelAnswer | None:
    """What the model server recorded of a turn; None where it is still to come."""
    for fact in facts:
        match fact.event:
            case TurnAnswered() as event:
                answer = msgspec.json.decode(read(event.answer), type=RecordedAnswer)
                calls = tuple(
                    ModelCall(call.id, call.name, call.arguments) for call in answer.calls
                )
                return ModelAnswer(answer.content, calls, answer.finish_reason)
            case TurnFailed(retry=False) as event:
                return ModelAnswer("", failed=event.kind)
    return None


def _done(cell: CellId, recorded: Sequence[Event], version: int) -> Done:
    return Done(
        [NewEvent(cell.stream, event) for event in recorded],
        [ContinueStudy()],
        {cell.stream: version},
    )
