"""A small frozen rehearsal of the example repository on disk, and its runs by the real commands.

Every command is a process of its own (``python -m ledger …``), as a user starts it: only so can it
be killed, stopped and interrupted, and only so does it start its workers the way it does for users.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from actors.rehearsal import example_repository
from actors.test_runs.git import Git
from ledger.cli.init import with_this_python
from ledger.log import FINISHES_COMMAND, Fact, decode
from ledger.sqlite.log import SqliteLog
from schemas.events.cell import (
    CellFinished,
    CellStarted,
    ToolCalled,
    TurnAbandoned,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from schemas.events.command import CommandRequested
from schemas.events.grading import CellGraded
from tests.end_to_end import canaries

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "actors" / "rehearsal" / "templates" / "demo.toml"
HEAD_SUBJECT = "Descriptions speak of the 11st, 12nd and 13rd of a month"
"""An early commit that is a valid task itself: little history to mine, few tests to run."""
PATIENCE = 300
"""Seconds after which a command hangs. Nothing is asserted about anything shorter."""


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


@dataclass
class StudyOnDisk:
    """A study's folder, its user's configuration folder, and the variables its commands get."""

    path: Path
    config: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.path / "var" / "ledger.db"

    def environment(self, extra: Mapping[str, str] = {}) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("LEDGER")},
            **canaries.VARIABLES,
            "HOME": str(canaries.make_home(self.config.parent / "home")),
            "LEDGER_CONFIG_HOME": str(self.config),
            **self.variables,
            **extra,
        }

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        """Start ``ledger WORDS --study …`` in a session of its own."""
        if words[0] == "run" or words[:2] == ("tasks", "validate"):
            # Our own code is under test: a host without a sandbox tests the rest all the same.
            words += ("--unsafe-no-sandbox",)
        return subprocess.Popen(
            [sys.executable, "-m", "ledger", *words, "--study", str(self.path)],
            cwd=ROOT,
            env=self.environment(options.pop("variables", {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            umask=0,  # what a command writes is private because the command sees to it
            **options,
        )

    def ledger_command(self, *words: str, **options: Any) -> Ran:
        """Run ``ledger WORDS --study …`` to its end."""
        return finish(self.start(*words, **options))

    def copy(self, to: Path) -> "StudyOnDisk":
        """An independent copy. The configuration too: what a verifier has seen of one copy would
        contradict the other."""
        to.mkdir(parents=True)
        shutil.copytree(self.path, to / "study", symlinks=True)
        shutil.copytree(self.config, to / "config")
        return StudyOnDisk(to / "study", to / "config")

    def facts(self) -> list[Fact]:
        log = SqliteLog.open_read_only(self.ledger)
        try:
            return [decode(stored) for stored in log.read()]
        finally:
            log.close()

    def processes(self) -> dict[int, str]:
        """Living processes that work on this study, by what stands in /proc: pid to command."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            named = any(os.fsencode(self.path) in word for word in words)
            if named and state not in (b"Z", b"X"):
                found[int(entry.name)] = b" ".join(words).decode("utf-8", "replace")
        return found

    def server_log(self) -> list[dict[str, Any]]:
        """What the stand-in itself has written down, over all of its lives."""
        lines = (self.path / "var" / "run" / "stand_in" / "stand_in.jsonl").read_bytes()
        return [msgspec.json.decode(line) for line in lines.splitlines()]

    def chat_requests(self) -> int:
        """How many turns the stand-in was asked for."""
        return sum(
            entry["event"] == "request" and entry["path"] == "/v1/chat/completions"
            for entry in self.server_log()
        )


