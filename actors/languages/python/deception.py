"""Patterns in a patch that could deceive a Python test process from inside."""

import re
import sys
from collections.abc import Iterable


def _of(module: bytes, names: bytes) -> bytes:
    """A pattern for ``module.name`` and for ``from module import name``."""
    return (
        rb"\b%b\s*\.\s*(%b)\b" % (module, names)
        + rb"|\bfrom\s+%b\s+import\b(\s*\([^)]{0,400}|[^\n]{0,400})\b(%b)\b" % (module, names)
    )  # fmt: skip


# Every repetition is bounded, so that the time is a multiple of the length whatever a patch holds;
# what stands further apart on one line is a long line.
_SPOOFING = {
    "long line": rb"[^\n]{1000}",
    "_pytest": rb"\b_pytest\b",
    "pytest": rb"\bpytest\w*|PYTEST_|\bpluggy\b|\bpluginmanager\b|\bconftest\b",
    "unittest": rb"\bunittest\b",
    "test files": rb"[\"'/]tests?/|/tests?[\"'/]|[\"']tests[\"']"
    rb"|\btest_[\w*]{0,200}\.py\b|_test\.py\b",
    "os._exit": rb"\b_exit\b",
    "os.abort": _of(b"os", b"abort|kill|killpg") + rb"|\braise_signal\b",
    "atexit": rb"\batexit\b",
    "sys.settrace": rb"\bset(trace|profile)\b|" + _of(b"sys", b"monitoring"),
    "sys.modules": _of(b"sys", b"modules|meta_path|path_hooks"),
    "sys.exit": rb"\bSystemExit\b|" + _of(b"sys", b"exit"),
    "frames": rb"\b_getframe\b|\bcurrentframe\b|\b_current_frames\b"
    rb"|\b(tb|gi|cr|ag)_frame\b|\bf_(back|locals|globals|builtins|code)\b|"
    + _of(b"inspect", b"stack|trace|getouterframes|getinnerframes"),
    "namespaces": rb"(?<!\bself\.)\b__dict__\b|(?<!\bself\.)\b__(globals|builtins|subclasses)__\b"
    rb"|\bbuiltins\b|\b__(closure|code|mro|self)__\b|(?<![.\w])globals\s*\(",
    "imports": rb"\b__import__\b|\bimport_module\b|\bimportlib\s*\.\s*(util|machinery|reload)\b"
    rb"|\b(pkgutil|runpy|pydoc)\b",
    "aliases": rb"\bimport\b[^\n]{0,400}\b(os|sys|inspect|gc)\s{1,9}as\b"
    rb"|\bfrom\s+(os|sys|inspect|gc)\s+import\s+\*",
    "evaluation": rb"(?<![.\w])(exec|eval|compile)\s*\("
    rb"|\b(marshal|FunctionType|CodeType|co_filename|runsource|runcode)\b",
    # A comparison that is assigned, or whose body says nothing of what it compares with.
    "equality": rb"\b__(eq|ne|bool|contains)__\s*="
    rb"|\bdef\s+__bool__\s*\([^)]{0,400}\)[^:\n]{0,400}:\s*return\s+(True|False)\b"
    rb"|\bdef\s+__(?:eq|ne|contains)__\s*\(\s*\w+\s*,\s*(?P<other>\w+)\b[^)]{0,400}\)[^:\n]{0,400}:"
    rb"(?:(?!\bdef\b|\n\S|\b(?P=other)\b)[\s\S]){0,4000}(?=\bdef\b|\n\S|\Z)",
    "gc": rb"\bget_(objects|referrers|referents)\b",
    "descriptors": _of(b"os", b"write|writev|pwrite|fdopen|dup2?|closerange|pipe2?")
    + rb"|/proc/self\b|/dev/fd\b|\bF_DUPFD",
    "ctypes": rb"\bctypes\b|\bcffi\b",
    "fork": _of(b"os", b"fork|forkpty|posix_spawnp?|exec[lv]p?e?"),
}
_STANDARD = {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "iniconfig", "packaging"}
_NEW_FILE = re.compile(rb'^\+\+\+ "?b/([^"\t\n]+)', re.MULTILINE)


def deceptive_patterns(diff: bytes) -> tuple[str, ...]:
    """Names of patterns in the lines that a diff adds which could deceive a test process from
    inside, sorted. A flag is for a reader; it decides nothing.

    ``shadows NAME``: a top-level module of the tree that hides one of Python or pytest, because the
    workspace comes first on ``sys.path``.
    """
    added = b"\n".join(
        line[1:]
        for line in diff.split(b"\n")
        if line.startswith(b"+") and not line.startswith(b"+++ ")
    )
    found = {name for name, pattern in _SPOOFING.items() if re.search(pattern, added)}
    for path in _NEW_FILE.findall(diff):
        top, _, rest = path.decode("utf-8", "replace").partition("/")
        module = top.removesuffix(".py") if not rest else top
        known = module in _STANDARD or module.startswith("pytest")
        if known and (rest or top.endswith(".py")):
            found.add(f"shadows {module}")
    return tuple(sorted(found))


def can_signal(flags: Iterable[str]) -> bool:
    """Whether a patch with these flags could have killed the process that its tests run in."""
    return not {"os.abort", "ctypes", "kills its own run"}.isdisjoint(flags)
