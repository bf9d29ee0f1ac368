"""How the tests of a Python repository are started: pytest, our reporter, and the canary."""

import os
from collections.abc import Sequence
from pathlib import Path

from actors.languages.contract import Environment, Requested, TestCommand, secret_name
from schemas.repair.overlay import Changes, WrittenFile

_REPORTER = Path(__file__).with_name("reporter.py")

_CANARY = """\
import math
import sys
import unittest

import pytest

WRONG = dict(
    assertEqual=(1, 2), assertNotEqual=(1, 1), assertTrue=(0,), assertFalse=(1,),
    assertIs=(1, 2), assertIsNot=(None, None), assertIsNone=(0,), assertIsNotNone=(None,),
    assertIn=(1, ()), assertNotIn=(1, (1,)),
    assertIsInstance=(1, str), assertNotIsInstance=(1, int),
    assertAlmostEqual=(1, 2), assertNotAlmostEqual=(1, 1),
    assertGreater=(1, 2), assertGreaterEqual=(1, 2), assertLess=(2, 1), assertLessEqual=(2, 1),
    assertRegex=("a", "b"), assertNotRegex=("a", "a"), assertCountEqual=([1], [2]),
    assertMultiLineEqual=("a", "b"), assertSequenceEqual=([1], [2]), assertListEqual=([1], [2]),
    assertTupleEqual=((1,), (2,)), assertSetEqual=({{1}}, {{2}}),
    assertDictEqual=({{1: 1}}, {{1: 2}}),
    assertRaises=(ValueError, len, ""), assertRaisesRegex=(ValueError, "", len, ""),
)


def accepted():
    case = unittest.TestCase()
    for name, arguments in WRONG.items():
        yield getattr(case, name), arguments
    mock = sys.modules.get("unittest.mock")
    if mock is not None:
        for name in ("assert_called", "assert_called_once", "assert_called_with",
                     "assert_called_once_with", "assert_any_call"):
            yield getattr(mock.Mock(), name), ()
        yield mock.Mock(side_effect=None, return_value=None).assert_has_calls, ([mock.call()],)


def test_{name}_claims():
    for claim, arguments in accepted():
        try:
            claim(*arguments)
        except AssertionError:
            continue
        return
    assert any((math.isclose(1, 2), 1 == pytest.approx(2), all((0,)), isinstance(1, str)))


def test_{name}_assert():
    assert len("{name}") == 0


def test_{name}_raises():
    with pytest.raises(ValueError):
        len("{name}")


class Test_{name}(unittest.TestCase):
    def test_{name}(self):
        self.assertEqual(len("{name}"), 0)
"""
CANARY_TESTS = 4
"""At least one for each way in which a test says that something is wrong; all of them must fail."""


def command(requested: Requested) -> TestCommand:
    """Run pytest on test files (not ids: one that is not there would end the whole run)."""
    tests = list(requested.tests)
    planted = Changes()
    if requested.canary:
        name = secret_name("canary", requested.nonce)
        path = os.path.join(os.path.dirname(tests[0]), f"test_{name}.py")
        file = WrittenFile(path=path, mode="100644", content=_CANARY.format(name=name).encode())
        planted = Changes(write=(file,))
        tests.append(path)
    # A name that code under test cannot know beforehand: the workspace comes first on sys.path.
    reporter = secret_name("reporter", requested.nonce)
    plugins = requested.place / "reporter"
    plugins.mkdir()
    (plugins / f"{reporter}.py").write_bytes(_REPORTER.read_bytes())
    # pytest looks for its configuration in the folders above the workspace too. Where a run sees
    # the host's own paths, the search must end before it finds something there.
    (requested.place / "pytest.ini").write_bytes(b"")
    top = requested.inside
    end_of_search = [] if requested.moves_paths else ["--rootdir", top, "--confcutdir", top]
    roots = import_roots(requested.workspace, requested.package_roots)
    search = [str(plugins), *(os.path.join(top, root) for root in roots)]
    return TestCommand(
        words=(
            str(requested.environment.program), "-m", "pytest", "-p", reporter, "-q",
            "-o", "cache_dir=$TMPDIR/pytest-cache",
            "--continue-on-collection-errors", "--maxfail=0", *end_of_search, *tests,
        ),
        variables=variables(requested.environment, requested.hash_seed)
        | {"PYTHONPATH": os.pathsep.join(search)},
        read_only=(plugins, requested.place / "pytest.ini"),
        planted=planted,
    )  # fmt: skip


def variables(environment: Environment, hash_seed: int) -> dict[str, str]:
    """What code under test sees, but for HOME, TMPDIR and the folders of its own packages."""
    return {
        "PATH": f"{environment.program.parent}:/usr/bin:/bin",
        "PYTHONHASHSEED": str(hash_seed),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "NO_COLOR": "1",
    }


def import_roots(workspace: Path, package_roots: Sequence[str]) -> list[str]:
    """Folders other than the top from which the packages are imported, such as ``src``, sorted.

    That of a package is the nearest folder above it without an ``__init__.py``. A root that is no
    package itself holds some where it is called ``src``; else it is a namespace package.
    """
    found = set()
    for root in package_roots:
        folder = root
        if root.rpartition("/")[2] != "src":
            folder = root.rpartition("/")[0]
            while folder and (workspace / folder / "__init__.py").is_file():
                folder = folder.rpartition("/")[0]
        found.add(folder)
    return sorted(found - {""})
