"""A whole study carried out command by command in forked children, with a copy of it kept before
every command: so a kill at one commit costs one command and not a study.

The handlers are the product's own and so is the path through ``perform`` and ``carry_out``; only
the processes around them are the test's.
"""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

import msgspec

from actors.loop import Context, carry_out, clear_scratch, perform
from actors.mining.handlers import Miner
from actors.rehearsal.stand_in import start_stand_in
from actors.study import analysis
from actors.study_kinds import kind_in, kind_of, orders_in
from actors.supervisor import SET_ROLES
from actors.transfer import corrections
from actors.transfer import remediation as transfer_remediation
from ledger.artifacts import Artifacts
from ledger.checkpoint import parse_checkpoint, split_notes
from ledger.cli.worker import handlers_of
from ledger.clock import new_id
from ledger.log import FINISHES_COMMAND, Batch, Fact, StoredRecord, decode
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import verify
from projections import store
from projections.fold import fold
from projections.pending_commands import PendingCommands
from schemas.commands import (
    AdvanceSession,
    AmendStudy,
    AnalyseStudy,
    AnchorCheckpoint,
    Command,
    FreezeStudy,
    FreezeTasks,
    InspectOutcomes,
    MineRepository,
    PreparePlan,
    RecordReexecution,
    StartRun,
    StopRun,
    ValidateCandidates,
    WriteReport,
)
from schemas.events.cell import CellStarted
from schemas.events.command import CommandAbandoned, CommandCompleted, CommandRequested
from schemas.events.mining import CandidateValidated
from schemas.events.transfer import CaseFinished
from tests.end_to_end.rehearsal_study import StudyOnDisk
from tests.faults.storage_work import Appended, Failed, Message, Tell
from tests.faults.system_calls import Child

LEASE_SECONDS = 3600.0
Act = Callable[[Context, Sequence[str]], None]
"""What a child does with the study, and with a model server (URL, lms) if it is given one."""
When = Literal["before", "after"]
PURE_ROLES = ("scheduler", "cell", "memory_session")
"""What these write is a function of the log: killed and done again, it has the same bytes."""
AGAIN = frozenset(
    {
        "turn.started.v1",
        "turn.abandoned.v1",
        "model.lost.v1",
        "model.load_started.v1",
        "model.loaded.v1",
        "model.unloaded.v1",
        "server.checked.v1",
        "sandbox.probed.v1",
        "environment.built.v1",
        "command.abandoned.v1",
    }
)
"""What a process that takes over may have to do a second time; it says so by these records."""
KEPT = ("ledger.db", "ledger.db-wal", "checkpoints.log", "checkpoints.frontier")
DERIVED = ("projections", "scratch", "diagnostics", "run")


@dataclass(frozen=True)
class Step:
    """One command of the undisturbed study: how it was before, and what it wrote."""

    number: int
    command: Command
    ordered: bool
    """True for what a person orders: its process requests it too."""
    before: Path
    appends: int
    facts: tuple[Fact, ...]

    @property
    def name(self) -> str:
        return f"{self.number:03} {type(self.command).__name__}"

    @property
    def role(self) -> str:
        return self.command.ROLE


