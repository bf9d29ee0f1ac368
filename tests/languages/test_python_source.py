"""Formatting, documentation or code: decided by the syntax tree."""

import pytest

from actors.languages.python.source import change_kind, defined_names, signatures
from actors.languages.python.source import test_functions as function_bodies

SOURCE = b'''"""Module."""
import os


class A:
    """A class."""

    def f(self, x=1):
        """Return.

        More.
        """
        # why
        return {"a": x, "b": os.name}
'''


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (SOURCE.replace(b'"a": x, "b"', b"'a': (x),\n            'b'"), "formatting"),
        (SOURCE.replace(b"# why", b"#why"), "formatting"),
        (SOURCE.replace(b"\n", b"\r\n"), "formatting"),
        (SOURCE.replace(b"        More.", b"            More."), "formatting"),
        (SOURCE.replace(b"os.name}", b"os.name,}"), "formatting"),
        (SOURCE.replace(b"# why", b"# because"), "documentation"),
        (SOURCE.replace(b"A class", b"Some class"), "documentation"),
        (SOURCE.replace(b'    """A class."""\n', b""), "documentation"),
        (b"\xef\xbb\xbf" + SOURCE, "formatting"),
        (SOURCE.replace(b"x=1", b"x=1.0"), "code"),
        (SOURCE.replace(b"x=1", b"x=True"), "code"),
        (SOURCE.replace(b'"a"', b'"c"'), "code"),
        (SOURCE + b"x = 1\n", "code"),
        (SOURCE.replace(b"return", b"return ("), "code"),
    ],
)
def test_change_kind(after: bytes, kind: str) -> None:
    assert change_kind(SOURCE, after) == kind
    assert change_kind(after, SOURCE) == kind


def test_a_body_of_a_docstring_alone_equals_pass() -> None:
    assert change_kind(b'class A:\n    """Doc."""\n', b"class A:\n    pass\n") == "documentation"


def test_a_docstring_is_not_any_string() -> None:
    assert change_kind(b'x = 1\n"text"\n', b'x = 1\n"other"\n') == "code"


HOSTILE = {
    "brackets": b"(" * 10_000 + b")" * 10_000,
    "attributes": b"a" + b".b" * 100_000,
    "additions": b"1" + b"+1" * 100_000,
    "lambdas": b"lambda:" * 10_000 + b"1",
    "branches": b"if x: pass\n" + b"elif x: pass\n" * 10_000,
    "nul": b"a\0b",
    "encoding": b"# -*- coding: nonsense -*-\nx = 1\n",
    "latin-1": b"x = '\xe9'\n",
    "utf-16": "x = 1\n".encode("utf-16"),
    "long line": b"x = '" + b"a" * 10_000_000 + b"'\n",
    "python 2": b"print 'x'\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_parsed_is_a_change_of_code(name: str) -> None:
    source = HOSTILE[name]
    assert change_kind(source, source + b"\n") == "code"
    assert change_kind(b"x = 1\n", source) == "code"
    assert defined_names(source) == frozenset()
    assert function_bodies(source) == {}


def test_defined_names() -> None:
    source = b"class A:\n    def f(self, arg, *, only=1): self.attribute = arg\nvalue: int = f(x)\n"
    assert defined_names(source) == {"A", "f", "self", "arg", "only", "attribute", "value"}


def test_signatures() -> None:
    source = b"class A(B):\n    async def f(self, a, *, b: int = 1, **c) -> None: ...\n"
    assert signatures(source) == {"A": "class A", "f": "f(self, a, *, b: int=1, **c)"}
    assert signatures(b"(") == {}


def test_function_bodies_by_qualified_name() -> None:
    source = b"""
import pytest

class TestA:
    def test_b(self): assert 1
    class TestInner:
        async def test_c(self): assert 2

if True:
    def test_d(): assert 3

def outer():
    def test_not_collected(): assert 4
"""
    assert list(function_bodies(source)) == [
        "TestA::test_b",
        "TestA::TestInner::test_c",
        "test_d",
        "outer",
    ]


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        (b"@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x): assert x\n", False),
        (b"\n\n# moved\n@pytest.mark.parametrize('x', [1])\ndef test_a(x):\n  assert (x)\n", False),
        (b"@pytest.mark.parametrize('x', [1])\ndef test_a(x): assert x == 1\n", True),
        (
            b"@mock.patch('a.b')\n@pytest.mark.parametrize('x', [1])\ndef test_a(x): assert x\n",
            True,
        ),
        (b"@pytest.mark.parametrize('x', [1])\ndef test_a(x, y): assert x\n", True),
        (b"@pytest.mark.parametrize('x', [1])\nasync def test_a(x): assert x\n", True),
    ],
)
def test_when_a_body_has_changed(after: bytes, changed: bool) -> None:
    before = b"@pytest.mark.parametrize('x', [1])\ndef test_a(x): assert x\n"
    assert (function_bodies(before)["test_a"] != function_bodies(after)["test_a"]) is changed
