"""Every static criterion, violated as alone as it can be; and what must not violate one."""

import re
from typing import Any

import msgspec
import pytest

from actors.mining.criteria import STATIC_CRITERIA, AuditRow, audit_lines, funnel_counts
from schemas.repair.study import TaskRules

NO_HALVES = ("no_production_file", "no_test_file", "no_selectable_test")


def judged(history: Any, files: dict[Any, Any], **commit: Any) -> AuditRow:
    history.commit(files, **commit)
    row = history.mine().rows[0]
    assert isinstance(row, AuditRow) and row.commit == history.head
    return row


def test_a_fix_with_a_test_is_a_candidate(history: Any, fix: Any) -> None:
    row = judged(history, fix)
    assert (row.verdict, row.criterion, row.failed) == ("candidate", "", ())
    assert row.classes == {"production": 1, "test": 1}
    assert (row.numbers.production_files, row.numbers.production_lines) == (1, 2)
    assert (row.numbers.test_files, row.numbers.test_lines) == (1, 4)


LONG = b"".join(b"X%d = %d\n" % (n, n) for n in range(401))
CASES: dict[str, tuple[dict[Any, Any], tuple[str, ...]]] = {
    "empty": ({}, ("empty", *NO_HALVES)),
    "dependency_only": (
        {"requirements.txt": b"pytest==8.1\n"},
        ("dependency_only", *NO_HALVES),
    ),
    "documentation_only": (
        {"README.md": b"# The package\n"},
        ("documentation_only", *NO_HALVES),
    ),
    "generated_only": (
        {"pkg/schema_pb2.py": b"X = 1\n"},
        ("generated_only", *NO_HALVES),
    ),
    "no_production_file": (
        {"tests/unit/test_calc.py": b"def test_one():\n    assert 1\n"},
        ("no_production_file",),
    ),
    "no_test_file": (
        {"pkg/calc.py": b"X = 1\n", "tests/unit/conftest.py": b"X = 1\n"},
        ("no_test_file", "no_selectable_test"),
    ),
    "no_selectable_test": (
        {"pkg/calc.py": b"X = 1\n", "tests/functional/test_calc.py": b"X = 1\n"},
        ("no_selectable_test",),
    ),
    "too_many_production_files": (
        {
            **{f"pkg/m{n}.py": b"X = %d\n" % n for n in range(9)},
            "tests/unit/test_m.py": b"def test_m():\n    assert 1\n",
        },
        ("too_many_production_files",),
    ),
    "too_many_test_files": (
        {
            "pkg/calc.py": b"X = 1\n",
            **{f"tests/unit/data/{n}.txt": b"%d" % n for n in range(8)},
            "tests/unit/test_m.py": b"def test_m():\n    assert 1\n",
        },
        ("too_many_test_files",),
    ),
    "too_many_production_lines": (
        {"pkg/long.py": LONG, "tests/unit/test_m.py": b"def test_m():\n    assert 1\n"},
        ("too_many_production_lines",),
    ),
}


@pytest.mark.parametrize("criterion", CASES)
def test_one_criterion(history: Any, criterion: str) -> None:
    files, failed = CASES[criterion]
    row = judged(history, files)
    assert (row.criterion, row.failed) == (criterion, failed)
    assert row.verdict == "rejected"
    assert set(row.reasons) == set(failed)


@pytest.mark.parametrize(
    ("criterion", "reason"),
    [
        ("too_many_production_files", "9 > 8"),
        ("too_many_test_files", "9 > 8"),
        ("too_many_production_lines", "401 > 400"),
    ],
)
def test_a_limit_carries_its_numbers(history: Any, criterion: str, reason: str) -> None:
    assert judged(history, CASES[criterion][0]).reasons[criterion] == reason


def test_rules_move_the_limits(history: Any) -> None:
    history.commit(CASES["too_many_production_lines"][0])
    assert history.mine(TaskRules(max_production_lines=401)).rows[0].verdict == "candidate"


def test_a_pure_rename_is_one_file_without_lines(history: Any) -> None:
    history.commit({"pkg/long.py": LONG})
    row = judged(
        history,
        {
            "pkg/long.py": None,
            "pkg/moved.py": LONG,
            "tests/unit/test_m.py": b"def test_m():\n    assert 1\n",
        },
    )
    assert row.verdict == "candidate"
    assert (row.numbers.production_files, row.numbers.production_lines) == (1, 0)
    assert row.numbers.changed_paths == 3


# --- named classes that only look like changes of code -------------------------------------------

TEST_BEFORE = b"from pkg import calc\n\n\ndef test_zero():\n    assert calc.add(0, 0) == 0\n"


