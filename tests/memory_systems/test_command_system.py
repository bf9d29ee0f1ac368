"""A command that speaks JSON lines: the documented example, and everything that one may do wrong.

Each hostile system is a program of a few lines; what it does becomes a class of ``case.finished``,
and no run is void.
"""

import json
import py_compile
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.memory_systems.command import CommandSystem
from actors.memory_systems.contract import CaseFolders, Opening, SystemFailure
from actors.memory_systems.process import (
    MAX_LINE,
    MAX_SAID,
    find_program,
    unbound_files,
    words_that_reach,
)
from actors.sandbox import open_sandbox
from ledger.errors import Refused
from schemas.events.mining import SandboxProbed
from schemas.events.transfer import (
    CaseFinished,
    DecisionDeclared,
    FixtureCalled,
    MemoryRetrieved,
    MemorySeeded,
    SessionClosed,
    SessionOpened,
    StoreSnapshotted,
    SurfaceRead,
    SystemDescribed,
)
from schemas.transfer.rendering import is_intact
from schemas.transfer.study import Memory

Make = Callable[..., Any]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "notes_agent.py"
POSITIVE = "F101-01-positive.d0/agent/own/0"


def of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def agent(path: Path) -> Memory:
    return Memory(id="agent", kind="command", command=("python3", str(path)))


