"""kill -9 of the commands that copy, move, clean, anchor and amend a ledger, at every system call
that changes what is on a disk, and right before their last word.

After each kill nothing that is half may pass for whole, and nothing that was whole may be lost. The
same command given again comes to its end, or says that the work is done.
"""

import contextlib
import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.artifacts import Artifacts
from ledger.checkpoint import ledger_key, split_notes
from ledger.cli.main import main
from ledger.last_seen import known_ledger
from ledger.leftovers import find_leftovers
from ledger.log import FINISHES_COMMAND, Fact, decode
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from ledger.verify.verification import Report, verify
from projections import store
from schemas.commands import AmendStudy, AnchorCheckpoint
from schemas.events.command import CommandRequested
from schemas.events.ledger import CheckpointAnchored
from schemas.events.study import AmendmentRecorded
from tests.end_to_end.transfer_study import keep_one_family
from tests.faults.fault_points import count
from tests.faults.storage_work import Ended, Place, Tell, verify_independently, work
from tests.faults.system_calls import CHANGES, calls_of, in_child, inject, record, tracing_works

pytestmark = pytest.mark.skipif(
    not tracing_works(), reason="faults at system calls need strace and the right to trace"
)
KIND = "kill -9 of a command that copies, moves, cleans, anchors or amends"
FEW = 21
"""Of how many points one is gone through outside the sweeps."""
TELLS = "sendto"
"""Killed here, a command has done what nobody ever hears of."""
LONG_AGO = (1_000_000_000, 1_000_000_000)

NewPlace = Callable[[], Place]


@contextlib.contextmanager
def as_user(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(home))
        yield


@dataclass
class Bench:
    """A place that can be put back as it was, with what the commands need beside the study."""

    place: Place
    kept: Path

    @property
    def root(self) -> Path:
        return self.place.root

    @property
    def directory(self) -> StudyDirectory:
        return self.place.directory

    def keep(self) -> None:
        shutil.copytree(self.root, self.kept)

    def put_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root)

    def facts(self) -> list[Fact]:
        log = SqliteLog.open_read_only(self.directory.ledger)
        try:
            return [decode(stored) for stored in log.read()]
        finally:
            log.close()

    def check_sound(self) -> Report:
        """The study itself: it verifies, with every artifact, and a replay agrees."""
        with as_user(self.place.home):
            report = verify(self.directory.root)
        assert report.status == "verified", report
        assert [f for f in report.findings if f.severity == "violation"] == []
        status, said = verify_independently(self.directory.root)
        assert status == 0, said
        log = SqliteLog.open_read_only(self.directory.ledger)
        try:
            assert store.check(self.directory, log).differences == ()
        finally:
            log.close()
        return report


@pytest.fixture
def bench(new_place: NewPlace) -> Bench:
    """A finished ledger, an export of it, an empty git remote, and what crashes leave behind."""
    place = new_place()
    work(place)
    var = place.directory.var
    artifacts = Artifacts(place.directory.artifacts)
    unnamed = artifacts.put(b"nobody names me", "text/plain").digest
    for path in (var / ".unfinished-1", var / "ledger.db.new", var / "artifacts/ab/.unfinished-2"):
        path.write_bytes(b"half")
    for path in var.rglob("*"):
        os.utime(path, LONG_AGO)
    assert artifacts.exists(unnamed)
    subprocess.run(["git", "init", "--quiet", "--bare", str(place.root / "remote")], check=True)
    bench = Bench(place, place.root.with_name(f"{place.root.name}-kept"))
    bench.keep()
    return bench


def ledger(*words: str | Path) -> Callable[[Tell], None]:
    """A command line as the work of a child."""

    def run(tell: Tell) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main([str(word) for word in words])
            except SystemExit as end:
                status = int(end.code or 0)
        tell(Ended(status, said.getvalue()))

    return run


def end_of(run: Callable[[Tell], None]) -> Ended:
    (ended,) = in_child(run).told
    assert isinstance(ended, Ended), ended
    return ended


