"""What changed in a Python file, seen through its syntax tree.

Source of untrusted repositories: a file that does not parse (another Python version, ten thousand
brackets) is never compared; its change counts as a change of code. Nothing here recurses over a
tree in Python.
"""

import ast
import hashlib
import inspect
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from typing import Any, Literal

from schemas.repair.study import Platform

MAX_SOURCE_BYTES = 2_000_000

ChangeKind = Literal["formatting", "documentation", "code"]

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse(content: bytes) -> ast.Module | None:
    """The syntax tree, or None where this interpreter cannot make one."""
    if len(content) > MAX_SOURCE_BYTES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in somebody else's strings
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def change_kind(before: bytes, after: bytes) -> ChangeKind:
    """How two versions of a file differ.

    ``formatting``: equal syntax trees, docstrings and comments (apart from white space);
    ``documentation``: only docstrings or comments differ; ``code``: anything else. Tokens would not
    do: formatters move commas, quotes and brackets.
    """
    old, new = parse(before), parse(after)
    if old is None or new is None:
        return "code"
    same_docstrings = True
    stack: list[tuple[Any, Any]] = [(old, new)]
    while stack:
        left, right = stack.pop()
        if type(left) is not type(right):
            return "code"
        if isinstance(left, ast.AST):
            if isinstance(left, _DOCUMENTED):
                left_doc, left_body = _split_docstring(left.body)
                right_doc, right_body = _split_docstring(right.body)
                same_docstrings = same_docstrings and left_doc == right_doc
                stack.append((left_body, right_body))
            stack.extend(
                (getattr(left, field, None), getattr(right, field, None))
                for field in left._fields
                if not (field == "body" and isinstance(left, _DOCUMENTED))
            )
        elif isinstance(left, list):
            if len(left) != len(right):
                return "code"
            stack.extend(zip(left, right, strict=True))
        elif repr(left) != repr(right):  # 0.0 and -0.0, nan
            return "code"
    if same_docstrings and _comments(before) == _comments(after):
        return "formatting"
    return "documentation"


def _split_docstring(body: list[ast.stmt]) -> tuple[str, list[ast.stmt]]:
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        lines = inspect.cleandoc(first.value.value).split("\n")
        # A body of a docstring alone does what `pass` does.
        return "\n".join(line.rstrip() for line in lines), body[1:] or [ast.Pass()]
    return "", body


def _comments(content: bytes) -> list[str] | None:
    """Texts of the comments in order, without their marks and outer white space."""
    try:
        return [
            token.string.lstrip("#!").strip()
            for token in tokenize.tokenize(io.BytesIO(content).readline)
            if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None


def defined_names(content: bytes) -> frozenset[str]:
    """Names that a file defines: functions, classes, parameters, assigned names and attributes."""
    tree = parse(content)
    if tree is None:
        return frozenset()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return frozenset(names)


def signatures(content: bytes) -> dict[str, str]:
    """How each function and class that a file defines is used: ``name(a, b=1)``, ``class Name``."""
    tree = parse(content)
    found: dict[str, str] = {}
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, f"class {node.name}")
        elif isinstance(node, _FUNCTIONS):
            try:
                found.setdefault(node.name, f"{node.name}({ast.unparse(node.args)})")
            except RecursionError:
                found.setdefault(node.name, f"{node.name}(...)")
    return found


def test_functions(content: bytes) -> dict[str, str]:
    """Digest of every function by its qualified name as pytest writes it (``TestA::test_b``).

    ``parametrize`` marks are left out: another parameter set makes new ids and does not change
    those that remain. A function that is defined twice has the digest of both.
    """
    tree = parse(content)
    if tree is None:
        return {}
    bodies: dict[str, str] = {}
    for name, function in _functions(tree):
        decorators = [d for d in function.decorator_list if "parametrize" not in _dump(d)]
        text = "\0".join(
            _dump(part) for part in [function.args, *decorators, *function.body]
        ) + type(function).__name__ + bodies.get(name, "")  # fmt: skip
        bodies[name] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return bodies


def built_for(path: str, content: bytes, platform: Platform) -> bool:
    """A Python file has no condition under which it is left out."""
    return True


def module_names(path: str) -> Iterator[str]:
    """``a.b`` and ``a/b`` of ``x/a/b.py``, with every number of folders but none."""
    stem = re.sub(r"(/__init__)?\.pyi?$", "", path)
    if stem == path:
        return
    parts = stem.split("/")
    for first in range(len(parts) - 1):
        yield "/".join(parts[first:])
        yield ".".join(parts[first:])


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions at module and class level, also inside ``if`` and ``try``, in source order."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        if isinstance(node, _FUNCTIONS):
            yield prefix + node.name, node
            continue
        below = f"{prefix}{node.name}::" if isinstance(node, ast.ClassDef) else prefix
        stack.extend(
            (below, child)
            for child in reversed(list(ast.iter_child_nodes(node)))
            if isinstance(child, (ast.stmt, ast.ExceptHandler))
        )


def _dump(node: ast.AST) -> str:
    try:
        return ast.dump(node)
    except RecursionError:
        return f"too deep at line {getattr(node, 'lineno', 0)}"
