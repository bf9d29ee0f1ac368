"""What tree-sitter's grammars of Python and Go see in a file: symbols, imports, uses of names.

A parse never fails; where it is in error, the symbols that overlap the error are left out. Trees
are only searched by queries, never by recursion, so no depth of nesting is a danger.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

import tree_sitter_go
import tree_sitter_python
from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from schemas.base import Value

LanguageName = Literal["python", "go"]
SymbolKind = Literal["function", "method", "type", "variable"]

VERSION = 1

MAX_NAME = 200
"""Characters; a longer identifier is data."""


def versions() -> str:
    """Part of every key of facts: our queries and the grammars that they run on."""
    grammars = [_language(name).semantic_version for name in get_args(LanguageName)]
    return f"{VERSION} {grammars}"


class Symbol(Value, array_like=True):
    """A definition. Lines are counted from 1 and inclusive, decorators among them."""

    name: str
    kind: SymbolKind
    parent: str
    """Dotted names of what it is defined in; the receiver's type of a Go method; else empty."""
    first: int
    last: int

    @property
    def qualified(self) -> str:
        return f"{self.parent}.{self.name}" if self.parent else self.name


class Import(Value, array_like=True):
    """One imported module. ``names``: what is taken from it; ``alias``: its name in the file."""

    module: str
    """Python: dotted, relative ones with their leading dots. Go: the import path."""
    alias: str
    names: tuple[str, ...]


class Use(Value, array_like=True):
    """A name that is used: called, or (Go) a type. ``qualifier`` is the identifier before its
    last dot, where there is exactly one."""

    name: str
    qualifier: str
    line: int
    call: bool


class Syntax(Value, array_like=True):
    symbols: tuple[Symbol, ...] = ()
    """In the order of the file."""
    imports: tuple[Import, ...] = ()
    uses: tuple[Use, ...] = ()
    errors: int = 0
    """Top-most nodes that the grammar could not read."""


def language_of(path: str) -> LanguageName | None:
    if path.endswith((".py", ".pyi")):
        return "python"
    return "go" if path.endswith(".go") else None


def analyse(text: bytes, language: LanguageName) -> Syntax:
    """Symbols, imports and uses of one file; ``text`` has lines ended by ``\\n``."""
    root = _parse(text, language).root_node
    captures = QueryCursor(_query(language)).captures(root)
    return Syntax(
        symbols=_symbols(captures),
        imports=_imports(captures.get("import", []), language),
        uses=_uses(captures, text),
        errors=_errors(root, captures),
    )


def count_errors(text: bytes, language: LanguageName) -> int:
    """How many places the grammar cannot read; 0 for a file that parses."""
    root = _parse(text, language).root_node
    return _errors(root, QueryCursor(_query(language)).captures(root)) if root.has_error else 0


def _parse(text: bytes, language: LanguageName) -> Tree:
    return Parser(_language(language)).parse(text)


@lru_cache
def _language(name: LanguageName) -> Language:
    grammar = tree_sitter_python if name == "python" else tree_sitter_go
    return Language(grammar.language())


_PYTHON = """
(function_definition name: (identifier)) @function
(class_definition name: (identifier)) @type
(module (expression_statement (assignment left: (identifier)) @variable))
(class_definition body: (block
  (expression_statement (assignment left: (identifier)) @variable)))
[(import_statement) (import_from_statement)] @import
(call function: (identifier) @called)
(call function: (attribute attribute: (identifier) @called))
(class_definition superclasses: (argument_list (identifier) @used))
(class_definition superclasses: (argument_list (attribute attribute: (identifier) @used)))
(ERROR) @error
"""
_GO = """
(function_declaration name: (identifier)) @function
(method_declaration name: (field_identifier)) @method
(source_file (type_declaration [(type_spec) (type_alias)] @type))
(source_file (const_declaration (const_spec) @variable))
(source_file (var_declaration (var_spec) @variable))
(source_file (var_declaration (var_spec_list (var_spec) @variable)))
(import_spec) @import
(call_expression function: (identifier) @called)
(call_expression function: (selector_expression field: (field_identifier) @called))
(type_identifier) @used
(ERROR) @error
"""


@lru_cache
def _query(language: LanguageName) -> Query:
    """One query for everything: one walk over the tree."""
    return Query(_language(language), _PYTHON if language == "python" else _GO)


Captures = Mapping[str, list[Node]]


