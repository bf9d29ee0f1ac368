"""What a candidate carries, and that the same repository always gives the same bytes."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.languages.python import PYTHON
from actors.mining import pack_trees
from actors.mining.handlers import make_task
from actors.mining.validation import Arm, ArmRun, validate
from actors.mining.walk import mine
from actors.test_runs.git import Git
from actors.test_runs.object_stores import import_pack
from ledger.artifacts import Artifacts
from ledger.errors import Usage
from schemas.repair.study import Layout, Platform, Repository, TaskRules
from schemas.repair.task import Task

CHANGE: dict[str | bytes, Any] = {
    "pkg/calc.py": b'"""Sums."""\n\n\ndef add(a, b):\n    return checked_sum(a, b)\n'
    b"\n\ndef checked_sum(a, b):\n    return a + b\n",
    "pkg/other.py": None,
    "pkg/new/data.json": b"{}\r\n",
    "tests/unit/test_calc.py": b"from pkg import calc\n\n\ndef test_zero():\n"
    b"    assert calc.add(0, 0) == 0\n\n\ndef test_sum():\n    assert calc.checked_sum(1, 2) == 3",
    "tests/unit/conftest.py": None,
    "tests/unit/helpers.py": b"X = 1\n",
    "README.md": b"# Package\n",
    "requirements.txt": b"pytest==8.1\n",
    "notes.txt": b"x\n",
}
MESSAGE = "fix: sum two numbers with checked_sum in pkg/calc.py\n\nThe difference was returned."


@pytest.fixture
def candidate(history: Any) -> Any:
    history.commit({"tests/unit/test_old.py": b"X = 1\n"})
    history.commit({**CHANGE, "tests/unit/test_old.py": None}, MESSAGE)
    (found,) = history.mine().candidates
    return found


def test_halves(history: Any, candidate: Any) -> None:
    assert candidate.production_paths == ("pkg/calc.py", "pkg/new/data.json", "pkg/other.py")
    assert candidate.test_paths == (
        "tests/unit/conftest.py",
        "tests/unit/helpers.py",
        "tests/unit/test_calc.py",
        "tests/unit/test_old.py",
    )
    assert candidate.dropped_paths == ("README.md", "notes.txt", "requirements.txt")
    assert candidate.gold.delete == ("pkg/other.py",)
    assert [file.path for file in candidate.gold.write] == ["pkg/calc.py", "pkg/new/data.json"]
    assert candidate.gold.write[1].content == b"{}\r\n"
    assert candidate.hidden.delete == ("tests/unit/conftest.py", "tests/unit/test_old.py")
    assert candidate.base_test_files == ("tests/unit/test_calc.py", "tests/unit/test_old.py")
    assert candidate.hidden_test_files == ("tests/unit/test_calc.py",)
    assert candidate.removed_test_files == ("tests/unit/test_old.py",)
    assert candidate.protected_paths == (
        "requirements.txt",
        "tests/unit/conftest.py",
        "tests/unit/helpers.py",
        "tests/unit/test_calc.py",
        "tests/unit/test_old.py",
    )
    assert candidate.changed_production_lines == 8  # calc.py 5 and 1, data.json 1, other.py 1


def test_what_is_known_of_its_tests(candidate: Any) -> None:
    assert candidate.known_tests == {
        "tests/unit/test_calc.py::test_zero",
        "tests/unit/test_calc.py::test_sum",
    }
    assert candidate.unchanged_tests == {"tests/unit/test_calc.py::test_zero"}


def test_statement_and_descriptors(candidate: Any) -> None:
    assert candidate.statement.text == (
        "# fix: sum two numbers with [redacted] in [redacted]\n\nThe difference was returned.\n"
    )
    assert candidate.needs_gold_symbol == 1
    assert candidate.size.source_files == 6
    assert candidate.languages["markdown"].files == 1
    total = sum(language.bytes for language in candidate.languages.values())
    assert candidate.size.bytes == total
    assert candidate.size.estimated_tokens == -(-total // 4)


def test_patches_and_full_files_give_the_same_trees(
    history: Any, candidate: Any, tmp_path: Path
) -> None:
    """The full files, laid over the base, and the diffs, applied to it, by plain git."""
    expected = {}
    for name in ("patches", "files"):
        git = Git(history.path, {"GIT_INDEX_FILE": str(tmp_path / name)})
        git.run("read-tree", candidate.base_tree)
        for patch, changes in (
            (candidate.hidden_patch, candidate.hidden),
            (candidate.gold_patch, candidate.gold),
        ):
            if name == "patches":
                git.run("apply", "--cached", "-", stdin=patch)
                continue
            for file in changes.write:
                oid = git.text("hash-object", "-w", "--stdin", "--no-filters", stdin=file.content)
                git.run("update-index", "--add", "--cacheinfo", f"{file.mode},{oid},{file.path}")
            for path in changes.delete:
                line = f"0 {'0' * 40}\t{path}\n".encode()
                git.run("update-index", "--index-info", stdin=line)
        for path in candidate.dropped_paths:
            entry = git.run("ls-tree", candidate.gold_tree, path).split()
            git.run("update-index", "--add", "--cacheinfo",
                    f"{entry[0].decode()},{entry[2].decode()},{path}")  # fmt: skip
        expected[name] = git.text("write-tree")
    assert set(expected.values()) == {candidate.gold_tree}


def test_hostile_content_gets_a_verdict(history: Any, fix: Any) -> None:
    """Brackets without end, a line of 10 MB, bytes that are no text: production code all the same,
    and it comes out as it went in."""
    hostile = {
        "pkg/brackets.py": b"(" * 10_000 + b")" * 10_000,
        "pkg/line.txt": b"a1_ " * 2_500_000,
        "pkg/latin.py": b"# caf\xe9\r\nX = '\xff'",
        "tests/unit/test_brackets.py": b"[" * 10_000,
    }
    history.commit({**fix, **hostile})
    mined = history.mine()
    (candidate,) = mined.candidates
    written = {f.path: f.content for f in (*candidate.gold.write, *candidate.hidden.write)}
    assert written == {**fix, **hostile}
    assert mined.rows[0].numbers.production_lines == 2 + 1 + 1 + 2


def test_texts_replace_commit_messages(history: Any, fix: Any) -> None:
    history.commit(fix)
    repository = Repository(
        id="T001",
        url="x",
        head=history.head,
        language="python",
        layout=Layout(package_roots=("pkg",), test_roots=("tests/unit",)),
    )
    texts = {history.head: "Sums are wrong\n\nAdding 1 and 2 gives -1.\n\nSigned-off-by: A <a>"}
    (candidate,) = mine(history.path, repository, TaskRules(), Platform(), texts).candidates
    assert candidate.statement.text == "# Sums are wrong\n\nAdding 1 and 2 gives -1.\n"
    assert [redaction.kind for redaction in candidate.statement.redactions] == ["trailer"]


def test_an_interface_line_for_studies_that_declare_it(history: Any) -> None:
    history.commit(CHANGE, MESSAGE)
    (plain,) = history.mine().candidates
    (candidate,) = history.mine(TaskRules(interface_line=True)).candidates
    added = "\nNames that the tests use: `checked_sum(a, b)`.\n"
    assert candidate.statement.text == plain.statement.text + added
    assert candidate.statement.interface == ("checked_sum(a, b)",)
    assert candidate.statement.leaks == ()


DIGEST = """
import hashlib, sys
from pathlib import Path
from actors.mining.criteria import audit_lines
from actors.mining.walk import mine
from actors.mining.validation import Arm, ArmRun, validate
from actors.mining.handlers import make_task
from ledger.artifacts import Artifacts
from schemas.repair.study import Layout, Platform, Repository, TaskRules
from schemas.repair.task import Task

