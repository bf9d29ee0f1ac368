"""What files of a language are for, kept as data.

A table of path components and file names (shell patterns, ``fnmatch``). Rules work on whole
components, never on substrings: ``latest.py`` and ``contest/`` are production code.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, kw_only=True)
class FileClasses:
    """The classes of one language. Names are matched against the last path component."""

    source_suffixes: tuple[str, ...]
    package_marker: str
    """A top-level folder that holds this file is a package root when a layout names none. Empty:
    the whole tree is the root then, and nothing but source files is production code there."""
    tests_beside_sources: bool = False
    """Whether test roots only say which tests may be selected (none: all), and not what a file in
    them is for."""
    test_names: tuple[str, ...]
    """Files that a test runner collects."""
    test_components: frozenset[str]
    """Folders whose files are tests or what tests need."""
    infrastructure_names: tuple[str, ...]
    """What changes how tests run, wherever it lies."""
    dependency_names: tuple[str, ...]
    dependency_components: frozenset[str] = frozenset()
    """Folders of code that others wrote."""
    runner_names: tuple[str, ...]
    """Dependency files that also change how the tests below them run: infrastructure where they lie
    inside a package."""
    docs_components: frozenset[str]
    docs_names: tuple[str, ...]
    """Matched against the lower-case name."""
    other_components: frozenset[str]
    """Folders of code that the product does not consist of."""
    config_names: tuple[str, ...]
    version_names: tuple[str, ...]
    """Version files inside a package root: changed by releases, never production code."""
    generated_names: tuple[str, ...]
    generated_header: re.Pattern[bytes]
    """Searched in the first :data:`HEADER_BYTES` bytes."""
    other_header: re.Pattern[bytes] | None = None
    """Likewise: of source files that the product does not consist of."""

    def is_test_name(self, path: str) -> bool:
        """Whether a test runner would collect it, wherever it lies."""
        return matches(path.rpartition("/")[2], self.test_names)


HEADER_BYTES = 2_000


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
