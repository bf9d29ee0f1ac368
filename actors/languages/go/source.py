"""What changed in a Go file, seen through its syntax tree (tree-sitter).

Source of untrusted repositories: a file that does not parse is never compared; its change counts as
a change of code. Nothing here recurses over a tree.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_go
from tree_sitter import Language, Node, Parser

from actors.languages.contract import ChangeKind
from actors.languages.go import constraints

MAX_SOURCE_BYTES = 2_000_000

_PARSER = Parser(Language(tree_sitter_go.language()))
_CLOSING = (b")", b"]", b"}")
_DIRECTIVE = re.compile(rb"//(go:|line |export |extern )|// \+build ")
"""Comments that the compiler reads."""
_TEST = re.compile(r"(Test|Example|Fuzz)([^a-z]|$)")

built_for = constraints.built_for


def _parse(content: bytes) -> Node | None:
    if len(content) > MAX_SOURCE_BYTES:
        return None
    root = _PARSER.parse(content).root_node
    return None if root.has_error else root


def _nodes(root: Node) -> Iterator[Node]:
    """Every node in source order, a parent before its children."""
    cursor = root.walk()
    while True:
        node = cursor.node
        assert node is not None
        yield node
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            if cursor.goto_next_sibling():
                break
        else:
            return


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node else ""


@dataclass(frozen=True)
class _Tokens:
    code: list[bytes]
    """Leaves that the compiler sees, without automatic semicolons and trailing commas."""
    comments: list[bytes]
    """Comments without their marks and outer white space."""


_WHOLE = ("interpreted_string_literal", "raw_string_literal", "rune_literal", "comment")


def _tokens(root: Node) -> _Tokens:
    code: list[bytes] = []
    comments: list[bytes] = []
    inside = -1
    for node in _nodes(root):
        if node.start_byte < inside or (node.child_count and node.type not in _WHOLE):
            continue
        text = node.text or b""
        inside = node.end_byte
        if node.type == "comment":
            if _DIRECTIVE.match(text):
                code.append(text.strip())
            else:
                comments.append(b" ".join(text.strip(b"/* \t").split()))
            continue
        if not text.strip() or text == b";":
            continue
        if text in _CLOSING and code and code[-1] == b",":
            code.pop()
        code.append(text)
    return _Tokens(code, [comment for comment in comments if comment])


def change_kind(before: bytes, after: bytes) -> ChangeKind:
    """See ``contract.Sources``: tokens are compared, for gofmt moves nothing else."""
    old, new = _parse(before), _parse(after)
    if old is None or new is None:
        return "code"
    left, right = _tokens(old), _tokens(new)
    if left.code != right.code:
        return "code"
    return "formatting" if left.comments == right.comments else "documentation"


_NAMED = {
    "function_declaration", "method_declaration", "type_spec", "type_alias", "field_declaration",
    "method_elem", "const_spec", "var_spec", "parameter_declaration",
    "variadic_parameter_declaration",
}  # fmt: skip


def defined_names(content: bytes) -> frozenset[str]:
    root = _parse(content)
    names: set[str] = set()
    for node in _nodes(root) if root else ():
        if node.type in _NAMED:
            names |= {_text(name) for name in node.children_by_field_name("name")}
        elif node.type in ("short_var_declaration", "range_clause"):
            left = node.child_by_field_name("left")
            names |= {_text(n) for n in left.children if n.type == "identifier"} if left else set()
    return frozenset(names - {"_", ","})


def signatures(content: bytes) -> dict[str, str]:
    """``func name(a int) error``, ``type Name``."""
    root = _parse(content)
    found: dict[str, str] = {}
    for node in root.children if root else ():
        if node.type in ("function_declaration", "method_declaration"):
            parts = [
                _text(node.child_by_field_name(field))
                for field in ("receiver", "name", "type_parameters", "parameters", "result")
            ]
            receiver, name, types, parameters, result = (" ".join(part.split()) for part in parts)
            head = f"func {receiver} {name}" if receiver else f"func {name}"
            found.setdefault(name, f"{head}{types}{parameters} {result}".strip())
        elif node.type == "type_declaration":
            for spec in node.named_children:
                name = _text(spec.child_by_field_name("name"))
                if name:
                    found.setdefault(name, f"type {name}")
    return found


def test_functions(content: bytes) -> dict[str, str]:
    """Digest of every test, example and fuzz test of a file by its name.

    It covers the methods of the file's types that the function names: the tests of a suite.
    """
    root = _parse(content)
    if root is None:
        return {}
    methods: dict[str, list[bytes]] = {}
    functions: dict[str, Node] = {}
    for node in root.children:
        name = _text(node.child_by_field_name("name"))
        if node.type == "method_declaration":
            for receiver in _nodes(node.child_by_field_name("receiver") or node):
                if receiver.type == "type_identifier":
                    methods.setdefault(_text(receiver), []).extend(_tokens(node).code)
                    break
        elif node.type == "function_declaration" and _TEST.match(name):
            functions[name] = node
    digests = {}
    for name, node in functions.items():
        code = _tokens(node).code
        named = sorted(kind for kind in methods if kind.encode() in code)
        code = [*code, *(token for kind in named for token in methods[kind])]
        digests[name] = hashlib.sha256(b"\0".join(code)).hexdigest()
    return digests


def package_name(content: bytes) -> str:
    """The name in the package clause; empty where there is none."""
    for node in _PARSER.parse(content[:MAX_SOURCE_BYTES]).root_node.children:
        if node.type == "package_clause":
            return _text(node.named_children[0]) if node.named_children else ""
    return ""


def module_names(path: str) -> Iterator[str]:
    """``a/b`` and the package ``x/a`` of ``x/a/b.go``, with at least two parts each."""
    if not path.endswith(".go"):
        return
    for named in (path.removesuffix(".go"), path.rpartition("/")[0]):
        parts = named.split("/")
        for first in range(len(parts) - 1):
            yield "/".join(parts[first:])
