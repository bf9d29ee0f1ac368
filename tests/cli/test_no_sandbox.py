"""A host on which nothing contains a test run: what refuses, and who may go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import actors.mining.handlers
import actors.repair.freezing
import actors.sandbox
from actors.sandbox import SandboxReport
from ledger.cli.main import main
from ledger.signing_keys import CONFIG_HOME_VARIABLE
from schemas.events.mining import CandidateValidated, SandboxProbed
from schemas.events.run import RunStarted
from tests.end_to_end.rehearsal_study import StudyOnDisk, make_mined_study

BARE_HOST = SandboxReport(kind="none", rungs=(), remedy="sudo apt-get install bubblewrap")


@pytest.fixture(autouse=True)
def bare_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host's answer to the probe; no host can be asked to lose its kernel's means."""
    for module in (actors.mining.handlers, actors.repair.freezing, actors.sandbox):
        monkeypatch.setattr(module, "probe", lambda *place: BARE_HOST)
    yield


def status_of(study: StudyOnDisk, monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(study.config))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--study", str(study.path)])
    return ended.value.code


def test_a_rehearsal_is_no_reason_to_run_a_repository_uncontained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_mined_study(tmp_path)
    assert status_of(study, monkeypatch, "tasks", "validate") == 6
    said = capsys.readouterr().err
    assert "sudo apt-get install bubblewrap" in said
    assert "--unsafe-no-sandbox" in said
    kinds = [type(fact.event) for fact in study.facts()]
    assert SandboxProbed not in kinds
    assert CandidateValidated not in kinds

    assert status_of(study, monkeypatch, "tasks", "validate", "--unsafe-no-sandbox") == 0
    (probed,) = [f.event for f in study.facts() if isinstance(f.event, SandboxProbed)]
    assert (probed.kind, probed.accepted_unsafe) == ("none", True)


def test_a_run_needs_the_flag_too(
    frozen_study: StudyOnDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = frozen_study.copy(tmp_path / "copy")
    assert status_of(study, monkeypatch, "run") == 6
    assert not any(isinstance(fact.event, RunStarted) for fact in study.facts())


def test_the_demo_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only as far as its first command that would refuse: it has to be given the flag."""
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "config"))
    commands: list[str] = []

    class Stopped(Exception):
        pass

    def show(words: tuple[str, ...]) -> None:
        commands.append(" ".join(words))
        if words[:2] == ("tasks", "validate"):
            raise Stopped

    monkeypatch.setattr("ledger.cli.demo_steps._show", show)
    with pytest.raises(Stopped):
        main(["demo", "--dir", str(tmp_path / "demo"), "--quick"])
    assert commands[-1].startswith("tasks validate --unsafe-no-sandbox")
    assert "every line of them comes with this program" in capsys.readouterr().err


def test_doctor_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if "sandbox" in line.split()[:2]]
    assert lines[at].split() == ["absent", "sandbox", "-"]
    assert "sudo apt-get install bubblewrap" in lines[at + 1]
    assert "--unsafe-no-sandbox" in lines[at + 1]