def _symbols(captures: Captures) -> tuple[Symbol, ...]:
    found: list[tuple[int, int, Symbol]] = []
    for kind in get_args(SymbolKind):
        for node in captures.get(kind, ()):
            if node.has_error:
                continue
            above = node.parent
            span = above if above is not None and above.type == "decorated_definition" else node
            for name in node.children_by_field_name("name" if kind != "variable" else "left") or (
                node.children_by_field_name("name")
            ):
                text = _text(name)
                if 0 < len(text) <= MAX_NAME:
                    symbol = Symbol(
                        name=text,
                        kind=kind,
                        parent=_receiver(node),
                        first=span.start_point[0] + 1,
                        last=span.end_point[0] + 1,
                    )
                    found.append((span.start_byte, span.end_byte, symbol))
    found.sort(key=lambda item: (item[0], -item[1], item[2].name))
    return _with_parents(found)


def _receiver(node: Node) -> str:
    """The type that a Go method belongs to, without pointer and type parameters; else empty."""
    receiver = node.child_by_field_name("receiver")
    match = _RECEIVER.search(_text(receiver)) if receiver is not None else None
    return match.group(1) if match else ""


_RECEIVER = re.compile(r"([^\W\d]\w*)\s*(?:\[[^\]]*\]\s*)?,?\s*\)$")


def _with_parents(found: list[tuple[int, int, Symbol]]) -> tuple[Symbol, ...]:
    """Name what a definition stands in, and call a function in a type a method."""
    symbols: list[Symbol] = []
    open_: list[tuple[int, Symbol]] = []
    for begin, end, symbol in found:
        while open_ and open_[-1][0] <= begin:
            open_.pop()
        if open_ and not symbol.parent:
            around = open_[-1][1]
            kind = symbol.kind
            if kind == "function" and around.kind == "type":
                kind = "method"
            symbol = Symbol(
                name=symbol.name,
                kind=kind,
                parent=around.qualified,
                first=symbol.first,
                last=symbol.last,
            )
        if symbol.kind != "variable":
            open_.append((end, symbol))
        symbols.append(symbol)
    return tuple(symbols)


def _imports(nodes: list[Node], language: LanguageName) -> tuple[Import, ...]:
    found: list[Import] = []
    for node in sorted(nodes, key=lambda node: node.start_byte):
        if not node.has_error:
            found += _go_import(node) if language == "go" else _python_import(node)
    return tuple(found)


def _go_import(node: Node) -> list[Import]:
    path = node.child_by_field_name("path")
    name = node.child_by_field_name("name")
    module = "" if path is None else _text(path).strip('"`')
    alias = module.rpartition("/")[2] if name is None else _text(name)
    return [Import(module=module, alias=alias, names=())] if module else []


def _python_import(node: Node) -> list[Import]:
    def plain(part: Node) -> tuple[str, str]:
        """(dotted name, its name in the file)"""
        if part.type != "aliased_import":
            return _text(part), _text(part)
        name, alias = part.child_by_field_name("name"), part.child_by_field_name("alias")
        return ("" if name is None else _text(name)), ("" if alias is None else _text(alias))

    parts = [plain(part) for part in node.children_by_field_name("name")]
    if node.type == "import_statement":
        return [Import(module=module, alias=alias, names=()) for module, alias in parts]
    module = node.child_by_field_name("module_name")
    if module is None:
        return []
    return [Import(module=_text(module), alias="", names=tuple(name for name, _ in parts))]


def _uses(captures: Captures, text: bytes) -> tuple[Use, ...]:
    """The qualifier is read from the bytes before the name: half the time of another capture."""
    found: list[tuple[int, Use]] = []
    for kind in ("called", "used"):
        for node in captures.get(kind, ()):
            begin, end = node.start_byte, node.end_byte
            if 0 < end - begin <= MAX_NAME:
                use = Use(
                    name=text[begin:end].decode("utf-8", "replace"),
                    qualifier=_qualifier(text, begin),
                    line=node.start_point[0] + 1,
                    call=kind == "called",
                )
                found.append((begin, use))
    found.sort(key=lambda item: item[0])
    return tuple(use for _, use in found)


_QUALIFIER = re.compile(rb"(?:^|[^\w.)\]}\"'`])([^\W\d]\w*)\.$", re.ASCII)


def _qualifier(text: bytes, begin: int) -> str:
    if text[begin - 1 : begin] != b".":
        return ""
    match = _QUALIFIER.search(text[max(0, begin - 80) : begin])
    return match.group(1).decode() if match else ""


def _errors(root: Node, captures: Captures) -> int:
    """A missing token is an error without a node of that type."""
    return max(1, len(captures.get("error", ()))) if root.has_error else 0


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