PRELUDE = """
import json, os, sys, time

def say(**message):
    print(json.dumps(message), flush=True)

def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

HELLO = dict(type="hello", trace="retrieval", store="readable", deterministic=True)

def serve(**instead):
    while True:
        message = hear()
        kind = message["type"]
        if kind in instead:
            instead[kind](message)
        elif kind == "hello":
            say(**HELLO)
        elif kind == "seed":
            with open("store/notes.jsonl", "a") as file:
                for record in message["records"]:
                    print(json.dumps(record), file=file)
            say(type="seeded", ids={r["id"]: [r["id"]] for r in message["records"]})
        elif kind == "snapshot":
            say(type="snapshot", path="notes.jsonl")
        elif kind == "prompt":
            say(type="final", text="done")
        elif kind == "close":
            sys.exit(0)
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Memory]:
    """A memory whose program is the prelude and some lines more."""

    def write(body: str) -> Memory:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        path = folder / "agent.py"
        path.write_text(PRELUDE + textwrap.dedent(body))
        return agent(path)

    return write


def finished(events: list[Any]) -> CaseFinished:
    (end,) = of(events, CaseFinished)
    assert end is events[-1]
    return end


# --- the documented example -----------------------------------------------------------------------


def test_the_documented_example_is_short_and_reaches_the_decision(worker: Make) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    lab = worker(agent(EXAMPLE))
    events = lab.run(POSITIVE)
    assert finished(events).ended == "completed", finished(events).detail
    seeded, described = of(events, MemorySeeded)[0], of(events, SystemDescribed)[0]
    assert seeded.ids == {"CT-101": ("CT-101",)}
    assert (described.capabilities.trace, described.capabilities.store) == ("admitted", "readable")
    before = of(events, StoreSnapshotted)[0]
    assert (before.when, before.grade) == ("before_session", "captured")
    (item,) = lab.read(before.items)
    assert is_intact(lab.read(seeded.renderings)["CT-101"], item["text"])
    retrieved = of(events, MemoryRetrieved)[0]
    assert (retrieved.grade, retrieved.admitted) == ("reported", ("CT-101",))
    decision = of(events, DecisionDeclared)[0]
    assert (decision.option, decision.grade, decision.basis) == (
        "staging",
        "captured",
        ("CT-101",),
    )
    assert [call.tool for call in of(events, FixtureCalled)] == ["declare_decision"]
    assert of(events, SurfaceRead)[0].side_effects == ()


def test_the_example_keeps_what_it_is_taught_in_another_process(worker: Make) -> None:
    events = worker(agent(EXAMPLE)).run("F105-02-persistence.d0/agent/own/0")
    assert finished(events).ended == "completed", finished(events).detail
    before, after, again, _ = of(events, StoreSnapshotted)
    assert before.digest != after.digest == again.digest
    write, task = of(events, SessionOpened)
    assert write.freshness == task.freshness
    assert write.freshness["home"] == "new and empty, of this process alone"
    assert of(events, SessionClosed)[0].claims[0].kind == "saved"


def test_the_same_cell_gives_the_same_records(worker: Make) -> None:
    first, second = (worker(agent(EXAMPLE)).run(POSITIVE) for _ in range(2))
    assert first == second


def test_no_layer_of_a_strangers_program_is_seen_and_its_files_are_its_identity(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    lab = worker(program("serve()"))
    described = of(lab.run(POSITIVE), SystemDescribed)[0]
    memory, driver = lab.read(described.memory), lab.read(described.driver)
    assert (memory["layers"], driver["layers"]) == ({}, {})
    assert list(memory["sources"]) == ["program/agent.py"]
    other = worker(program("serve()  # changed"))
    changed = other.read(of(other.run(POSITIVE), SystemDescribed)[0].memory)
    assert changed["sources"] != memory["sources"]


def test_what_is_not_declared_is_not_there(worker: Make, program: Callable[[str], Memory]) -> None:
    silent = program("serve(hello=lambda message: say(type='hello'))")
    events = worker(silent).run(POSITIVE)
    end = finished(events)
    assert end.ended == "completed", end.detail
    assert {(shot.digest, shot.grade, shot.items) for shot in of(events, StoreSnapshotted)} == {
        ("", "none", None)
    }
    assert [line.split(":")[0] for line in end.uncertainty] == [
        "retention",
        "retrieval and relevance",
        "decision",
    ]


def test_a_store_that_is_told_and_not_shown_is_its_own_word(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    told = program(
        """
        serve(snapshot=lambda m: say(type="snapshot", items=[{"id": "CT-101", "text": "all"}]))
        """
    )
    shots = of(worker(told).run(POSITIVE), StoreSnapshotted)
    assert [shot.grade for shot in shots] == ["reported", "reported"]


@pytest.mark.parametrize(
    ("also", "whole"),
    [
        ("pass", True),
        ("open('store/other.txt', 'w').write(message['text'])", False),
        ("os.makedirs('store/' + message['text'][:20], exist_ok=True)", False),
        ('open("store/notes.jsonl", "a").write(\'{"text": "x", "id": "n", "text": "y"}\')', False),
    ],
)
def test_a_store_of_more_than_the_named_file_is_not_all_shown(
    worker: Make, program: Callable[[str], Memory], also: str, whole: bool
) -> None:
    keeps = program(
        f"""
        def keep(message):
            with open("store/notes.jsonl", "a") as file:
                print(json.dumps({{"id": "n", "text": "a"}}), file=file)
            {also}
            say(type="final", text="done")

        serve(hello=lambda message: say(**HELLO, write_path=True), prompt=keep)
        """
    )
    events = worker(keeps).run("F105-02-persistence.d0/agent/own/0")
    before, after, *_ = of(events, StoreSnapshotted)
    assert before.digest != after.digest
    assert (before.whole, after.whole) == (True, whole)


def test_a_session_is_a_process_with_nothing_of_the_last_one(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    looks = program(
        """
        def look(message):
            seen = {
                "cwd": sorted(os.listdir(".")),
                "home": sorted(os.listdir(os.environ["HOME"])),
                "names": sorted(os.environ),
            }
            for place in (".", os.environ["HOME"]):
                open(os.path.join(place, "left-behind"), "w").close()
            say(type="final", text=json.dumps(seen))
        serve(prompt=look)
        """
    )
    lab = worker(looks)
    events = lab.run("F105-02-persistence.d0/agent/own/0")
    assert finished(events).ended == "completed", finished(events).detail
    seen = [
        msgspec.json.decode(lab.context.artifacts.get(closed.text))
        for closed in of(events, SessionClosed)
    ]
    assert len(seen) == 2
    for look in seen:
        assert (look["cwd"], look["home"]) == (["store"], [])
        assert {"HOME", "TMPDIR", "PATH"} <= set(look["names"])
        assert set(look["names"]) <= {
            "HOME", "TMPDIR", "PATH", "LC_ALL", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED",
            "PWD", "LC_CTYPE", "LEDGER_PROXY_JOURNAL",
        }  # fmt: skip


# --- what systems do wrong ------------------------------------------------------------------------

HOSTILE = {
    "never says hello": ("time.sleep(60)", "timed_out", "did not say hello"),
    "hangs at the prompt": ("serve(prompt=lambda m: time.sleep(60))", "timed_out", "not answer"),
    "does not end": (
        "serve(close=lambda m: time.sleep(60), prompt=lambda m: time.sleep(60))",
        "timed_out",
        "not answer",
    ),
    "crashes at the start": ("raise SystemExit('no model')", "crashed", "status 1: no model"),
    "asks the network": (
        "import socket; socket.create_connection(('192.0.2.1', 9))",
        "crashed",
        "the sandbox has no network",
    ),
    "crashes at the prompt": ("serve(prompt=lambda m: 1 / 0)", "crashed", "ZeroDivisionError"),
    "kills itself": ("serve(prompt=lambda m: os.kill(os.getpid(), 9))", "crashed", "signal 9"),
    "says what is no JSON": (
        "serve(prompt=lambda m: print('Sure! {', flush=True))",
        "malformed",
        "Sure! {",
    ),
    "says what is no text": (
        "serve(prompt=lambda m: os.write(1, b'\\xff\\xfe\\n'))",
        "malformed",
        "",
    ),
    "says JSON without an end": (
        "serve(prompt=lambda m: print('[' * 100_000, flush=True))",
        "malformed",
        "",
    ),
    "says what nobody knows": ("serve(prompt=lambda m: say(type='thought'))", "malformed", "tho"),
    "shows what it did not declare": (
        "serve(prompt=lambda m: say(type='plan', decision='staging'))",
        "malformed",
        "hello declares `plan` none",
    ),
    "answers another question": (
        "serve(prompt=lambda m: say(type='snapshot', path='x'))",
        "malformed",
        "'snapshot' has no place in a session",
    ),
    "answers after its last word": (
        """
        def twice(message):
            say(type="final", text="done")
            say(type="tool_call", id="1", name="declare_decision", arguments={"option": "staging"})
        serve(prompt=twice)
        """,
        "malformed",
        "after its last word",
    ),
    "answers after close": (
        "serve(close=lambda m: say(type='final', text='one more thing'))",
        "malformed",
        "after its last word",
    ),
    "seeds what nobody gave": (
        "serve(seed=lambda m: say(type='seeded', ids={'CT-999': ['x']}))",
        "malformed",
        "'CT-999' was not given",
    ),
    "declares something else later": (
        """
        if os.path.exists("store/notes.jsonl"):
            HELLO["trace"] = "used"
        serve()
        """,
        "malformed",
        "something else than before",
    ),
    "says a line without an end": (
        """
        def flood(message):
            while True:
                os.write(1, b"x" * 65536)
        serve(prompt=flood)
        """,
        "flooded",
        f"a line of more than {MAX_LINE} bytes",
    ),
    "says lines without an end": (
        """
        def flood(message):
            while True:
                say(type="retrieval", query="x" * 500_000, items=[])
        serve(prompt=flood)
        """,
        "flooded",
        "",
    ),
    "calls without an end": (
        """
        def flood(message):
            while True:
                say(type="tool_call", id="1", name="nothing")
                hear()
        serve(prompt=flood)
        """,
        "flooded",
        "more than 64 calls",
    ),
    "keeps ten thousand files": (
        """
        def flood(message):
            for number in range(10_001):
                open(f"store/{number}", "w").close()
            say(type="final")
        serve(prompt=flood)
        """,
        "flooded",
        "files in live",
    ),
    "nests folders without an end": (
        """
        def nest(message):
            os.chdir("store")
            for _ in range(2_000):
                os.mkdir("n")
                os.chdir("n")
            say(type="final")
        serve(prompt=nest)
        """,
        "flooded",
        "paths of more than 512 bytes in live",
    ),
    "names a store elsewhere": (
        "serve(snapshot=lambda m: say(type='snapshot', path='../../secret'))",
        "malformed",
        "leads out of `store`",
    ),
    "names a link as its store": (
        """
        def link(message):
            os.symlink("/etc/passwd", "store/link")
            say(type="snapshot", path="link")
        serve(snapshot=link)
        """,
        "malformed",
        "is a link",
    ),
    "names a pipe as its store": (
        """
        def pipe(message):
            os.mkfifo("store/pipe")
            say(type="snapshot", path="pipe")
        serve(snapshot=pipe)
        """,
        "malformed",
        "not a file",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_system_does_wrong_is_a_class_and_never_void(
    name: str, worker: Make, program: Callable[[str], Memory]
) -> None:
    body, ended, detail = HOSTILE[name]
    lab = worker(program(body), session_s=2 if ended == "timed_out" else 20)
    end = finished(lab.run(POSITIVE))
    assert (end.ended, detail in end.detail) == (ended, True), end
    assert not list((lab.context.directory.var / "scratch" / "memory_session").iterdir())


def test_unknown_tools_and_ids_are_recorded_as_they_are(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    strange = program(
        """
        def odd(message):
            say(type="retrieval", query="?", items=[{"id": "nobody-knows", "text": "x"}])
            say(type="tool_call", id="\\u0000", name="rm -rf", arguments={"path": "/"})
            assert hear()["error"] == "unknown_tool"
            say(type="tool_call", id="2", name="declare_decision", arguments=[1])
            assert hear()["error"] == "malformed_arguments"
            say(type="final", text="done", claims=[{"kind": "checked", "about": "nothing"}])
        serve(prompt=odd)
        """
    )
    events = worker(strange).run(POSITIVE)
    assert finished(events).ended == "completed", finished(events).detail
    assert of(events, MemoryRetrieved)[0].delivered[0].id == "nobody-knows"
    assert [(call.tool, call.ok, call.effect) for call in of(events, FixtureCalled)] == [
        ("rm -rf", False, "none"),
        ("declare_decision", False, "decide"),
    ]


WRITER = """
def everywhere(message):
    tried = {{}}
    for place in ("/etc/x", "../x", {own!r}, {case!r}):
        try:
            open(place, "w").write("here")
            tried[place] = "written"
        except OSError as error:
            tried[place] = type(error).__name__
    say(type="final", text=json.dumps(tried))