@pytest.mark.parametrize(
    ("calc", "test", "criterion"),
    [
        (
            b'"""Sums."""\n\n\ndef add(\n    a,\n    b,\n):\n    return (a - b)\n',
            b"from pkg import calc\n\ndef test_zero():\n    assert calc.add(0,0)==0\n",
            "formatting_only",
        ),
        (
            b'"""Sums of numbers."""\n\n\ndef add(a, b):\n    return a - b\n',
            b"# Zero is special.\n" + TEST_BEFORE,
            "documentation_only",
        ),
        (
            b'"""Sums of numbers."""\n\n\ndef add(a, b):\n    return (a - b)\n',
            TEST_BEFORE.replace(b"(0, 0)", b"(0,0)"),
            "documentation_only",
        ),
    ],
)
def test_changes_without_effect(history: Any, calc: bytes, test: bytes, criterion: str) -> None:
    row = judged(history, {"pkg/calc.py": calc, "tests/unit/test_calc.py": test})
    assert row.failed == (criterion,)


def test_formatting_with_a_raised_tool_version_is_formatting(history: Any) -> None:
    row = judged(
        history,
        {
            "pkg/calc.py": b'"""Sums."""\n\n\ndef add(a, b):\n    return (a - b)\n',
            "tests/unit/test_calc.py": TEST_BEFORE.replace(b"(0, 0)", b"(0,0)"),
            "requirements.txt": b"pytest==8.1\n",
            "tox.ini": b"[flake8]\nmax-line-length = 99\n",
        },
    )
    assert row.failed == ("formatting_only",)


def test_pyproject_is_dependency_only_by_its_tables(history: Any) -> None:
    text = b'[project]\nname = "pkg"\ndependencies = ["x"]\n[tool.ruff]\nline-length = 88\n'
    history.commit({"pyproject.toml": text})
    pin = text.replace(b'["x"]', b'["x>=2"]')
    assert judged(history, {"pyproject.toml": pin}).criterion == "dependency_only"
    other = pin.replace(b"88", b"99")
    assert judged(history, {"pyproject.toml": other}).criterion == "no_production_file"


# --- reverts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        'Revert "fix: something"',
        "revert: fix something",
        "revert(calc): fix something",
        'fix: revert "feat: something"',
        "Merge branch 'revert-1a2b3c4d' into 'main'",
        "Merge pull request #7 from someone/revert-6-calc",
        "fix: go back\n\nThis reverts commit 0123456789abcdef0123456789abcdef01234567.",
    ],
)
def test_a_revert_by_its_words(history: Any, fix: Any, message: str) -> None:
    assert judged(history, fix, message=message).failed == ("revert",)


@pytest.mark.parametrize(
    "message",
    ["feat: revert command for the editor", "fix: do not lose reverted edits", "fix: irrevertible"],
)
def test_the_word_alone_is_no_revert(history: Any, fix: Any, message: str) -> None:
    assert judged(history, fix, message=message).verdict == "candidate"


def test_a_revert_by_its_content(history: Any, fix: Any) -> None:
    before = history.git.run("show", f"{history.head}:pkg/calc.py")
    history.commit(fix)
    fixed = history.head
    history.commit({"pkg/other.py": b"OTHER = 2\n"})
    row = judged(
        history,
        {"pkg/calc.py": before, "tests/unit/test_calc.py": b"def test_n():\n    assert 1\n"},
    )
    assert row.failed == ("revert",)
    assert fixed[:12] in row.reasons["revert"]


def test_the_revert_window_ends(history: Any, fix: Any) -> None:
    before = history.git.run("show", f"{history.head}:pkg/calc.py")
    history.commit(fix)
    history.commit({"pkg/other.py": b"OTHER = 2\n"})
    history.commit(
        {"pkg/calc.py": before, "tests/unit/test_calc.py": b"def test_n():\n    assert 1\n"}
    )
    assert history.mine(TaskRules(revert_window=2)).rows[0].criterion == "revert"
    assert history.mine(TaskRules(revert_window=1)).rows[0].verdict == "candidate"


def test_the_revert_window_reaches_before_the_first_day(history: Any, fix: Any) -> None:
    before = history.git.run("show", f"{history.head}:pkg/calc.py")
    history.commit(fix, day=-800)
    history.commit(
        {"pkg/calc.py": before, "tests/unit/test_calc.py": b"def test_n():\n    assert 1\n"}, day=3
    )
    mined = history.mine()
    assert [row.criterion for row in mined.rows] == ["revert", "root_commit"]


# --- patches -------------------------------------------------------------------------------------