layout = Layout(package_roots=("pkg",), test_roots=("tests/unit",))
repository = Repository(id="T", url="x", head=sys.argv[2], language="python", layout=layout)
mined = mine(Path(sys.argv[1]), repository, TaskRules(), Platform(), {})
parts = [audit_lines(mined.rows)]
for c in mined.candidates:
    parts += [repr((c.statement, c.gold, c.hidden, c.languages, c.protected_paths)).encode()]
    parts += [c.gold_patch, c.hidden_patch]
    parts += [repr((sorted(c.known_tests), sorted(c.unchanged_tests))).encode()]
print(len(mined.candidates), hashlib.sha256(b"".join(parts)).hexdigest())
"""


def test_the_same_bytes_whatever_the_hash_seed_time_zone_and_packing(
    history: Any, tmp_path: Path
) -> None:
    for number in range(3):
        content = b"def test_%d():\n    assert %d\n" % (number, number)
        history.commit({**CHANGE, f"tests/unit/test_{number}.py": content}, MESSAGE)
        history.commit({"pkg/other.py": b"OTHER = %d\n" % number, "pkg/calc.py": b""})
    loose = tmp_path / "loose.git"
    Git(tmp_path, {"GIT_ALLOW_PROTOCOL": "file"}).run(
        "clone", "--quiet", "--bare", str(history.path), str(loose)
    )
    for pack in list((loose / "objects" / "pack").glob("*.pack")):
        content = pack.read_bytes()
        pack.with_suffix(".idx").unlink(missing_ok=True)
        pack.unlink()
        Git(loose).run("unpack-objects", "-q", stdin=content)
    seen = set()
    for path, seed, zone in ((history.path, "0", "UTC"), (loose, "1", "Asia/Tokyo")):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST, str(path), history.head],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        seen.add(done.stdout)
    (line,) = seen
    assert line.split()[0] == b"1"  # the older two equal the newest and are duplicates


# --- packs ---------------------------------------------------------------------------------------


def test_a_pack_holds_the_trees_and_nothing_else(history: Any, fix: Any, tmp_path: Path) -> None:
    history.commit(fix)
    history.commit({"pkg/calc.py": b"SECRET = 1\n"})
    trees = [history.git.text("rev-parse", f"{oid}^{{tree}}") for oid in history.oids[:2]]
    content = pack_trees(history.path, trees)
    store = import_pack(content, tmp_path / "store.git")
    held = set(
        Git(store).text("cat-file", "--batch-check=%(objectname) %(objecttype)",
                        "--batch-all-objects").splitlines()
    )  # fmt: skip
    wanted = {
        line
        for tree in trees
        for line in history.git.text("rev-list", "--objects", "--no-object-names", tree).split()
    }
    assert {line.split()[0] for line in held} == wanted
    assert {line.split()[1] for line in held} == {"tree", "blob"}
    Git(history.path).run("repack", "-a", "-d", "-f", "--depth=3", "-q")
    again = pack_trees(history.path, [*reversed(trees), trees[0]])
    assert hashlib.sha256(again).digest() == hashlib.sha256(content).digest()


def test_a_pack_of_a_missing_tree_is_an_error(history: Any) -> None:
    with pytest.raises(Usage, match="cannot be packed"):
        pack_trees(history.path, ["1" * 40])


def test_paths_that_are_not_text_are_in_nothing_that_is_recorded(
    history: Any, fix: Any, tmp_path: Path
) -> None:
    """Such a test file can be in no id and no edit; it lies in the tree and is left alone."""
    odd: dict[bytes, bytes] = {
        b"tests/unit/test_caf\xe9.py": b"def test_odd(): pass\n",
        b"tests/unit/caf\xe9.json": b"{}",
        b"pkg/caf\xe9.py": b"X = 1\n",
        b"docs/caf\xe9.md": b"x",
    }
    history.commit(odd)
    history.commit(fix)
    (candidate,) = history.mine().candidates
    assert candidate.base_test_files == ("tests/unit/test_calc.py",)
    assert candidate.protected_paths == (
        "requirements.txt",
        "tests/unit/conftest.py",
        "tests/unit/test_calc.py",
    )

    def run(arm: Arm, seed: int) -> ArmRun:
        assert arm.test_files == ("tests/unit/test_calc.py",)
        outcomes: dict[str, Any] = {"tests/unit/test_calc.py::test_zero": "passed"}
        if arm.with_hidden:
            added = "passed" if arm.with_gold else "failed"
            outcomes["tests/unit/test_calc.py::test_sum"] = added
        return ArmRun(outcomes=outcomes, verdict="finished")

    verdict = validate(PYTHON, candidate, run)
    assert verdict.valid, verdict.reasons
    artifacts = Artifacts(tmp_path / "artifacts")
    task = make_task(candidate, verdict, "environment", artifacts)
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
    assert b"caf" not in artifacts.get(task.protected_paths)