def sweep(
    bench: Bench,
    words: Sequence[str | Path],
    check: Callable[[Ended | None], None],
    step: int,
    home: Path | None = None,
) -> list[tuple[str, int]]:
    """Kill the command at each ``step``-th call, look, give it again, and look again. ``check`` is
    given the end of the command, or None after a kill; it looks at everything that is left."""
    with as_user(home or bench.place.home):
        run = ledger(*words)
        with pytest.raises(SystemExit):  # once in this process: what it imports is imported
            main([str(word) for word in words])
        bench.put_back()
        check(end_of(run))  # undisturbed
        bench.put_back()
        made = calls_of(record(run, (*CHANGES, TELLS)).trace)
        points = range(1, len(made) + 1, step)
        for point in points:
            bench.put_back()
            ended = inject(run, made[:point], "signal=SIGKILL", False)
            try:
                assert (ended.signal, ended.told) == (9, [])
                check(None)
                check(end_of(run))
            except AssertionError as error:
                where = f"{words[0]} at call {point} of {len(made)}, {made[point - 1]}"
                raise AssertionError(f"{where}: {error}") from error
    return [(str(words[0]), point) for point in points]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def records(study: Path) -> dict[str, bytes]:
    """A study's files without those that SQLite keeps beside an open database."""
    return {
        name: content
        for name, content in contents(study).items()
        if not name.endswith(("-shm", "-wal"))
    }


class NewFolder:
    """The check of a command that makes a folder: it is there as a whole or not at all, and is not
    made twice."""

    def __init__(self, bench: Bench, target: Path, also: Callable[[], None]) -> None:
        self._target = target
        self._also = also
        self._whole: dict[str, bytes] | None = None
        self._was_there = False
        self._study = bench.directory.root
        self._source = records(self._study)

    def __call__(self, ended: Ended | None) -> None:
        there = self._target.exists()
        if self._whole is None:
            self._whole = contents(self._target)
            assert len(self._whole) >= 9
        if there:
            assert contents(self._target) == self._whole
            self._also()
        if ended is None:
            self._was_there = there
        elif self._was_there and ended.status == 1:
            assert "exists and is not empty" in ended.printed
        else:
            assert ended.status == 0, ended.printed
        if ended is not None:
            assert there
            assert [p for p in self._target.parent.iterdir() if p.name.startswith(".")] == []
            self._was_there = False
        assert records(self._study) == self._source, "what is read is not changed"


def sweep_backup(bench: Bench, step: int) -> list[tuple[str, int]]:
    target = bench.root / "copies" / "first"

    def verifies() -> None:
        assert verify(target).status == "verified"
        assert verify_independently(target)[0] == 0

    words = ["backup", "--study", bench.directory.root, target]
    return sweep(bench, words, NewFolder(bench, target, verifies), step)


def sweep_export(bench: Bench, step: int) -> list[tuple[str, int]]:
    target = bench.root / "moved"

    def verifies() -> None:
        assert verify_independently(target)[0] == 0
        assert contents(target) == contents(bench.place.exported)

    words = ["export", "--study", bench.directory.root, target]
    return sweep(bench, words, NewFolder(bench, target, verifies), step)


def sweep_import(bench: Bench, step: int) -> list[tuple[str, int]]:
    """By somebody else, who was given the owner's key."""
    log = SqliteLog.open_read_only(bench.directory.ledger)
    with as_user(bench.place.home):
        key = str(ledger_key(log))
    log.close()
    theirs = bench.root / "theirs"
    target = bench.root / "imported"

    def verifies() -> None:
        """What stands under its name is whole, and is held against the key that was given."""
        known = known_ledger(theirs, StudyDirectory(target).ledger)
        assert known is not None and known.key == key
        assert verify(target).status == "unanchored"

    words = ["import", bench.place.exported, target, "--key", key]
    return sweep(bench, words, NewFolder(bench, target, verifies), step, theirs)


def sweep_gc(bench: Bench, step: int) -> list[tuple[str, int]]:
    left_behind = 4

    def check(ended: Ended | None) -> None:
        log = SqliteLog.open_read_only(bench.directory.ledger)
        left = find_leftovers(bench.directory, log, 0)
        log.close()
        assert len(left) <= left_behind
        if ended is not None:
            assert (ended.status, left) == (0, []), ended.printed
        bench.check_sound()

    words = ["gc", "--remove", "--older-than", "0", "--study", bench.directory.root]
    return sweep(bench, words, check, step)


