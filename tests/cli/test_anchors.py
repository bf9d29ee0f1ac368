"""Anchors outside the ledger: each kind is made, recorded, checked and required, by commands.

Whoever holds the key can rewrite everything and sign again; only these show it.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE, config_home
from ledger.study_directory import StudyDirectory
from ledger.verify.anchors import check_receipt
from schemas.events.ledger import CheckpointAnchored
from tests.cli.conftest import Run, facts_of

pytestmark = pytest.mark.usefixtures("own_home")


def anchored(study: Path) -> list[CheckpointAnchored]:
    return [fact.event for fact in facts_of(study) if isinstance(fact.event, CheckpointAnchored)]


def run(command: str, folder: Path) -> None:
    subprocess.run(shlex.split(command), cwd=folder, check=True, capture_output=True)


def counting(ledger: Run, study: Path, *words: str | Path) -> tuple[int, list[str]]:
    """(exit status, kinds of the anchors that count) of ``verify-chain``."""
    ran = ledger("verify-chain", "--study", study, "--json", *words)
    return ran.status, [anchor["kind"] for anchor in ran.json["anchors"] if anchor["counts"]]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    run("git init --quiet --bare anchors.git", tmp_path)
    return tmp_path / "anchors.git"


def test_the_note_is_what_standard_output_is(ledger: Run, study: Path, tmp_path: Path) -> None:
    ran = ledger("checkpoint", "--study", study)
    note = tmp_path / "kept"
    note.write_text(ran.out)
    said = dict(line.split(" ", 1) for line in ran.err.splitlines())
    assert said["signed"].startswith("over ")
    assert counting(ledger, study, "--against", note, "--key", said["key"]) == (0, ["self", "copy"])
    assert counting(ledger, study, "--require", "copy") == (4, [])
    assert counting(ledger, study, "--require", "copy", "--against", note) == (0, ["copy"])


def test_a_note_that_cannot_be_checked_is_not_dropped(
    ledger: Run, recorded: Path, tmp_path: Path, somebody_else: None
) -> None:
    """An auditor who has a note and an export, but not the owner's key."""
    note = shutil.copy(recorded / "var" / "checkpoints.log", tmp_path / "kept")
    words = ("verify-chain", "--path", recorded / "var" / "ledger.db", "--against", note)
    ran = ledger(*words, "--json")
    copies = [anchor for anchor in ran.json["anchors"] if anchor["kind"] == "copy"]
    assert ran.status == 4 and ran.json["status"] == "unanchored"
    assert copies and not any(anchor["counts"] for anchor in copies)
    assert "signature was not checked: no key is known" in copies[0]["detail"]
    assert (
        "the given notes are signed by the ledger's owner was not checked"
        in (ran.json["assurance"])
    )
    shown = ledger(*words)
    assert shown.status == 4
    assert "does not count: its root matches, its signature was not checked" in shown.out
    assert "was not checked" not in ledger(*words[:-2]).out


@pytest.mark.parametrize("kind", ["git", "time", "copy"])
def test_what_is_required_must_be_there(ledger: Run, study: Path, kind: str) -> None:
    assert counting(ledger, study) == (0, ["self"])
    assert counting(ledger, study, "--require", "self") == (0, ["self"])
    assert counting(ledger, study, "--require", kind) == (4, [])


