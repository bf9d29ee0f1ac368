"""Python repositories: pytest, environments by venv and pip."""

import re
import tomllib
from typing import Any

from actors.languages.contract import Language
from actors.languages.python import environments, source, tests
from actors.languages.python.files import FILES

_DEPENDENCY_TABLES = (
    ("build-system", "requires"),
    ("project", "dependencies"),
    ("project", "optional-dependencies"),
    ("project", "requires-python"),
    ("dependency-groups",),
    ("tool", "poetry", "dependencies"),
    ("tool", "poetry", "dev-dependencies"),
    ("tool", "poetry", "group"),
    ("tool", "pdm", "dev-dependencies"),
    ("tool", "uv"),
)


def only_dependencies(name: str, before: bytes, after: bytes) -> bool:
    """Any change of a requirement file; of a pyproject.toml one that says the same once its
    dependency tables are left out."""
    if name != "pyproject.toml":
        return True
    documents = []
    for content in (before, after):
        try:
            document: Any = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError):  # also for a number of thousands of digits
            return False
        for *above, last in _DEPENDENCY_TABLES:
            table = document
            for key in above:
                table = table.get(key) if isinstance(table, dict) else None
            if isinstance(table, dict):
                table.pop(last, None)
        documents.append(document)
    return bool(documents[0] == documents[1])


PYTHON = Language(
    id="python",
    files=FILES,
    sources=source,
    environments=environments,
    tests=tests,
    only_dependencies=only_dependencies,
    test_name=re.compile(r"test_|Test[A-Z]"),
    assertion=re.compile(
        r"^\s*([-+>E]\s*)?(assert\b[\s(].*|self\.assert\w*\(.*|(with\s+)?pytest\.raises\(.*"
        r"|AssertionError\b.*)$"
    ),
    assertion_fragment=re.compile(r"\bassert\b|\bself\.assert|\bpytest\.raises"),
    lost_to="collection",
)
