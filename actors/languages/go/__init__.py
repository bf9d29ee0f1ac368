"""Go repositories: ``go test -json``, environments by ``go mod download``."""

import re

from actors.languages.contract import Language
from actors.languages.go import environments, source, tests
from actors.languages.go.command import warm_up
from actors.languages.go.files import FILES


def only_dependencies(name: str, before: bytes, after: bytes) -> bool:
    """A module file says nothing else."""
    return True


GO = Language(
    id="go",
    files=FILES,
    sources=source,
    environments=environments,
    tests=tests,
    only_dependencies=only_dependencies,
    test_name=re.compile(r"(Test|Example|Fuzz|Benchmark)(_|[A-Z])"),
    assertion=re.compile(
        r"^\s*([-+>]\s*)?(t\.(Error|Fatal|Fail)\w*\(.*|(assert|require)\.[A-Z]\w*\(.*)$"
    ),
    assertion_fragment=re.compile(r"\bt\.(Error|Fatal|Fail)|\b(assert|require)\.[A-Z]"),
    lost_to="build",
    warm_up=warm_up,
)
