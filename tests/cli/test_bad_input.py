"""Bad input of every kind: one clear message, the documented status, nothing lost.

No traceback can hide here: commands that run in this process raise it, and those that run in one of
their own are searched for it.
"""

import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.test_runs.git import Git
from ledger.cli.init import with_this_python
from ledger.study_directory import MAX_STUDY_BYTES, StudyDirectory
from schemas.events.command import CommandRefused
from schemas.events.run import RunStarted, RunStopped
from schemas.events.server import ServerMismatched
from tests.cli.conftest import Ran, Run
from tests.end_to_end.rehearsal_study import StudyOnDisk, check_sound, freeze, outcomes, take_steps
from tests.mining.conftest import BASE, FIX, History

TEN_MEGABYTES = 10_000_000
TEMPLATE = Path(__file__).parents[2] / "actors" / "rehearsal" / "templates" / "demo.toml"


def check_refused(ran: Ran, status: int, *says: str) -> None:
    """One message that says all of this, after lines of progress at most, and nothing on standard
    output."""
    assert ran.status == status, ran
    *progress, message, end = ran.err.split("\n")
    assert message.startswith("ledger: ") and end == "", ran.err
    assert all(re.match(r"\d+ of \d+ cells, \d+ graded; ", line) for line in progress), ran.err
    assert [text for text in says if text not in message] == [], ran.err
    assert ran.out == ""


# --- a corrupt ledger ----------------------------------------------------------------------------


def flip_the_beginning(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()[:16]) + path.read_bytes()[16:])


def flip_a_table(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:140] = bytes(byte ^ 0xFF for byte in content[100:140])
    path.write_bytes(content)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def not_a_database(path: Path) -> None:
    path.write_text("dear diary\n" * 1000)


