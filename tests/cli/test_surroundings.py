"""Where a command runs: closed streams, a folder that is gone, a locale without UTF-8."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.verify.verification import verify

LEDGER = [sys.executable, "-m", "ledger"]


def shell(script: str, study: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/bash", "-c", f'ledger() {{ "{sys.executable}" -m ledger "$@"; }}; {script}'],
        env={**os.environ, "LEDGER_STUDY": str(study), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_no_command(study: Path, closed: str) -> None:
    """A database that is opened next would else be standard output itself."""
    before = verify(study)
    done = shell(f"ledger checkpoint {closed}", study)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    after = verify(study)
    assert (after.status, after.events, after.findings) == ("verified", before.events, ())


def test_a_reader_that_goes_away(study: Path) -> None:
    done = shell("ledger verify-chain | true; ledger query --tables | head -1", study)
    assert done.stderr == ""


def test_a_working_folder_that_is_gone(study: Path) -> None:
    script = 'mkdir "$LEDGER_STUDY/gone" && cd "$LEDGER_STUDY/gone" && rmdir ../gone; '
    for command in ("status", "init x", "doctor"):
        done = shell(f"{script} ledger {command}", study)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            "ledger: the working folder is gone; change to one that exists"
        )


def test_a_locale_without_utf_8(study: Path) -> None:
    named = study.parent / "étude"
    shutil.copytree(study, named)
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert shell("ledger audit && ledger status", study, **locale).returncode == 0
    done = shell(f'ledger status --study "{named}"', study, **locale)
    assert done.returncode == 2
    assert "set PYTHONUTF8=1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run", "query 'SELECT * FROM cells'", "checkpoint"])
def test_a_file_in_the_place_of_a_folder(study: Path, command: str) -> None:
    folder = study / "var" / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("")
    done = shell(f"ledger {command}", study)
    assert (done.returncode, done.stderr) == (
        1,
        f"ledger: {folder} is no folder: move it away, the study keeps a folder there\n",
    )


def test_line_ends_that_something_converted(study: Path, tmp_path: Path) -> None:
    out, note = tmp_path / "out", tmp_path / "note"
    assert shell(f"ledger export {out} && ledger checkpoint > {note}", study).returncode == 0
    for path in (note, out / "records.jsonl", out / "checkpoints.log"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    done = shell(f"ledger verify-chain --against {note}", study)
    assert done.returncode == 2
    assert "its lines end in CR LF" in done.stderr
    found = {(finding.code, "CR LF" in finding.got) for finding in verify(out).findings}
    assert {("NON_CANONICAL", True), ("SIG_BAD", True)} <= found
    assert ("NON_CANONICAL", False) not in found