def test_the_older_of_two_equal_patches_is_a_duplicate(history: Any, fix: Any) -> None:
    history.commit(fix)
    first = history.head
    moved = b"# A line above, so that the hunk lies elsewhere.\n"
    broken = history.git.run("show", f"{history.oids[0]}:pkg/calc.py")
    history.commit({"pkg/calc.py": broken, "pkg/other.py": moved})
    history.commit({**fix, "tests/unit/test_calc.py": b"def test_n():\n    assert 1\n"})
    rows = {row.commit: row for row in history.mine().rows}
    assert rows[history.head].verdict == "candidate"
    assert rows[first].failed == ("duplicate",)
    assert history.head[:12] in rows[first].reasons["duplicate"]


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"lib": ("160000", b"1" * 40)}, "submodule"),
        ({"pkg/link.py": ("120000", b"/etc/passwd")}, "symlink"),
        ({"docs/link.md": ("120000", b"../../outside")}, "symlink"),
        ({"pkg/other.py": ("100755", b"OTHER = 1\n")}, "mode-only"),
        ({"pkg/data.bin": b"\0\1\2"}, "binary"),
        ({b"pkg/caf\xe9.py": b"X = 1\n"}, "unsafe name"),
        ({"pkg/Calc.py": b"X = 1\n"}, "case collision"),
        ({"PKG/x.py": b"X = 1\n", "pkg/x.py": b"X = 1\n"}, "case collision"),
        ({"pkg/back\\slash.py": b"X = 1\n"}, "unsafe name"),
    ],
)
def test_mixed(history: Any, fix: Any, files: dict[Any, Any], word: str) -> None:
    row = judged(history, {**fix, **files})
    assert row.failed == ("mixed",)
    assert word in row.reasons["mixed"]
    assert re.fullmatch(r"[ -~]+", row.reasons["mixed"])


def test_a_binary_test_file_rides_along(history: Any, fix: Any) -> None:
    history.commit({**fix, "tests/unit/data/image.png": b"\x89PNG\0\r\n"})
    (candidate,) = history.mine().candidates
    written = {file.path: file.content for file in candidate.hidden.write}
    assert written["tests/unit/data/image.png"] == b"\x89PNG\0\r\n"
    assert b"GIT binary patch" in candidate.hidden_patch


def test_halves_that_meet_are_not_disjoint(history: Any) -> None:
    """The production resource ``pkg/tests`` makes room for a folder of tests."""
    history.commit({"pkg/tests": b"a resource without a suffix\n"})
    row = judged(
        history,
        {
            "pkg/calc.py": b"X = 1\n",
            "pkg/tests": None,
            "pkg/tests/helper.py": b"X = 1\n",
            "tests/unit/test_m.py": b"def test_m():\n    assert 1\n",
        },
    )
    assert row.criterion == "patches_not_disjoint"
    # The hidden half alone cannot be laid over a base that still has the file.
    assert set(row.failed) <= {"patches_not_disjoint", "patch_does_not_apply"}


def test_a_base_that_git_will_not_index_is_a_patch_that_does_not_apply(
    history: Any, fix: Any
) -> None:
    def raw_tree(*entries: tuple[bytes, bytes, str]) -> str:
        content = b"".join(
            mode + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
        )
        return str(
            history.git.text("hash-object", "-t", "tree", "-w", "--literally", "--stdin",
                             stdin=content)
        )  # fmt: skip

    blob = history.git.text("hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\n")
    hooks = raw_tree((b"100755", b"post-checkout", blob))

    def with_git_folder(commit: str) -> str:
        listed = history.git.run("ls-tree", "-z", commit).split(b"\0")
        entries = [(b"40000", b".git", hooks)]
        for line in filter(None, listed):
            meta, name = line.split(b"\t")
            mode, _, oid = meta.split()
            entries.append((mode.lstrip(b"0"), name, oid.decode()))
        return raw_tree(*sorted(entries, key=lambda e: e[1] + b"/" * (e[0] == b"40000")))

    base = history.head
    history.commit(fix)
    first = with_git_folder(base)
    second = with_git_folder(history.head)
    history.commit({}, tree=first, parents=())
    history.commit({}, tree=second)
    row = history.mine().rows[0]
    assert row.failed == ("patch_does_not_apply",)
    assert row.reasons["patch_does_not_apply"] == "git refuses the base tree into an index"


# --- the audit -----------------------------------------------------------------------------------


def test_rows_add_up_and_survive_their_bytes(history: Any, fix: Any) -> None:
    for files, _ in CASES.values():
        history.commit(files)
    history.commit({**fix, "docs/odd\n\xe9.rst": b"x", "notes.txt": b"y"}, message=b"fix: \xff\xfe")
    rows = history.mine().rows
    counts = funnel_counts(rows)
    assert list(counts) == [*STATIC_CRITERIA, "candidate"]
    assert sum(counts.values()) == len(rows) == len(history.oids)
    content = audit_lines(rows)
    assert content.count(b"\n") == len(rows)
    decode = msgspec.json.Decoder(AuditRow).decode
    assert tuple(map(decode, content.splitlines())) == rows
    assert rows[0].dropped == ("docs/odd\\n\xe9.rst", "notes.txt")