def test_a_pushed_commit(ledger: Run, study: Path, remote: Path, tmp_path: Path) -> None:
    for number in range(2):
        ran = ledger("checkpoint", "--study", study, "--push", remote, "--json")
        assert ran.status == 0, ran.err
        (anchor,) = ran.json["anchors"]
        assert (anchor["kind"], anchor["counts"]) == ("git", True)
        shown = subprocess.run(
            ["git", "-C", remote, "show", f"{anchor['receipt']}:checkpoint"],
            capture_output=True,
            check=True,
        )
        assert shown.stdout.decode() == ran.json["note"]
        assert len(anchored(study)) == number + 1
    log = subprocess.run(
        ["git", "-C", remote, "log", "--format=%H", "checkpoints"], capture_output=True, check=True
    )
    assert log.stdout.decode().split()[::-1] == [event.receipt for event in anchored(study)]
    assert counting(ledger, study, "--require", "git") == (0, ["git", "git"])
    assert counting(ledger, study, "--require", "git", "--max-anchor-age", "0") == (4, [])
    # The remote is elsewhere, as usual: whoever has cloned it can check all the same.
    run(f"git clone --quiet --branch checkpoints {remote} clone", tmp_path)
    shutil.rmtree(remote)
    assert counting(ledger, study, "--require", "git") == (4, [])
    clone = tmp_path / "clone"
    assert counting(ledger, study, "--require", "git", "--git-clone", clone) == (0, ["git", "git"])
    # A remote whose branch was begun anew does not hold the commit any more.
    run("git update-ref -d refs/heads/checkpoints", clone)
    run("git update-ref -d refs/remotes/origin/checkpoints", clone)
    assert counting(ledger, study, "--require", "git", "--git-clone", clone) == (4, [])


def test_a_push_that_fails_records_nothing(ledger: Run, study: Path, tmp_path: Path) -> None:
    ran = ledger("checkpoint", "--study", study, "--push", tmp_path / "nowhere.git")
    assert ran.status == 5 and ran.err.startswith("ledger: git push ")
    assert anchored(study) == []


def test_a_copy_on_another_path(ledger: Run, study: Path, tmp_path: Path) -> None:
    place = tmp_path / "notes"
    for _ in range(2):
        assert ledger("checkpoint", "--study", study, "--copy", place).status == 0
    first, second = anchored(study)
    assert place.read_text() == first.note + "\n" + second.note
    assert counting(ledger, study, "--require", "copy") == (0, ["copy", "copy"])
    assert counting(ledger, study, "--require", "copy", "--against", place)[0] == 0
    place.write_text(second.note)
    assert counting(ledger, study, "--require", "copy") == (0, ["copy"])
    place.unlink()
    assert counting(ledger, study, "--require", "copy") == (4, [])


@pytest.mark.parametrize("kind", ["copy", "git"])
def test_a_place_that_came_with_the_ledger_is_no_other_place(
    ledger: Run, study: Path, remote: Path, tmp_path: Path, kind: str
) -> None:
    """A path that begins with a link, as /proc/self/cwd does, leads wherever the sender likes."""
    kept = remote if kind == "git" else tmp_path / "note"
    option = "--push" if kind == "git" else "--copy"
    assert ledger("checkpoint", "--study", study, option, kept).status == 0
    (event,) = anchored(study)
    path = StudyDirectory(study).ledger
    assert check_receipt(event, path)[0]
    (tmp_path / "link").symlink_to(kept.parent)
    sent = msgspec.structs.replace(event, where=str(tmp_path / "link" / kept.name))
    counts, why = check_receipt(sent, path)
    assert not counts and "leads through a link" in why


def test_the_ledgers_own_folder_is_no_other_place(ledger: Run, study: Path) -> None:
    run("git init --quiet --bare anchors.git", study / "var")
    for words in (("--copy", study / "var" / "notes"), ("--push", study / "var" / "anchors.git")):
        ran = ledger("checkpoint", "--study", study, *words)
        assert ran.status == 1 and "own folder" in ran.err
    assert anchored(study) == [] and not (study / "var" / "notes").exists()


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A folder with a time-stamping authority: tsa.pem and what it signs with."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    folder = tmp_path / "authority"
    folder.mkdir()
    (folder / "tsa.cnf").write_text(
        "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=Test authority\n"
        "[ext]\nextendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\n"
        "[tsa]\ndefault_tsa=t\n[t]\nserial=serial\nsigner_cert=tsa.pem\nsigner_key=tsa.key\n"
        "signer_digest=sha256\ndefault_policy=1.2.3.4\ndigests=sha256\ness_cert_id_alg=sha256\n"
    )
    (folder / "serial").write_text("01\n")
    for name in ("tsa", "other"):
        run(
            f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 9 "
            "-config tsa.cnf",
            folder,
        )
    return folder