@dataclass
class Laboratory:
    """The study in one place, and copies of its earlier states in another."""

    study: StudyOnDisk
    copies: Path
    steps: list[Step] = field(default_factory=list)

    @property
    def directory(self) -> StudyDirectory:
        return StudyDirectory(self.study.path)

    @contextmanager
    def opened(self) -> Iterator[Context]:
        log = SqliteLog.open(self.study.ledger)
        try:
            yield Context(log, Artifacts(self.directory.artifacts), self.directory, new_id())
        finally:
            log.close()

    def facts(self, start: int = 0) -> list[Fact]:
        with self.opened() as context:
            return [decode(stored) for stored in context.log.read(start)]

    # --- the undisturbed study -------------------------------------------------------------------

    def order(self, command: Command) -> None:
        """Give an order that a person could give, and keep the state before it."""
        self._record(command, True, ordering(command))

    def work(self) -> None:
        """Let the set's roles work until nothing is pending."""
        with self.server() as server:
            while (command := self._oldest_pending()) is not None:
                self._record(command, False, take_one, server)

    def _record(
        self, command: Command, ordered: bool, act: Act, server: Sequence[str] = ()
    ) -> None:
        before = self.copies / f"{len(self.steps):03}"
        self.save(before)
        seq = len(self.facts())
        appends = len(acknowledged(self._in_child(act, server, None)))
        facts = tuple(self.facts(seq))
        self.steps.append(Step(len(self.steps), command, ordered, before, appends, facts))

    def _oldest_pending(self) -> Command | None:
        pending = fold(PendingCommands(), self.facts()).of_roles(SET_ROLES)
        return pending[0] if pending else None

    # --- copies ----------------------------------------------------------------------------------

    def save(self, to: Path) -> None:
        """Artifacts never change, so a link keeps them."""
        to.mkdir(parents=True)
        shutil.copytree(self.study.config, to / "config")
        shutil.copy(self.directory.toml, to)
        for name in KEPT:
            if (self.directory.var / name).exists():
                shutil.copy(self.directory.var / name, to)
        (to / "artifacts").write_text("".join(f"{name}\n" for name in self._link_artifacts()))

    def restore(self, saved: Path) -> None:
        shutil.rmtree(self.study.config)
        shutil.copytree(saved / "config", self.study.config)
        shutil.copy(saved / "study.toml", self.study.path)
        for name in (*KEPT, "ledger.db-shm"):
            (self.directory.var / name).unlink(missing_ok=True)
        for name in KEPT:
            if (saved / name).exists():
                shutil.copy(saved / name, self.directory.var)
        for name in DERIVED:
            shutil.rmtree(self.directory.var / name, ignore_errors=True)
        wanted = set((saved / "artifacts").read_text().split())
        present = set(Artifacts(self.directory.artifacts).list_digests())
        for digest in present - wanted:
            self._artifact(digest).unlink()
        for digest in wanted - present:
            os.link(self.copies / "all-artifacts" / digest, self._artifact(digest))

    def _link_artifacts(self) -> list[str]:
        kept = self.copies / "all-artifacts"
        kept.mkdir(exist_ok=True)
        digests = list(Artifacts(self.directory.artifacts).list_digests())
        for digest in digests:
            if not (kept / digest).exists():
                os.link(self._artifact(digest), kept / digest)
        return digests

    def _artifact(self, digest: str) -> Path:
        return self.directory.artifacts / digest[:2] / digest

    # --- kills -----------------------------------------------------------------------------------

    @contextmanager
    def server(self) -> Iterator[Sequence[str]]:
        """A stand-in server with no model in memory: (URL, lms). None where nothing asks one."""
        _, declared = self.directory.read_study()
        if declared.server.kind != "stand_in":
            yield ()
            return
        with ExitStack() as stack:
            with self.opened() as context:
                briefs = kind_of(declared).briefs(context)
                place = context.directory.run / "stand_in"
                stand_in = stack.enter_context(start_stand_in(place, declared, briefs))
            yield stand_in.base_url, stand_in.lms[0]

    def kill_at_every_append(self, steps: Iterable[Step]) -> list[tuple[str, int, str]]:
        """Kill before and after each append of the steps; the points: (step, append, when)."""
        points = []
        for step in steps:
            for append in range(step.appends):
                for when in get_args(When):
                    try:
                        self.kill(step, append, when)
                    except AssertionError as error:
                        where = f"{step.name}, killed {when} append {append} of {step.appends}"
                        raise AssertionError(f"{where}: {error}") from error
                    points.append((step.name, append, when))
        return points

    def kill(self, step: Step, append: int, when: When) -> None:
        """Kill whoever carries the step out at one of its appends, let another process take the
        command over, and check what it comes to."""
        self.restore(step.before)
        start = len(self.facts())
        with ExitStack() as stack:
            server: Sequence[str] = ()
            if step.role == "model_server":
                server = stack.enter_context(self.server())
            act = take_one if not step.ordered else ordering(step.command)
            known = acknowledged(self._in_child(act, server, (append, when)))
            self.check_sound(known)
            known += acknowledged(self._in_child(self._resuming(step, start), server, None))
        self.check_sound(known)
        check_same(step, self.facts(start))

    def finish(self) -> list[Fact]:
        """Work on to the end, with a new server."""
        with self.server() as server:
            self._in_child(work_to_the_end, server, None)
        return self.facts()

    def _resuming(self, step: Step, start: int) -> Act:
        """What happens after the kill: leases are given free and the command is taken again; an
        order is given again, unless a look at the log says that it was carried out."""

        def resume(context: Context, server: Sequence[str]) -> None:
            clear_scratch(context, [step.command.ROLE])
            context.log.release_all()
            if not step.ordered:
                if step.facts[0].cause in context.log.pending():
                    take_one(context, server)
                if lost_session([decode(stored) for stored in context.log.read(start)]):
                    take_one(context, server)  # the scheduler asks for the session again
                    take_one(context, server)
            elif not any(
                isinstance(decode(stored).event, CommandCompleted)
                for stored in context.log.read(start)
            ):
                order(context, step.command)

        return resume

    def _in_child(
        self, act: Act, server: Sequence[str], kill: tuple[int, str] | None
    ) -> list[Message]:
        """What a child told that was killed at an append, or else came to its end."""

        def work(tell: Tell) -> None:
            watch_appends(tell, kill)
            with self.opened() as context:
                act(context, server)

        ended = Child(work).finish()
        assert ended.signal == (0 if kill is None else signal.SIGKILL), ended
        assert not any(isinstance(message, Failed) for message in ended.told), ended.told
        return ended.told

    # --- what must hold --------------------------------------------------------------------------

    def check_sound(self, known: Sequence[Appended] = ()) -> None:
        """Everything acknowledged is there; every command ended at most once, what is pending is
        pending by the records too; chain, artifacts and replay agree."""
        with self.opened() as context:
            records = list(context.log.read())
            facts = list(map(decode, records))
            there = {(one.seq, one.leaf.hex()) for one in records}
            assert all(there.issuperset(appended.records) for appended in known)
            ends = Counter(f.event.command for f in facts if isinstance(f.event, FINISHES_COMMAND))
            assert set(ends.values()) <= {1}
            assert context.log.pending() == list(fold(PendingCommands(), facts).commands)
            assert store.check(self.directory, context.log).differences == ()
        report = verify(self.study.path)
        assert [f for f in report.findings if f.severity == "violation"] == [], report


