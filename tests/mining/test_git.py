"""What a repository's own configuration and references can make git do for us: nothing."""

from pathlib import Path

import pytest

from actors.test_runs.git import Git, GitError


@pytest.fixture
def origin(tmp_path: Path) -> Git:
    who = {
        f"GIT_{one}_{what}": "a@a" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    (tmp_path / "origin").mkdir()
    git = Git(tmp_path / "origin", who)
    git.run("init", "--quiet", "--initial-branch=main", ".")
    (tmp_path / "origin" / "file").write_text("as committed")
    git.run("add", "file")
    git.run("commit", "--quiet", "--message=x")
    return git


def test_no_replacement_reference_changes_what_a_commit_holds(origin: Git) -> None:
    other = origin.text("hash-object", "-w", "--stdin", stdin=b"something else")
    origin.run("update-ref", "refs/replace/" + origin.text("rev-parse", "HEAD:file"), other)
    assert origin.run("show", "HEAD:file") == b"as committed"


def test_a_partial_clone_does_not_start_the_program_that_it_names(
    origin: Git, tmp_path: Path
) -> None:
    """Also where git is older than the variable that forbids it to fetch."""
    ran, program = tmp_path / "ran", tmp_path / "upload-pack"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(tmp_path)),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", str(program)),
        ("protocol.file.allow", "always"),
    ):
        origin.run("config", key, value)
    blob = origin.text("rev-parse", "HEAD:file")
    (origin.directory / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for more in ({}, {"GIT_NO_LAZY_FETCH": "0"}):
        with pytest.raises(GitError):
            Git(origin.directory, more).run("show", "HEAD:file")
    assert not ran.exists()