serve(prompt=everywhere)
"""


def test_a_system_cannot_write_outside_its_directory(
    worker: Make, program: Callable[[str], Memory], tmp_path: Path, sandbox_event: SandboxProbed
) -> None:
    if sandbox_event.kind == "none":
        pytest.skip("nothing on this host contains a program")
    own, aside = tmp_path / "program" / "agent.py", tmp_path / "elsewhere"
    lab = worker(program(WRITER.format(own=str(own), case=str(aside))))
    content = own.read_text()
    events = lab.run(POSITIVE)
    assert finished(events).ended == "completed", finished(events).detail
    tried = msgspec.json.decode(lab.context.artifacts.get(of(events, SessionClosed)[0].text))
    assert "written" not in tried.values() and len(tried) == 4
    assert (own.read_text(), aside.exists()) == (content, False)
    assert of(events, SurfaceRead)[0].side_effects == ()


def test_without_a_sandbox_what_it_changed_is_found_by_comparing_hashes(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    body = """
    def change(message):
        with open({own!r}, "a") as file:
            file.write("# was here")
        os.mkfifo("store/pipe")
        say(type="final")
    serve(prompt=change)
    """
    memory = program("")
    own = memory.command[1]
    memory = program(body.format(own=own))
    accepted = SandboxProbed(kind="none", enforced={}, accepted_unsafe=True)
    events = worker(memory, probed=accepted).run(POSITIVE)
    assert of(events, SurfaceRead)[0].side_effects == (
        "program: program/agent.py",
        "store: pipe",
    )


def test_no_program_runs_where_nothing_contains_it_and_nobody_accepted_that(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    refused = SandboxProbed(kind="none", enforced={}, accepted_unsafe=False)
    with pytest.raises(Exception, match="--unsafe-no-sandbox"):
        worker(program("serve()"), probed=refused).run(POSITIVE)
    with pytest.raises(Refused, match="without a probe"):
        worker(program("serve()"), probed=None).run(POSITIVE)


def test_a_path_says_nothing_of_what_is_expected(
    worker: Make, program: Callable[[str], Memory]
) -> None:
    where = program("serve(prompt=lambda m: say(type='final', text=os.getcwd()))")
    accepted = SandboxProbed(kind="none", enforced={}, accepted_unsafe=True)
    lab = worker(where, probed=accepted)
    events = lab.run(POSITIVE)
    directory = lab.context.artifacts.get(of(events, SessionClosed)[0].text).decode()
    assert directory.endswith("/workspace")
    assert "positive" not in directory and "F101" not in directory


# --- its pieces -----------------------------------------------------------------------------------


def test_a_store_is_restored_by_its_digest(
    tmp_path: Path, program: Callable[[str], Memory], sandbox_event: SandboxProbed
) -> None:
    folders = CaseFolders(tmp_path / "case")
    folders.create()

    def sandbox() -> Any:
        return open_sandbox(
            sandbox_event.kind,  # type: ignore[arg-type]
            tmp_path,
            unsafe=sandbox_event.accepted_unsafe,
        )

    system = CommandSystem(program("serve()"), Opening(folders, 10.0, sandbox, tmp_path))
    empty = system.snapshot()
    system.seed({"a": "one text"})
    full = system.snapshot()
    assert (empty.items, full.items and full.items[0].text) == ((), "one text")
    system.restore(empty.digest)
    assert system.snapshot() == empty
    system.restore(full.digest)
    assert system.snapshot() == full
    for unknown in ("0" * 64, "", "../live"):
        with pytest.raises(LookupError, match="snapshot"):
            system.restore(unknown)
    system.close()


def test_what_a_program_closes_is_seen_all_the_same(
    tmp_path: Path, program: Callable[[str], Memory], sandbox_event: SandboxProbed
) -> None:
    """A folder without rights is empty to whoever may not read it, and its owner opens it again."""
    folders = CaseFolders(tmp_path / "case")
    folders.create()
    closing = program(
        """
        def close(message):
            os.mkdir("store/d")
            with open("store/d/kept", "w") as file:
                file.write("what was taught")
            os.chmod("store/d/kept", 0)
            os.chmod("store/d", 0)
            say(type="seeded", ids={})
        serve(seed=close)
        """
    )
    kind, unsafe = sandbox_event.kind, sandbox_event.accepted_unsafe
    opening = Opening(
        folders,
        10.0,
        lambda: open_sandbox(kind, tmp_path, unsafe=unsafe),  # type: ignore[arg-type]
        tmp_path,
    )
    system = CommandSystem(closing, opening)
    system.seed({"a": "one text"})
    assert not system.snapshot().whole
    (kept,) = folders.store.glob("live/d/kept")
    assert (kept.stat().st_mode & 0o600, kept.parent.stat().st_mode & 0o700) == (0o600, 0o700)
    system.close()


def test_a_program_sees_its_own_folder_and_never_the_studys(tmp_path: Path) -> None:
    study = tmp_path / "study"
    (study / "agent").mkdir(parents=True)
    for path in ("agent/main.py", "main.py", "agent/node_modules/x/dist/index.js"):
        (study / path).parent.mkdir(parents=True, exist_ok=True)
        (study / path).write_text("")
    nested = find_program(("python3", "agent/main.py", "--flag", "word"), study)
    assert nested.own == (study / "agent",)
    assert nested.command[1:] == (str(study / "agent" / "main.py"), "--flag", "word")
    assert find_program(("python3", "main.py"), study).own == (study / "main.py",)
    (study / "agent" / "AGENTS.md").write_text("")
    command = ("python3", "agent/main.py")
    assert "agent/AGENTS.md" in unbound_files(command, study, ["agent/main.py"])
    assert "agent/main.py" not in unbound_files(command, study, ["agent/main.py"])
    assert unbound_files(("python3", "main.py"), study, ["main.py"]) == []
    packaged = find_program(("python3", "agent/node_modules/x/dist/index.js"), study)
    assert study / "agent" / "node_modules" in packaged.visible
    assert packaged.own == (study / "agent/node_modules/x/dist/index.js",)
    assert all(not study.is_relative_to(path) for path in packaged.visible)
    assert list(packaged.sources()) == ["index.js"]  # it is what runs, wherever it lies
    for missing in ("no-such-program", "./main.py"):
        with pytest.raises(Refused, match="is no program here"):
            find_program((missing,), study)


def test_no_program_of_a_stranger_runs_outside_of_the_sandbox(tmp_path: Path) -> None:
    """A Python named by its path is known by where it lies, and not by asking it."""
    study = tmp_path / "study"
    for folder in ("tools", "inner/bin", "inner/lib/python3.9"):
        (study / folder).mkdir(parents=True)
    (study / "inner/lib/python3.9/os.py").touch()
    told = json.dumps(["3.11.7", str(study / "tools/python_agent"), str(study), []])
    for path in ("tools/python_agent", "inner/bin/python3"):
        (study / path).write_text(f"#!/bin/sh\ntouch {study}/it-ran\necho '{told}'\n")
        (study / path).chmod(0o755)
    stranger = find_program(("tools/python_agent",), study)
    assert stranger.visible == (study / "tools/python_agent",)
    assert list(stranger.sources()) == ["python_agent"]
    within = find_program(("inner/bin/python3",), study)
    assert within.visible == (study / "inner/bin/python3", study / "inner")
    assert list(within.sources()) == ["python3"]
    assert words_that_reach(("inner/bin/python3",), study, [study / "inner/F1.yaml"])
    assert not (study / "it-ran").exists()
    ours = find_program((sys.executable, "-c", ""), study)
    assert Path(sys.base_prefix) in ours.visible or sys.base_prefix == "/usr"
    assert ours.own == ()


def test_python_runs_the_source_and_no_compiled_copy_beside_it(
    worker: Make,
    program: Callable[[str], Memory],
    sandbox_event: SandboxProbed,
) -> None:
    """A copy can say something else than the file that the freeze has recorded."""
    if sandbox_event.kind == "none":
        pytest.skip("nothing on this host hides a folder")
    memory = program("import helper\nserve(prompt=lambda m: say(type='final', text=helper.WORD))")
    helper = Path(memory.command[1]).with_name("helper.py")
    helper.write_text("WORD = 'another'")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(helper), doraise=True, invalidation_mode=unchecked)
    helper.write_text("WORD = 'source'")
    lab = worker(memory)
    events = lab.run(POSITIVE)
    assert lab.context.artifacts.get(of(events, SessionClosed)[0].text) == b"source"
    assert of(events, SurfaceRead)[0].side_effects == ()


def test_what_is_said_is_bounded() -> None:
    assert MAX_LINE < MAX_SAID
    failure = SystemFailure("malformed", "x" * 5000)
    assert len(str(failure)) == 2000
    assert replace(Opening(CaseFolders(Path("x")), 1.0), seconds=2.0).seconds == 2.0
