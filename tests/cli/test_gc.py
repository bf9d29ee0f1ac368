"""``ledger gc``: what crashes left behind is listed; nothing that is named is ever removed."""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from ledger import leftovers
from ledger.artifacts import Artifacts
from ledger.log import Batch, NewEvent
from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from schemas.base import Event
from schemas.commands import StopRun
from schemas.events.cell import ToolCalled
from schemas.events.command import CommandRequested
from tests.cli.conftest import Run

LONG_AGO = (1_000_000_000, 1_000_000_000)

pytestmark = pytest.mark.usefixtures("own_home")


def age(path: Path) -> Path:
    os.utime(path, LONG_AGO)
    return path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def put(study: Path, content: bytes) -> Path:
    artifacts = Artifacts(StudyDirectory(study).artifacts)
    return artifacts.path(artifacts.put(content, "text/plain").digest)


def append(study: Path, event: Any, stream: str = "cell/notes") -> None:
    log = SqliteLog.open(StudyDirectory(study).ledger)
    log.append(Batch(events=[NewEvent(stream, event)], actor="operator", run="run"))
    log.close()


def make_everything_old(study: Path) -> None:
    for path in (study / "var").rglob("*"):
        if path.is_file():
            age(path)


def test_old_leftovers_are_listed_and_removed_only_when_asked(ledger: Run, study: Path) -> None:
    var = StudyDirectory(study).var
    named = files(var)
    left = [put(study, b"nobody names me"), var / "artifacts" / "ab" / ".unfinished-1"]
    left += [var / ".unfinished-2", var / "ledger.db.new", var / "checkpoints.123"]
    for path in left[1:]:
        path.write_bytes(b"half")
    make_everything_old(study)
    listed = ledger("gc", "--study", study, "--json")
    assert listed.status == 0
    assert {row["file"] for row in listed.json["leftovers"]} == {
        str(path.relative_to(study)) for path in left
    }
    assert (listed.json["removable"], listed.json["removed"]) == (5, 0)
    assert all(path.exists() for path in left)
    assert "`ledger gc --remove` removes them" in ledger("gc", "--study", study).out
    removed = ledger("gc", "--study", study, "--remove", "--json")
    assert (removed.status, removed.json["removed"]) == (0, 5)
    assert files(var) >= named and not any(path.exists() for path in left)
    assert ledger("verify-chain", "--study", study).status == 0
    assert ledger("gc", "--study", study, "--json").json["leftovers"] == []


def test_what_is_young_stays(ledger: Run, study: Path) -> None:
    left = put(study, b"somebody may name me soon")
    now = ("gc", "--study", study, "--remove", "--older-than", "0")
    assert [row["removable"] for row in ledger(*now, "--json").json["leftovers"]] == [False]
    assert "in the last 0 hours (--older-than) and a minute, or" in ledger(*now).out
    assert left.exists()
    for number in ("nan", "inf", "1e+300", "-1"):
        ran = ledger("gc", "--study", study, "--older-than", number)
        assert ran.status == 2 and number in ran.err
    hour_ago = left.stat().st_mtime - 3600
    os.utime(left, (hour_ago, hour_ago))
    assert ledger("gc", "--study", study, "--remove", "--json").json["removed"] == 0
    half = ("gc", "--study", study, "--remove", "--older-than", "0.5", "--json")
    assert ledger(*half).json["removed"] == 1


def test_what_an_unfinished_command_may_still_name_stays(ledger: Run, study: Path) -> None:
    """However long it takes: a file that is younger than its request."""
    command = StopRun(reason="complete", detail="")
    append(study, CommandRequested(role="operator", command=command), "role/operator")
    left = put(study, b"put by the command")
    ahead = left.stat().st_mtime + 3600
    os.utime(left, (ahead, ahead))
    # The clock shows a week later, and the command is still at work.
    with pytest.MonkeyPatch.context() as patch:
        now = leftovers.now_us()
        patch.setattr(leftovers, "now_us", lambda: now + 7 * 86_400_000_000)
        assert ledger("gc", "--study", study, "--remove", "--json").json["removed"] == 0
    assert left.exists()


def test_put_again_while_it_is_removed(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: found as old, and put again by a writer who will name it."""
    left = age(put(study, b"the same content"))
    directory = StudyDirectory(study)
    log = SqliteLog.open_read_only(directory.ledger)
    found = leftovers.find_leftovers(directory, log, 0)
    log.close()
    assert [one.old for one in found] == [True]
    put(study, b"the same content")
    assert leftovers.remove_leftovers(directory, found) == []
    assert left.exists()


def test_removal_beside_writers_takes_nothing_that_is_named(ledger: Run, study: Path) -> None:
    """Writers put what already lies there, old and unnamed, and name it at once."""
    directory = StudyDirectory(study)
    contents = [f"content {number}".encode() for number in range(120)]
    for content in contents:
        age(put(study, content))
    failures: list[BaseException] = []

    def write(part: int) -> None:
        try:
            log = SqliteLog.open(directory.ledger)
            artifacts = Artifacts(directory.artifacts)
            for content in contents[part::3]:
                ref = artifacts.put(content, "text/plain")
                event = ToolCalled(
                    turn=0, number=0, tool="read_file", arguments=ref, result=ref, ok=True
                )
                log.append(
                    Batch(events=[NewEvent("cell/notes", event)], actor="operator", run="run")
                )
            log.close()
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(part,)) for part in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        log = SqliteLog.open_read_only(directory.ledger)
        found = leftovers.find_leftovers(directory, log, 0)
        log.close()
        for one in found:
            if one.old:
                leftovers._remove_untouched(one)
    assert failures == []
    assert ledger("verify-chain", "--study", study).status == 0


def test_a_faulty_ledger_loses_nothing(ledger: Run, study: Path) -> None:
    """Records are missing: what they named looks unnamed, and is evidence."""
    left = age(put(study, b"nobody names me"))
    with sqlite3.connect(StudyDirectory(study).ledger) as connection:
        connection.execute("DROP TRIGGER records_delete")
        connection.execute("DELETE FROM records WHERE seq > 20")
    connection.close()
    listed = ledger("gc", "--study", study, "--json")
    assert listed.status in (0, 3)
    ran = ledger("gc", "--study", study, "--remove")
    assert ran.status == 1 and "may be evidence" in ran.err, ran
    assert left.exists()


def test_a_record_of_an_unknown_type(ledger: Run, study: Path) -> None:
    class Strange(Event):
        TYPE = "strange.thing.v1"
        STREAMS = ("cell",)
        note: str

    left = age(put(study, b"perhaps the stranger names me"))
    append(study, Strange(note="x"))
    ran = ledger("gc", "--study", study, "--remove")
    assert ran.status == 3 and "unknown event type" in ran.err
    assert left.exists()