def another_database(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[68:72] = b"\0\0\0\7"
    path.write_bytes(content)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/ledger.db")


@pytest.mark.parametrize(
    "damage",
    [
        flip_the_beginning,
        flip_a_table,
        cut_in_half,
        empty,
        not_a_database,
        another_database,
        a_folder,
        a_pipe,
        a_link_to_nowhere,
    ],
)
def test_a_corrupt_ledger(ledger: Run, study: Path, damage: Callable[[Path], None]) -> None:
    path = StudyDirectory(study).ledger
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    hint = "put a backup" if before is None else "ledger verify-chain"  # which has to have a file
    for words in (
        ["status"],
        ["audit", "completeness"],
        ["replay", "--check"],
        ["query", "SELECT 1"],
        ["tasks", "show"],
        ["plan"],
        ["run"],
        ["amend", "--reason", "why not"],
    ):
        check_refused(ledger(*words, "--study", study), 3, str(path), hint)
    check_refused(ledger("init", study), 3, str(path))
    verified = ledger("verify-chain", "--study", study, "--json")
    assert verified.status == 3
    assert verified.err or verified.json["findings"]
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_damaged_record_is_named(ledger: Run, study: Path) -> None:
    path = StudyDirectory(study).ledger
    content = path.read_bytes()
    place = content.index(b'"type":"study.completed.v1"')
    path.write_bytes(content[:place] + b"{" + content[place + 1 :])
    found = ledger("verify-chain", "--study", study, "--json")
    assert found.status == 3
    (seq, *_) = [finding["seq"] for finding in found.json["findings"] if finding["seq"] is not None]
    check_refused(ledger("status", "--study", study), 3, f"seq {seq}", "ledger verify-chain")


def test_no_ledger_and_no_study(ledger: Run, tmp_path: Path) -> None:
    check_refused(ledger("status", "--study", tmp_path), 2, "no study.toml", "ledger init")
    (tmp_path / "study.toml").write_text("")
    check_refused(ledger("status", "--study", tmp_path), 2, "no ledger yet", "ledger init")
    (tmp_path / "loop").symlink_to("loop")
    check_refused(ledger("status", "--study", tmp_path / "loop"), 5, "Too many levels")


# --- a study file --------------------------------------------------------------------------------


def replaced(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text, f"the template has no {old!r}"
        return text.replace(old, new, 1)

    return edit


def followed_by(more: str) -> Callable[[str], str]:
    return lambda text: text + more


DEEP = "[" * 5000 + "]" * 5000
STUDY_FILES: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    # name: (what is written wrong, what the message says)
    "unknown key": (lambda t: "colour = 1\n" + t, ("`colour`", "allowed here: format, kind, id")),
    "misspelt key": (
        replaced("preregistered =", "preregisterd ="),
        ("`preregisterd`", "did you mean `preregistered`?"),
    ),
    "unknown key in a table": (
        replaced("[budgets]", "[budgets]\nturn = 3"),
        ("`budgets.turn`", "did you mean `turns`?", "patch_bytes"),
    ),
    "unknown key in a list": (
        replaced('key = "qwen', 'color = 3\nkey = "qwen'),
        ("`models[0].color`", "allowed here: id, key, variant"),
    ),
    "missing key": (replaced('id = "demo"\n', ""), ("`id` is missing",)),
    "missing table": (lambda t: t.replace("[[repositories]]", "[[ repos ]]"), ("`repos`",)),
    "text for a number": (
        replaced("turns = ", 'turns = "6" #'),
        ("`budgets.turns`", "expected `int`, got `str`"),
    ),
    "truth for a number": (
        replaced("turns = ", "turns = true #"),
        ("`budgets.turns`", "expected `int`, got `bool`"),
    ),
    "fraction for a number": (
        replaced("turns = ", "turns = 2.5 #"),
        ("`budgets.turns`", "expected `int`, got `float`"),
    ),
    "number for text": (replaced('title = "', 'title = 3 #"'), ("`title`", "expected `str`")),
    "list for a table": (replaced("[budgets]", "[[budgets]]"), ("`budgets`", "expected `object`")),
    "zero": (replaced("turns = ", "turns = 0 #"), ("`budgets.turns`", ">= 1", "it is 0")),
    "negative": (
        replaced("test_runs = ", "test_runs = -1 #"),
        ("`budgets.test_runs`", ">= 0", "it is -1"),
    ),
    "too large for any machine": (
        replaced("turns = ", f"turns = {10**30} #"),
        ("`budgets.turns`", "no number here is larger than 9223372036854775807"),
    ),
    "thousands of digits": (replaced("turns = ", f"turns = {'9' * 5000} #"), ("not valid TOML",)),
    "not a number": (replaced("alpha = ", "alpha = nan #"), ("`analysis.alpha`", "> 0.0")),
    "infinite": (replaced("alpha = ", "alpha = inf #"), ("`analysis.alpha`", "< 1.0")),
    "a certain error": (replaced("alpha = ", "alpha = 1.0 #"), ("`analysis.alpha`", "< 1.0")),
    "more than all pairs": (
        replaced("[analysis]", "[analysis]\npower_new_only = 0.9\npower_baseline_only = 0.2"),
        ("`analysis.power_new_only`", "more than 1 together with power_baseline_only"),
    ),
    "context above its maximum": (
        replaced("context_length = 65536", "context_length = 999999"),
        ("`models[0].context_length`", "larger than max_context_length"),
    ),
    "a word that is not one of the allowed": (
        replaced('language = "python"', 'language = "cobol"'),
        ("`repositories[0].language`", 'allowed: "python", "go"'),
    ),
    "kind of another program": (
        replaced('kind = "repair"', 'kind = "poetry"'),
        ("`kind`", 'allowed: "repair"'),
    ),
    "no day": (
        replaced('not_before = "2023-01-01"', 'not_before = "2023-02-30"'),
        ("`tasks.not_before`", "2023-02-30", "no day"),
    ),
    "a date that is not in quotes": (
        replaced('not_before = "2023-01-01"', "not_before = 2023-01-01"),
        ("`tasks.not_before`", '"YYYY-MM-DD" in quotes'),
    ),
    "identifier with a slash": (
        replaced('id = "R001"', 'id = "R/1"'),
        ("`repositories[0].id`", "1 to 64 characters of A-Z a-z 0-9 . _ -"),
    ),
    "identifier with a last newline": (
        replaced('id = "R001"', 'id = "R001\\n"'),
        ("`repositories[0].id`", "1 to 64 characters"),
    ),
    "short head": (
        replaced("HEAD-OF-THE-EXAMPLE-REPOSITORY", "abc123"),
        ("`repositories[0].head`", "40 hexadecimal digits"),
    ),
    "the same model twice": (
        replaced('id = "M003"', 'id = "M002"'),
        ("`models[1].id`", "duplicate id 'M002'"),
    ),
    "the same arm twice": (
        replaced('id = "H018"', 'id = "H000"'),
        ("`treatments[1].id`", "duplicate id 'H000'"),
    ),
    "contrast of an unknown model": (
        replaced('model = "M003"', 'model = "M009"'),
        ("`contrasts[1].model`", "declared are M002, M003"),
    ),
    "contrast of an arm with itself": (
        replaced('new = "H018"', 'new = "H000"'),
        ("`contrasts[0]`", "cannot be compared with itself"),
    ),
    "a second primary contrast": (
        replaced('family = "secondary"', "primary = true"),
        ("`contrasts`", "at most one"),
    ),
    "real agents on the stand-in": (
        lambda t: "\n".join(
            line for line in t.splitlines() if not line.startswith("rehearsal")
        ).replace("simulated = true ", "simulated = false ", 1),
        ("`server.kind`", "simulated = true"),
    ),
    "outcomes before the end": (
        replaced('when = "end"', 'when = "beside"'),
        ("`grading.when`", 'a preregistered study grades at the "end"'),
    ),
    "document outside": (
        replaced('["protocol.md"]', '["../protocol.md"]'),
        ("`documents[0]`", "'../protocol.md'", "inside the study's folder"),
    ),
    "absolute document": (
        replaced('["protocol.md"]', '["/etc/passwd"]'),
        ("`documents[0]`", "inside the study's folder"),
    ),
    "document with NUL": (
        replaced('["protocol.md"]', '["a\\u0000b"]'),
        ("`documents[0]`", "inside the study's folder"),
    ),
    "the same document twice": (
        replaced('["protocol.md"]', '["protocol.md", "protocol.md"]'),
        ("`documents[1]`", "duplicate document"),
    ),
    "texts outside": (
        replaced("[tasks]", '[tasks]\ntexts = "../texts.jsonl"'),
        ("`tasks.texts`", "inside the study's folder"),
    ),
    "tests outside of the repository": (
        replaced('test_roots = ["tests"]', 'test_roots = ["../tests"]'),
        ("`repositories[0].layout.test_roots[0]`", "inside the repository"),
    ),
    "server without a scheme": (
        replaced('kind = "stand_in"', 'kind = "stand_in"\nurl = "localhost:1234"'),
        ("`server.url`", "http://127.0.0.1:1234"),
    ),
    "no such port": (
        replaced('kind = "stand_in"', 'kind = "stand_in"\nurl = "http://127.0.0.1:99999"'),
        ("`server.url`", "at most 65535"),
    ),
    "invalid TOML": (followed_by("\n[[["), ("not valid TOML", "line")),
    "a table twice": (followed_by("\n[analysis]\n"), ("not valid TOML", "analysis")),
    "NUL": (followed_by("\0"), ("not valid TOML", "line")),
    "nested without end": (lambda t: f"x = {DEEP}\n{t}", ("not valid TOML",)),
    "byte order mark": (lambda t: "\ufeff" + t, ("byte order mark",)),
    "empty": (lambda t: "", ("`kind` is missing",)),
    "too large": (
        lambda t: t + "#" * TEN_MEGABYTES,
        (f"at most {MAX_STUDY_BYTES}", "documents"),
    ),
}


@pytest.fixture(scope="session")
def begun(config_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a ledger, whose file the tests spoil."""
    from ledger.creation import create_ledger

    root = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEDGER_CONFIG_HOME", str(config_home))
        create_ledger(StudyDirectory(root))
    return root


def check_nothing_was_recorded(ledger: Run, study: Path) -> None:
    verified = ledger("verify-chain", "--study", study, "--json")
    assert verified.status == 0 and verified.json["head"]["seq"] == 0


@pytest.mark.parametrize("name", STUDY_FILES)
def test_a_study_file(ledger: Run, begun: Path, name: str) -> None:
    edit, says = STUDY_FILES[name]
    text = TEMPLATE.read_text(encoding="utf-8")
    if "HEAD-OF" in edit(text):
        edit = lambda t, edit=edit: edit(t).replace("HEAD-OF-THE-EXAMPLE-REPOSITORY", "0" * 40)  # noqa: E731
    file = begun / "study.toml"
    file.write_text(edit(text), encoding="utf-8")
    check_refused(ledger("tasks", "mine", "--study", begun), 2, f"{file}: ", *says)
    check_nothing_was_recorded(ledger, begun)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe" + TEMPLATE.read_bytes(), "not UTF-8 text (byte 0)"),
        (TEMPLATE.read_text("utf-8").encode("utf-16"), "not UTF-8 text (byte 0)"),
        (b'title = "\xe9"\n', "not UTF-8 text (byte 9)"),
    ],
)
def test_a_study_file_in_another_encoding(
    ledger: Run, begun: Path, content: bytes, says: str
) -> None:
    (begun / "study.toml").write_bytes(content)
    check_refused(ledger("tasks", "mine", "--study", begun), 2, says)
    check_nothing_was_recorded(ledger, begun)


def test_something_else_in_place_of_the_study_file(ledger: Run, begun: Path) -> None:
    file = begun / "study.toml"
    file.unlink(missing_ok=True)
    check_refused(ledger("tasks", "mine", "--study", begun), 2, "no study.toml", "ledger init")
    for make in (Path.mkdir, os.mkfifo):
        make(file)
        check_refused(ledger("tasks", "mine", "--study", begun), 2, f"{file} is not a file")
        (file.rmdir if file.is_dir() else file.unlink)()
    check_nothing_was_recorded(ledger, begun)


# --- a repository --------------------------------------------------------------------------------


def git_clone(source: Path, to: Path, *options: str) -> Path:
    Git(to.parent, {"GIT_ALLOW_PROTOCOL": "file"}).run(
        "clone", "--quiet", *options, f"file://{source}", str(to)
    )
    return to


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A bare repository: a root commit and a change that passes the static criteria."""
    history = History(tmp_path / "source.git")
    history.commit(BASE, "feat: begin")
    history.commit(FIX)
    return history


def study_of(folder: Path, url: str | Path, head: str, config: Path) -> Path:
    """A study of one repository with a ledger of its own."""
    from ledger.creation import create_ledger

    text = with_this_python(TEMPLATE.read_text(encoding="utf-8"))
    for old, new in (
        ("HEAD-OF-THE-EXAMPLE-REPOSITORY", head),
        ('url = "example-repository"', f'url = "{url}"'),
        ('test_roots = ["tests"]', 'test_roots = ["tests/unit"]'),
        ("package_roots = []", 'package_roots = ["pkg"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "study.toml").write_text(text, encoding="utf-8")
    (folder / "protocol.md").write_text("The protocol.\n", encoding="utf-8")
    create_ledger(StudyDirectory(folder))
    return folder


def without_objects(history: History, to: Path, *wanted: str) -> Path:
    """A copy of the repository with loose objects, from which these are missing."""
    shutil.copytree(history.path, to)
    for pack in (to / "objects" / "pack").glob("*.pack"):
        moved = to / pack.name
        pack.rename(moved)
        pack.with_suffix(".idx").unlink()
        Git(to).run("unpack-objects", "-q", stdin=moved.read_bytes())
    for name in wanted:
        (to / "objects" / name[:2] / name[2:]).unlink()
    return to


REPOSITORIES: dict[str, tuple[Callable[[History, Path], str | Path], tuple[str, ...]]] = {
    "missing": (lambda h, to: to, ("does not exist", "clone the repository")),
    "an address": (lambda h, to: "https://example.org/x.git", ("is an address", "git clone")),
    "of an unknown user": (lambda h, to: "~nobody-of-that-name/x", ("~nobody-of-that-name",)),
    "not a repository": (lambda h, to: to.mkdir() or to, ("is not a git repository",)),
    "a file": (lambda h, to: to.write_text("x") and to, ("is not a git repository",)),
    "shallow": (
        lambda h, to: git_clone(h.path, to, "--depth=1", "--branch=main"),
        ("shallow clone", "fetch --unshallow"),
    ),
    "without its head's files": (
        lambda h, to: without_objects(h, to, h.git.text("rev-parse", f"{h.head}^{{tree}}")),
        ("is absent", "lacks objects", "clone it"),
    ),
    "without its head": (
        lambda h, to: without_objects(h, to, h.head),
        ("head ", "is absent", "fetch it"),
    ),
}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_repository(
    ledger: Run, history: History, tmp_path: Path, config_home: Path, name: str
) -> None:
    make, says = REPOSITORIES[name]
    study = study_of(tmp_path / "study", make(history, tmp_path / "it"), history.head, config_home)
    if name == "without its head's files":  # what lies where is to be derived from them
        toml = study / "study.toml"
        toml.write_text(toml.read_text().replace('package_roots = ["pkg"]', "package_roots = []"))
    check_refused(ledger("tasks", "mine", "--study", study), 2, *says)
    verified = ledger("verify-chain", "--study", study)
    assert verified.status == 0


def test_a_head_that_is_not_there(
    ledger: Run, history: History, tmp_path: Path, config_home: Path
) -> None:
    study = study_of(tmp_path / "study", history.path, "1" * 40, config_home)
    check_refused(ledger("tasks", "mine", "--study", study), 2, "1" * 40, "absent", "fetch it")


def test_a_bare_repository_and_one_that_lacks_old_objects_are_mined(
    ledger: Run, history: History, tmp_path: Path, config_home: Path
) -> None:
    bare = study_of(tmp_path / "bare", history.path, history.head, config_home)
    mined = ledger("tasks", "mine", "--study", bare, "--json")
    assert mined.status == 0 and mined.json["repositories"][0]["candidates"] == 1

    gone = history.git.text("rev-parse", f"{history.head}:pkg/calc.py")
    lacking = without_objects(history, tmp_path / "lacking.git", gone)
    study = study_of(tmp_path / "lacking", lacking, history.head, config_home)
    mined = ledger("tasks", "mine", "--study", study, "--json")
    assert mined.status == 0 and mined.json["repositories"][0]["candidates"] == 0
    rows = ledger("tasks", "audit", "--study", study, "--json").json["commits"]
    assert [row["criterion"] for row in rows if row["commit"] == history.head] == ["object_missing"]


def test_a_repository_without_tests(
    ledger: Run, history: History, tmp_path: Path, config_home: Path
) -> None:
    source = {path: content for path, content in BASE.items() if not path.startswith("tests/")}
    history.commit(source, "feat: begin without tests", parents=())
    history.commit({"pkg/calc.py": b"def add(a, b):\n    return a + b\n"})
    study = study_of(tmp_path / "study", history.path, history.head, config_home)
    assert ledger("tasks", "mine", "--study", study).status == 0
    refused = ledger("tasks", "validate", "--study", study, "--json")
    assert refused.status == 1
    assert refused.json == {"candidates": [], "valid": {"R001": 0}}
    assert "no candidate left and 0 of 8 tasks valid" in refused.err
    assert "ledger tasks audit" in refused.err
    check_refused(ledger("tasks", "freeze", "--study", study), 1, "0 valid tasks", "declares 8")


def test_a_repository_that_is_gone_when_its_tasks_are_frozen(
    validated_study: StudyOnDisk, tmp_path: Path
) -> None:
    study = validated_study.copy(tmp_path / "gone")
    shutil.rmtree(study.path / "example-repository")
    check_refused(of_subprocess(study, "tasks", "freeze"), 2, "does not exist", "clone")
    assert study.ledger_command("verify-chain").status == 0


def of_subprocess(study: StudyOnDisk, *words: str, **options: Any) -> Ran:
    ran = study.ledger_command(*words, **options)
    assert "Traceback" not in ran.err
    return Ran(ran.status, ran.out, ran.err)


# --- an absent model server ----------------------------------------------------------------------


def test_an_absent_model_server_stops_the_run_and_says_what_to_do(
    validated_study: StudyOnDisk, tmp_path: Path
) -> None:
    study = validated_study.copy(tmp_path / "absent")
    toml = study.path / "study.toml"
    lines = [line for line in toml.read_text().splitlines() if not line.startswith("rehearsal")]
    text = "\n".join(lines).replace("simulated = true ", "simulated = false ", 1)
    # Port 9 is the discard service's: nothing that speaks HTTP listens there.
    server = 'kind = "lmstudio"\nurl = "http://127.0.0.1:9"'
    toml.write_text(text.replace('kind = "stand_in"', server))
    freeze(study)
    for runs in (1, 2):
        ran = of_subprocess(study, "run")
        check_refused(ran, 6, "model server", "127.0.0.1:9", "lms server start --port 9")
        events = [fact.event for fact in study.facts()]
        mismatches = [event for event in events if isinstance(event, ServerMismatched)]
        assert [m.problem.partition(":")[0] for m in mismatches] == ["server_unreachable"] * runs
        refused = [event for event in events if isinstance(event, CommandRefused)]
        assert [event.exit_status for event in refused] == [6] * runs
        stops = [event for event in events if isinstance(event, RunStopped)]
        assert [(s.reason, s.cells_finished) for s in stops] == [("failed", 0)] * runs
        assert sum(isinstance(event, RunStarted) for event in events) == runs
    assert study.ledger_command("verify-chain").status == 0
    assert study.ledger_command("audit").status == 0


# --- a full disk, a closed folder ----------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 60 MB, or None where we may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(place)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path, free: int) -> Path:
    """A file that leaves so many bytes free."""
    about = os.statvfs(place)
    filler = place / "filler"
    with open(filler, "wb") as file:
        for _ in range(max(0, about.f_bavail * about.f_frsize - free) >> 16):
            file.write(bytes(1 << 16))
    return filler


def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(
    frozen_study: StudyOnDisk, small_disk: Path | None, tmp_path: Path
) -> None:
    study = frozen_study.copy((small_disk or tmp_path) / "study")
    if small_disk is not None:
        filler = fill(small_disk, free=600_000)
        ran = of_subprocess(study, "run")
        filler.unlink()
    else:
        limit = study.ledger.stat().st_size + 100_000
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

        ran = of_subprocess(study, "run", preexec_fn=limited)
    check_refused(ran, 5)
    assert any(word in ran.err for word in ("full", "space", "too large", "disk")), ran.err
    assert study.processes() == {}
    assert study.ledger_command("verify-chain").status == 0
    resumed = study.ledger_command("run")
    assert resumed.status == 0, resumed.err
    check_sound(study, outcomes(study.facts()))


def test_little_room_is_a_safety_stop(frozen_study: StudyOnDisk, tmp_path: Path) -> None:
    study = frozen_study.copy(tmp_path / "study")
    toml = study.path / "study.toml"
    toml.write_text(
        toml.read_text().replace("min_free_disk_bytes = 0", f"min_free_disk_bytes = {1 << 60}")
    )
    check_refused(of_subprocess(study, "run"), 1, "not as frozen: study.toml", "ledger amend")
    take_steps(study, "amend --reason safer")
    check_refused(of_subprocess(study, "run"), 7, "min_free_disk_bytes", "the same command goes on")
    stops = [fact.event for fact in study.facts() if isinstance(fact.event, RunStopped)]
    assert [stop.reason for stop in stops] == ["safety"]
    assert study.ledger_command("verify-chain").status == 0


def as_an_ordinary_user() -> None:
    """In a child: permissions count for root too. prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE) and
    CAP_DAC_READ_SEARCH; the program that is executed then does not have them."""
    if os.geteuid() == 0:
        library = ctypes.CDLL(None)
        for capability in (1, 2):
            library.prctl(24, ctypes.c_ulong(capability), 0, 0, 0)


def close_folder(folder: Path, mode: int) -> None:
    for path in (*folder.rglob("*"), folder):
        if path.is_dir() and not path.is_symlink():
            path.chmod(mode)


@pytest.mark.skipif(sys.platform != "linux", reason="root loses its privileges by prctl(2)")
def test_a_study_that_may_only_be_read(frozen_study: StudyOnDisk, tmp_path: Path) -> None:
    study = frozen_study.copy(tmp_path / "closed")
    before = study.ledger.read_bytes()
    study.ledger.chmod(0o400)
    close_folder(study.path, 0o500)
    try:
        for words in (["status"], ["verify-chain"]):
            assert of_subprocess(study, *words, preexec_fn=as_an_ordinary_user).status == 0
        for words in (["run"], ["replay"]):
            ran = of_subprocess(study, *words, preexec_fn=as_an_ordinary_user)
            check_refused(ran, 5, str(study.path), "permissions")
        (study.path / "var").chmod(0)
        ran = of_subprocess(study, "status", preexec_fn=as_an_ordinary_user)
        check_refused(ran, 5, "Permission denied")
    finally:
        close_folder(study.path, 0o700)
    assert study.ledger.read_bytes() == before


# --- a second run, a worker without work ----------------------------------------------------------


def test_a_second_run(ledger: Run, running: Path) -> None:
    with StudyDirectory(running).exclusive("run", "taken"):
        check_refused(ledger("run", "--study", running), 1, "another `ledger run`", "ledger status")


@pytest.mark.parametrize("roles", ["", "miner", "operator", "cell,cook"])
def test_a_worker_of_no_such_role(ledger: Run, running: Path, roles: str) -> None:
    check_refused(ledger("worker", "--roles", roles, "--study", running), 2, "role", "scheduler")
