"""Credentials in addresses and in what servers and programs repeat: refused, or removed."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from actors.languages.python.environments import _PIP_VARIABLES
from actors.servers.contract import ChatError, ChatRequest, ModelServerError
from actors.servers.lmstudio import LMStudio
from actors.test_runs.builds import Runner
from ledger.study_directory import StudyDirectory
from schemas.credentials import carries_credentials, without_credentials
from schemas.events.command import CommandRefused
from schemas.study_file import StudyError, parse_study
from tests.cli.conftest import Run, facts_of
from tests.projections.tiny_study import STUDY_TOML

SECRET = "hunter2-3c9a"

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.mark.parametrize(
    ("address", "cleared"),
    [
        (f"https://user:{SECRET}@h.example/x.git", "https://[removed]@h.example/x.git"),
        (f"https://{SECRET}@h.example/x.git", "https://[removed]@h.example/x.git"),
        (f"https://user:p@{SECRET}@h.example/x", "https://[removed]@h.example/x"),
        (f"ssh://user:{SECRET}@h.example/x", "ssh://[removed]@h.example/x"),
        (f"https://h/x?private_token={SECRET}", "https://h/x?private_token=[removed]"),
        (f"https://h/x?a=1&api_key={SECRET}&b=2", "https://h/x?a=1&api_key=[removed]&b=2"),
        (f"access 'http://u:{SECRET}@h:9/': x", "access 'http://[removed]@h:9/': x"),
    ],
)
def test_what_carries_a_secret(address: str, cleared: str) -> None:
    assert carries_credentials(address)
    assert without_credentials(address) == cleared
    assert not carries_credentials(without_credentials("see https://example.org/a@b"))


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/x.git",
        "https://example.org/user@name/x?page=2",
        "ssh://git@example.org/x.git",
        "git@example.org:x.git",
        "/srv/anchors.git",
        "../anchors.git",
        "http://127.0.0.1:1234",
        "mail a@b.example about https://c.example",
    ],
)
def test_what_carries_none(address: str) -> None:
    assert not carries_credentials(address)


# --- study.toml ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("repositories[0].url", 'url = "repository"', f'url = "https://me:{SECRET}@h.example/x"'),
        ("server.url", 'kind = "stand_in"', f'kind = "stand_in"\nurl = "http://me:{SECRET}@h:1"'),
    ],
)
def test_an_address_in_the_study_file(key: str, old: str, new: str) -> None:
    assert old in STUDY_TOML
    with pytest.raises(StudyError, match=key.replace("[", r"\[").replace("]", r"\]")) as refused:
        parse_study(STUDY_TOML.replace(old, new).encode())
    assert SECRET not in str(refused.value)


def test_nothing_of_it_is_recorded(ledger: Run, tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert ledger("init", study).status == 0
    text = (study / "study.toml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("url = "))
    new = f'url = "https://me:{SECRET}@example.org/x"'
    (study / "study.toml").write_text(text.replace(line, new, 1))
    ran = ledger("tasks", "mine", "--study", study)
    assert ran.status == 2 and SECRET not in ran.err and "credentials" in ran.err
    facts = facts_of(study)
    assert SECRET not in repr(facts)
    assert all(
        isinstance(fact.event, CommandRefused) or "refused" not in fact.event.TYPE for fact in facts
    )
    files = [path for path in (study / "var").rglob("*") if path.is_file()]
    assert files and not any(SECRET.encode() in path.read_bytes() for path in files)


# --- git -----------------------------------------------------------------------------------------


def test_an_address_to_push_to(ledger: Run, study: Path) -> None:
    before = len(facts_of(study))
    for address in (f"https://me:{SECRET}@127.0.0.1:9/x", f"https://{SECRET}@127.0.0.1:9/x"):
        ran = ledger("checkpoint", "--study", study, "--push", address)
        assert ran.status == 2 and "credential helper" in ran.err and SECRET not in ran.err
    assert len(facts_of(study)) == before


TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def test_a_token_in_the_path_of_an_address(ledger: Run, study: Path) -> None:
    before = len(facts_of(study))
    ran = ledger("checkpoint", "--study", study, "--push", f"https://127.0.0.1:9/{TOKEN}/x.git")
    assert ran.status == 2 and "credential helper" in ran.err and TOKEN not in ran.err
    assert len(facts_of(study)) == before


@pytest.mark.parametrize("text", [f"checked with {TOKEN}", "password: s3cr3t!x"])
def test_a_secret_in_what_a_person_says(
    ledger: Run, study: Path, tmp_path: Path, text: str
) -> None:
    """A reason, or the name of a file: it would stand in the ledger for good."""
    before = facts_of(study)
    for words in (
        ("query", "SELECT * FROM outcomes", "--reason", text),
        ("amend", "--reason", text),
        ("checkpoint", "--copy", str(tmp_path / text)),
    ):
        ran = ledger(*words, "--study", study)
        assert ran.status == 1 and "seems to hold a" in ran.err
        assert TOKEN not in ran.out + ran.err and "s3cr3t" not in ran.out + ran.err
    assert facts_of(study) == before


def test_what_git_repeats(
    ledger: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is harmless; git's own configuration puts a token in."""
    configuration = tmp_path / "gitconfig"
    configuration.write_text(
        f'[url "http://me:{SECRET}@127.0.0.1:9/"]\n\tinsteadOf = "http://anchors.example/"\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    ran = ledger("checkpoint", "--study", study, "--push", "http://anchors.example/x.git")
    assert ran.status == 5 and "git push http://anchors.example/x.git" in ran.err
    assert SECRET not in ran.err + ran.out
    assert SECRET not in repr(facts_of(study))


# --- pip -----------------------------------------------------------------------------------------


def test_what_pip_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of an environment's build is recorded."""
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:{SECRET}@127.0.0.1:9/simple")
    program = tmp_path / "pip"
    program.write_text('#!/bin/sh\necho "Looking in indexes: $PIP_INDEX_URL"\nexit 1\n')
    program.chmod(0o755)
    run = Runner(threading.Event(), _PIP_VARIABLES)
    status, log = run([program, "install"])
    assert status == 1 and SECRET.encode() not in log
    assert b"Looking in indexes: http://[removed]@127.0.0.1:9/simple" in log
    monkeypatch.setenv("ANOTHER_TOKEN", SECRET)
    program.write_text("#!/bin/sh\nenv\n")
    assert b"ANOTHER_TOKEN" not in run([program])[1]


# --- the model server ----------------------------------------------------------------------------


class Parrot(BaseHTTPRequestHandler):
    """A server that repeats the token that it was given, in an error and in an answer."""

    def answer(self) -> None:
        body = f'{{"error": "bad token {self.headers["authorization"]}"}}'.encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def parrot() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Parrot)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_server_repeats(parrot: str) -> None:
    server = LMStudio(parrot, ["lms"], api_token=SECRET)
    request = ChatRequest(
        messages=[{"role": "user", "content": "x"}],
        tools=[],
        temperature=0.0,
        top_p=1.0,
        seed=0,
        max_tokens=1,
        reasoning="off",
    )
    failures: list[ModelServerError] = []
    with pytest.raises(ModelServerError) as listing:
        server.inventory()
    failures.append(listing.value)
    with pytest.raises(ChatError) as turn:
        server.chat("instance", request)
    failures.append(turn.value)
    server.close()
    for failure in failures:
        assert "bad token Bearer [removed]" in str(failure)
        assert failure.evidence and not any(
            SECRET.encode() in piece.content for piece in failure.evidence
        )


def test_an_address_of_a_server_with_a_password() -> None:
    with pytest.raises(ValueError, match="host and port") as refused:
        LMStudio(f"http://me:{SECRET}@127.0.0.1:1234", ["lms"])
    assert SECRET not in str(refused.value)


# --- keys ----------------------------------------------------------------------------------------


def test_the_signing_key_is_in_no_study(ledger: Run, study: Path, own_home: Path) -> None:
    ledger("checkpoint", "--study", study)
    key = (own_home / "signing-key.pem").read_bytes().split(b"\n")[1]
    assert len(key) == 64
    files = [path for path in study.rglob("*") if path.is_file()]
    assert StudyDirectory(study).ledger in files
    assert not any(key in path.read_bytes() for path in files)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_configuration_folder_that_others_can_write(
    ledger: Run, study: Path, own_home: Path, mode: int
) -> None:
    own_home.chmod(mode)
    ran = ledger("checkpoint", "--study", study)
    assert ran.status == 1 and f"chmod 700 '{own_home}'" in ran.err
    os.chmod(own_home, 0o755)
    assert ledger("checkpoint", "--study", study).status == 0