def sweep_checkpoint(bench: Bench, step: int) -> list[tuple[str, int]]:
    """With a copy on another place and a push to a remote, both recorded."""
    copy, remote = bench.root / "notes", bench.root / "remote"

    def check(ended: Ended | None) -> None:
        facts = bench.facts()
        anchored = [fact.event for fact in facts if isinstance(fact.event, CheckpointAnchored)]
        report = bench.check_sound()
        counting = [anchor.kind for anchor in report.anchors if anchor.counts]
        for event in anchored:
            assert event.kind in counting, "recorded, and not there"
        if copy.exists():
            notes, strays, rest = split_notes(copy.read_bytes())
            assert (strays, rest) == ([], b"")
            published, _, _ = split_notes(bench.directory.checkpoints.read_bytes())
            assert set(notes) <= set(published)
        if ended is not None:
            assert ended.status == 0, ended.printed
            assert {event.kind for event in anchored} == {"copy", "git"}
            check_orders(facts, AnchorCheckpoint)

    words = ["checkpoint", "--copy", copy, "--push", remote, "--study", bench.directory.root]
    return sweep(bench, words, check, step)


@pytest.fixture
def amendable(new_place: NewPlace) -> Bench:
    """A frozen suite of one family whose study.toml has got another memory since."""
    place = new_place()
    root = place.directory.root
    run = lambda *words: pytest.raises(SystemExit, main, [str(word) for word in words])  # noqa: E731
    root.rmdir()
    assert run("init", root, "--template", "transfer").value.code == 0
    toml = root / "study.toml"
    keep_one_family(toml)
    assert run("freeze", "--study", root).value.code == 0
    toml.write_text(
        toml.read_text() + '\n[[memories]]\nid = "folder"\nkind = "folder"\n'
        '\n[[systems]]\nmemory = "folder"\ndriver = "reader"\n'
    )
    bench = Bench(place, place.root.with_name(f"{place.root.name}-kept"))
    bench.keep()
    return bench


def sweep_amend(bench: Bench, step: int) -> list[tuple[str, int]]:
    recorded_before = False

    def check(ended: Ended | None) -> None:
        nonlocal recorded_before
        facts = bench.facts()
        amendments = [fact.event for fact in facts if isinstance(fact.event, AmendmentRecorded)]
        assert len(amendments) <= 1
        bench.check_sound()
        if ended is None:
            recorded_before = bool(amendments)
            return
        if recorded_before:
            assert ended.status == 1, ended.printed
            assert "nothing that is frozen has changed" in ended.printed
        else:
            assert ended.status == 0, ended.printed
        recorded_before = False
        (amendment,) = amendments
        assert amendment.plan is not None and amendment.finding == "before_first_cell"
        check_orders(facts, AmendStudy)

    words = ["amend", "--reason", "one more memory", "--study", bench.directory.root]
    return sweep(bench, words, check, step)


def check_orders(facts: Sequence[Fact], kind: type) -> None:
    """Every order ended exactly once."""
    orders = [
        fact.id
        for fact in facts
        if isinstance(fact.event, CommandRequested) and isinstance(fact.event.command, kind)
    ]
    ends = [fact.event.command for fact in facts if isinstance(fact.event, FINISHES_COMMAND)]
    assert [ends.count(order) for order in orders] == [1] * len(orders)


SWEEPS = [sweep_backup, sweep_export, sweep_import, sweep_gc, sweep_checkpoint]


def test_an_import_is_killed_at_some_of_its_calls(bench: Bench) -> None:
    """Also in the moment in which the new folder has just got its name."""
    assert len(sweep_import(bench, FEW)) >= 1


@pytest.mark.slow
def test_every_command_is_killed_at_every_call(bench: Bench, amendable: Bench) -> None:
    points = []
    for swept in SWEEPS:
        points += swept(bench, 1)
        bench.put_back()
    count(KIND, [*points, *sweep_amend(amendable, 1)])