def acknowledged(told: Sequence[Message]) -> list[Appended]:
    return [message for message in told if isinstance(message, Appended)]


def order(context: Context, command: Command) -> None:
    handlers = {
        **orders_in(context),
        **analysis.handlers(kind_in(context).analysis()),
        **Miner().handlers(),
        **corrections.HANDLERS,
        **transfer_remediation.HANDLERS,
    }
    carry_out(context, command, handlers)


def ordering(command: Command) -> Act:
    return lambda context, server: order(context, command)


def take_one(context: Context, server: Sequence[str]) -> None:
    """Carry out the oldest pending command of the set's roles."""
    claim = context.log.claim(SET_ROLES, LEASE_SECONDS)
    assert claim is not None
    stored = context.log.find(claim.lease.command)
    assert stored is not None
    requested = decode(stored).event
    assert isinstance(requested, CommandRequested)
    with ExitStack() as closing:
        handlers = handlers_of(context, [requested.role], *(server or ("", "")), closing)
        perform(context, claim, handlers)


def work_to_the_end(context: Context, server: Sequence[str]) -> None:
    context.log.release_all()
    with ExitStack() as closing:
        handlers = handlers_of(context, SET_ROLES, *(server or ("", "")), closing)
        while (claim := context.log.claim(SET_ROLES, LEASE_SECONDS)) is not None:
            perform(context, claim, handlers)