def finish(process: "subprocess.Popen[str]") -> Ran:
    """Wait for a command's end."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert canaries.MARK not in out + err
    return Ran(process.returncode, out, err)


def make_mined_study(place: Path, head_subject: str = HEAD_SUBJECT, tasks: int = 1) -> StudyOnDisk:
    """One model, both arms: two cells a task. Mined from the commit of this subject backwards."""
    study = StudyOnDisk(place / "study", place / "config")
    study.path.mkdir(parents=True)
    repository = study.path / "example-repository"
    example_repository.create(repository)
    head = Git(repository).text("log", "--format=%H", "--fixed-strings", f"--grep={head_subject}")
    text = with_this_python(TEMPLATE.read_text(encoding="utf-8"))
    text = text.replace("HEAD-OF-THE-EXAMPLE-REPOSITORY", head)
    text = text.replace("tasks = 8\n", f"tasks = {tasks}\n")
    # The second model and the contrast that needs it.
    text = without_block(text, '[[models]]\nid = "M003"')
    text = without_block(text, '[[contrasts]]\nid = "replication"')
    # Enough for every kind of step, a run of the public tests included.
    text = without_block(text, "[budgets]") + "\n[budgets]\nturns = 12\ntest_runs = 1\n"
    # What stops for want of room has tests of its own; the others run on any disk.
    text += "\n[stopping]\nmin_free_disk_bytes = 0\n"
    (study.path / "study.toml").write_text(text, encoding="utf-8")
    initialise(study)
    take_steps(study, "tasks mine")
    return study


def initialise(study: StudyOnDisk, *options: str) -> None:
    """`ledger init`; a study.toml that is there already is kept."""
    initialised = subprocess.run(
        [sys.executable, "-m", "ledger", "init", str(study.path), *options],
        cwd=ROOT,
        env=study.environment(),
        umask=0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert initialised.returncode == 0, initialised.stderr


def make_validated_study(place: Path) -> StudyOnDisk:
    """One task, validated and not yet frozen."""
    study = make_mined_study(place)
    take_steps(study, "tasks validate")
    return study


def freeze(study: StudyOnDisk) -> None:
    """Freeze the tasks, the plan and the study."""
    take_steps(study, "tasks freeze", "plan", "freeze")


def take_steps(study: StudyOnDisk, *steps: str) -> None:
    """Run commands that must succeed."""
    for step in steps:
        ran = study.ledger_command(*step.split())
        assert ran.status == 0, f"{step}: {ran.err}"


def without_block(text: str, begin: str) -> str:
    """``text`` without the TOML table that begins so."""
    before, found, rest = text.partition(begin)
    assert found, f"the template has no {begin!r}"
    _, newline, after = rest.partition("\n\n")
    return before + (after if newline else "")


# --- what a study has come to --------------------------------------------------------------------


def outcomes(facts: list[Fact]) -> dict[str, tuple[object, ...]]:
    """By cell, everything about its last attempt that a crash must not change."""
    found: dict[str, list[object]] = {}
    for fact in facts:
        match fact.event:
            case CellStarted() as event:
                found[str(event.cell)] = []
            case ToolCalled() as event:
                found[fact.stream.removeprefix("cell/")].append(
                    (event.tool, event.arguments.digest, event.result.digest)
                )
            case CellFinished() as event:
                found[str(event.cell)] += [
                    event.ended,
                    event.detail,
                    (event.turns, event.tool_calls, event.test_runs),
                    (event.tree, event.patch.digest, event.overlay.digest, event.changed_paths),
                ]
            case CellGraded() as event:
                found[str(event.cell)] += [
                    (event.verdict, event.resolved, event.resolved_if_submitted),
                    (event.fail_to_pass_passed, event.pass_to_pass_passed),
                ]
    return {cell: tuple(state) for cell, state in found.items()}


def check_turns(study: StudyOnDisk, facts: list[Fact]) -> None:
    """No model call was repeated but as a recorded attempt, by the log and by the server's own."""
    turns: dict[tuple[str, int, int], list[TurnStarted]] = {}
    ends: Counter[tuple[tuple[str, int, int], int]] = Counter()
    answered: Counter[tuple[str, int, int]] = Counter()
    cell_attempt: dict[str, int] = {}
    for fact in facts:
        match fact.event:
            case CellStarted() as event:
                cell_attempt[fact.stream] = event.attempt
            case TurnStarted() as event:
                key = (fact.stream, cell_attempt[fact.stream], event.turn)
                turns.setdefault(key, []).append(event)
            case TurnAnswered() | TurnFailed() | TurnAbandoned() as event:
                key = (fact.stream, cell_attempt[fact.stream], event.turn)
                ends[key, event.attempt] += 1
                answered[key] += isinstance(event, TurnAnswered)
    for key, started in turns.items():
        assert [one.attempt for one in started] == list(range(len(started))), key
        assert all(ends[key, one.attempt] == 1 for one in started), f"{key}: {ends}"
        assert answered[key] <= 1, f"{key} was answered {answered[key]} times"
    asked = sum(map(len, turns.values()))
    observed = sum(isinstance(f.event, TurnAnswered) for f in facts)
    # A process killed between its record and its request has recorded one more than it has sent.
    assert observed <= study.chat_requests() <= asked


def check_commands(facts: list[Fact]) -> None:
    """Every command ended exactly once."""
    ends = Counter(f.event.command for f in facts if isinstance(f.event, FINISHES_COMMAND))
    requested = {f.id: f.event for f in facts if isinstance(f.event, CommandRequested)}
    assert set(ends) <= set(requested)
    assert set(ends.values()) <= {1}
    pending = [f"{command}: {requested[command]}" for command in requested if command not in ends]
    assert pending == []


def check_sound(study: StudyOnDisk, expected: Mapping[str, tuple[object, ...]]) -> None:
    """The study came to the expected outcomes, and everything that was promised of it holds."""
    facts = study.facts()
    status = study.ledger_command("status", "--json").json
    assert status["completed"]
    assert outcomes(facts) == expected
    check_turns(study, facts)
    check_commands(facts)
    verified = study.ledger_command("verify-chain", "--json")
    assert (verified.status, verified.json["findings"]) == (0, []), verified.out
    replayed = study.ledger_command("replay", "--check", "--json")
    assert replayed.status == 0 and replayed.json["identical"], replayed.out
    audited = study.ledger_command("audit", "--json")
    assert audited.status == 0 and audited.json["ok"], audited.out