def stamp(authority: Path, note: Path) -> Path:
    """As the command's help says, with the authority beside."""
    query, response = note.with_suffix(".tsq"), note.with_suffix(".tsr")
    run(f"openssl ts -query -data {note} -sha256 -cert -out {query}", authority)
    run(f"openssl ts -reply -config tsa.cnf -queryfile {query} -out {response}", authority)
    return response


def test_a_time_stamp(ledger: Run, study: Path, authority: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text(ledger("checkpoint", "--study", study).out)
    token = stamp(authority, note)
    given = ("--note", note, "--time-token", token)
    other = ledger(
        "checkpoint", "--study", study, *given, "--time-authority", authority / "other.pem"
    )
    assert other.status == 1 and "did not sign" in other.err and anchored(study) == []
    trusted = ("--time-authority", authority / "tsa.pem")
    ran = ledger("checkpoint", "--study", study, *given, *trusted)
    assert ran.status == 0 and "anchor time note.tsr: counts" in ran.err, ran.err
    (event,) = anchored(study)
    assert (event.kind, event.note) == ("time", note.read_text())
    assert counting(ledger, study, "--require", "time") == (4, [])
    assert counting(ledger, study, "--require", "time", *trusted) == (0, ["time"])
    assert (
        counting(ledger, study, "--require", "time", "--time-authority", authority / "other.pem")
    ) == (4, [])


def test_a_token_for_something_else(
    ledger: Run,
    study: Path,
    authority: Path,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note, another = tmp_path / "note", tmp_path / "another"
    note.write_text(ledger("checkpoint", "--study", study).out)
    another.write_text(note.read_text() + "\n")
    token = stamp(authority, another)
    for words, says in (
        (("--note", note, "--time-token", token), "no time-stamp response for this note"),
        (("--note", note, "--time-token", note), "no time-stamp response for this note"),
        (("--note", another, "--time-token", token), "exactly the note"),
        (("--note", note), "go together"),
        (("--time-token", token), "go together"),
        (("--note", note, "--time-token", token, "--copy", tmp_path / "c"), "one that was signed"),
    ):
        ran = ledger("checkpoint", "--study", study, *words)
        assert ran.status == 2 and says in ran.err, ran
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "somebody"))
    foreign = tmp_path / "foreign"
    ledger("init", tmp_path / "other")
    foreign.write_text(ledger("checkpoint", "--study", tmp_path / "other").out)
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(own_home))
    token = stamp(authority, foreign)
    ran = ledger("checkpoint", "--study", study, "--note", foreign, "--time-token", token)
    assert ran.status == 2 and "not a note of this ledger" in ran.err
    assert anchored(study) == []


def test_a_history_that_was_rewritten_and_signed_again(
    ledger: Run, study: Path, remote: Path, tmp_path: Path
) -> None:
    """The owner, with the key: restores what the study was before, makes his own verifier forget,
    and goes on differently. Every signature is right; the note outside belongs to another
    history."""
    before = tmp_path / "before"
    shutil.copytree(study, before)
    assert ledger("checkpoint", "--study", study, "--push", remote).status == 0
    kept = tmp_path / "kept"
    kept.write_text(ledger("checkpoint", "--study", study).out)
    shutil.rmtree(study)
    before.rename(study)
    words = ("--reason", "another history")
    ran = ledger("show", "analysis", "--study", study, *words)
    assert ran.status == 3 and "an older copy was put back" in ran.err
    shutil.rmtree(config_home() / "last-seen")
    for _ in range(2):
        assert ledger("show", "analysis", "--study", study, *words).status in (0, 1)
    assert ledger("checkpoint", "--study", study).status == 0
    # By its own checkpoints alone nothing is wrong with it.
    assert counting(ledger, study, "--require", "self", "--no-last-seen") == (0, ["self"])
    assert counting(ledger, study, "--require", "git", "--no-last-seen") == (4, [])
    ran = ledger("verify-chain", "--study", study, "--against", kept, "--no-last-seen", "--json")
    assert ran.status == 3
    assert {finding["code"] for finding in ran.json["findings"]} & {
        "FORK",
        "TRUNCATED_BELOW_CHECKPOINT",
    }