def watch_appends(tell: Tell, kill: tuple[int, str] | None) -> None:
    """In this process tell of every append that returned; kill it right before or right after the
    one of this number, of which nobody hears."""
    append = SqliteLog.append
    seen = 0

    def watched(log: SqliteLog, batch: Batch) -> list[StoredRecord]:
        nonlocal seen
        number, seen = seen, seen + 1
        if kill == (number, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        stored = append(log, batch)
        if kill == (number, "after"):
            os.kill(os.getpid(), signal.SIGKILL)
        tell(Appended([(one.seq, one.leaf.hex()) for one in stored]))
        return stored

    SqliteLog.append = watched  # type: ignore[method-assign, assignment]


def check_same(step: Step, facts: Sequence[Fact]) -> None:
    """The command came to the same: the same events, each once, and the same next commands. What
    had to be done a second time is recorded as such."""
    counted = without_lost_session(facts) if lost_session(facts) else facts
    assert Counter(map(meaning, without_repetition(counted))) == Counter(
        map(meaning, without_repetition(step.facts))
    )
    validated = Counter(f.event.commit for f in facts if isinstance(f.event, CandidateValidated))
    assert set(validated.values()) <= {1}
    begun = Counter((f.stream, f.event.attempt) for f in facts if isinstance(f.event, CellStarted))
    assert set(begun.values()) <= {1}


def without_repetition(facts: Sequence[Fact]) -> list[Fact]:
    """Without the records of second attempts, and of an order only the one that was completed."""
    abandoned = {f.event.command for f in facts if isinstance(f.event, CommandAbandoned)}
    return [
        fact
        for fact in facts
        if fact.event.TYPE not in AGAIN
        and not (fact.id in abandoned and isinstance(fact.event, CommandRequested))
    ]


def lost_session(facts: Sequence[Fact]) -> bool:
    """True where a session of a transfer study was ended as lost with its worker."""
    return any(isinstance(f.event, CaseFinished) and f.event.ended == "void" for f in facts)


def without_lost_session(facts: Sequence[Fact]) -> list[Fact]:
    """What the session's second attempt wrote, as if it were the first: it begins anew and must
    come to the same. Of the first one nothing may count, and it is recorded that it was lost."""
    begun = [f.event for f in facts if isinstance(f.event, CellStarted)]
    ended = [f.event for f in facts if isinstance(f.event, CaseFinished)]
    assert [one.attempt for one in begun] == [one.attempt for one in ended] == [0, 1]
    assert [one.ended == "void" for one in ended] == [True, False]
    assert ended[0].detail == "the worker that ran the session was lost"
    again = [
        f.id
        for f in facts
        if isinstance(f.event, CommandRequested) and isinstance(f.event.command, AdvanceSession)
    ]
    assert len(again) == 1
    return [
        msgspec.structs.replace(f, event=msgspec.structs.replace(f.event, attempt=0))
        if isinstance(f.event, CellStarted | CaseFinished)
        else f
        for f in facts
        if f.cause == again[0]
    ]


def meaning(fact: Fact) -> tuple[object, ...]:
    """What two records have in common that say the same: their whole data where that is a function
    of the log, else their type."""
    stream = "command" if isinstance(fact.event, FINISHES_COMMAND) else fact.stream
    exact = isinstance(fact.event, CommandRequested) or (
        fact.actor in PURE_ROLES and not isinstance(fact.event, FINISHES_COMMAND)
    )
    return (fact.event.TYPE, stream, msgspec.json.encode(fact.event) if exact else b"")


def orders_before_the_run(repository: str) -> list[Command]:
    return [
        MineRepository(repository=repository),
        ValidateCandidates(repository=repository),
        FreezeTasks(),
        PreparePlan(),
        FreezeStudy(),
        StartRun(),
    ]


def orders_after_the_run(cell: str) -> list[Command]:
    return [
        StopRun(reason="complete", detail=""),
        InspectOutcomes(reason="to see them"),
        AnalyseStudy(),
        WriteReport(),
        RecordReexecution(cell=cell, identical=True, compared=1),
    ]


def anchor(directory: StudyDirectory, place: Path) -> Command:
    """Put a copy of the newest checkpoint there, and record that."""
    notes, _, _ = split_notes(directory.checkpoints.read_bytes())
    place.write_bytes(notes[-1] + b"\n")
    return AnchorCheckpoint(
        size=parse_checkpoint(notes[-1]).checkpoint.size,
        note=notes[-1].decode(),
        kind="copy",
        where=str(place),
        receipt=sha256(notes[-1]).hexdigest(),
    )


def amendment(directory: StudyDirectory) -> Command:
    """Change the study's file, and record that."""
    text = directory.toml.read_text(encoding="utf-8")
    directory.toml.write_text(f"{text}\n# amended\n", encoding="utf-8")
    return AmendStudy(reason="to change something", changes_claim=False)
