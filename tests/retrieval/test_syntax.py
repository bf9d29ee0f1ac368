"""Symbols, imports and uses of Python and Go files, broken ones among them."""

from harnesses.retrieval.syntax import Import, Use, analyse, count_errors
from tests.retrieval.conftest import CLIENT, SERVER


def defined(text: bytes, language: str) -> list[tuple[str, str, int, int]]:
    return [(s.qualified, s.kind, s.first, s.last) for s in analyse(text, language).symbols]


def test_python_definitions_have_their_class_and_their_lines():
    assert defined(CLIENT, "python") == [
        ("TIMEOUT", "variable", 6, 6),
        ("HttpClient", "type", 9, 19),
        ("HttpClient.retries", "variable", 12, 12),
        ("HttpClient.fetch_order", "method", 14, 16),
        ("HttpClient._get", "method", 18, 19),
    ]


def test_a_decorator_belongs_to_the_definition():
    assert defined(b"@cache\n@other(1)\ndef f():\n    pass\n", "python") == [
        ("f", "function", 1, 4)
    ]


def test_python_imports():
    text = b"import a.b as c, d\nfrom ..e import (f, g as h)\nfrom . import i\n"
    assert analyse(text, "python").imports == (
        Import(module="a.b", alias="c", names=()),
        Import(module="d", alias="d", names=()),
        Import(module="..e", alias="", names=("f", "g")),
        Import(module=".", alias="", names=("i",)),
    )


def test_python_uses_know_a_plain_qualifier_only():
    text = b"a.b(1)\nc().d(2)\ne.f.g(3)\nh(4)\nclass I(J, k.L): pass\n'a.x()'\n"
    assert analyse(text, "python").uses == (
        Use(name="b", qualifier="a", line=1, call=True),
        Use(name="c", qualifier="", line=2, call=True),
        Use(name="d", qualifier="", line=2, call=True),
        Use(name="g", qualifier="", line=3, call=True),
        Use(name="h", qualifier="", line=4, call=True),
        Use(name="J", qualifier="", line=5, call=False),
        Use(name="L", qualifier="k", line=5, call=False),
    )


def test_go_methods_belong_to_their_receiver():
    text = (
        b"package a\n"
        b"func (s *S) P() {}\nfunc (S) V() {}\nfunc (l List[K]) G() {}\nfunc F[T any](x T) {}\n"
        b"const (\n\tA = iota\n\tB\n)\nvar C, D = 1, 2\ntype E interface{ Do() }\ntype H = E\n"
    )
    assert defined(text, "go") == [
        ("S.P", "method", 2, 2),
        ("S.V", "method", 3, 3),
        ("List.G", "method", 4, 4),
        ("F", "function", 5, 5),
        ("A", "variable", 7, 7),
        ("B", "variable", 8, 8),
        ("C", "variable", 10, 10),
        ("D", "variable", 10, 10),
        ("E", "type", 11, 11),
        ("H", "type", 12, 12),
    ]


def test_go_imports_and_uses():
    found = analyse(SERVER, "go")
    assert found.imports == (
        Import(module="fmt", alias="fmt", names=()),
        Import(module="example.org/shop/internal/store", alias="store", names=()),
    )
    assert Use(name="DB", qualifier="store", line=8, call=False) in found.uses
    assert Use(name="Errorf", qualifier="fmt", line=12, call=True) in found.uses


def test_symbols_that_overlap_an_error_are_left_out():
    text = (
        b"def good():\n    return 1\n\n\ndef bad(:\n    return 2\n\n\ndef also():\n    return 3\n"
    )
    found = analyse(text, "python")
    assert found.errors >= 1
    names = {symbol.name for symbol in found.symbols}
    assert "good" in names
    assert "bad" not in names


def test_errors_are_counted():
    assert count_errors(b"package a\nfunc f() {}\n", "go") == 0
    assert count_errors(b"package a\nfunc f( {}\n", "go") > 0
    assert count_errors(b"x = (1\n", "python") > 0


def test_depth_of_nesting_is_no_danger():
    deep = b"x = " + b"[" * 20_000 + b"]" * 20_000 + b"\n"
    assert [symbol.name for symbol in analyse(deep, "python").symbols] == ["x"]
    assert analyse(b"[" * 20_000, "python").errors > 0


def test_unicode_names_and_bytes_that_are_not_utf8():
    assert defined("def größe():\n    pass\n".encode(), "python") == [("größe", "function", 1, 2)]
    assert isinstance(analyse(b"x = '\xff\xfe'\ndef f(): pass\n", "python").symbols, tuple)
