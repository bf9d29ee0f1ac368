"""Patterns in a patch that could deceive a Go test process from inside. A flag decides nothing."""

import re
from collections.abc import Iterable

# Every repetition is bounded, so that the time is a multiple of the length whatever a patch holds.
_DECEPTIVE = {
    "long line": rb"[^\n]{1000}",
    "testing": rb"[\"`](testing|testing/\w{1,40}|flag)[\"`]|-test\.|\btest\.(run|v|count|skip)\b",
    "test files": rb"_test\.go\b|\btestdata\b|[\"'`/]tests?/",
    "report": rb"\\x16|\\u0016|--- (PASS|FAIL|SKIP)|=== RUN|\"Action\"|\bsignal: ",
    "os.Exit": rb"\b(os|syscall|unix)\s*\.\s*Exit\b|\bruntime\s*\.\s*Goexit\b|\bexit_group\b",
    "signals": rb"\bsyscall\s*\.\s*(Kill|Tgkill)\b|\bos\s*\.\s*FindProcess\b"
    rb"|\.\s*(Kill|Signal)\s*\(|\b(SYS_KILL|SYS_TGKILL)\b",
    "syscall": rb"[\"`](syscall|golang\.org/x/sys/\w{1,40})[\"`]|\bRawSyscall",
    "unsafe": rb"[\"`](unsafe|plugin|runtime/debug)[\"`]|//go:linkname\b",
    "cgo": rb"\bimport\s{1,9}\"C\"|//export\b|#cgo\b",
    "embed": rb"//go:embed\b",
    "build constraint": rb"//\s?(go:build|\+build)\b",
    "arguments": rb"\bos\s*\.\s*Args\b|\bflag\s*\.\s*(Set|CommandLine|Parse)\b",
    "frames": rb"\bruntime\s*\.\s*(Callers?|Stack|FuncForPC|CallersFrames)\b",
    "init": rb"\bfunc\s{1,9}init\s*\(",
    "descriptors": rb"\bos\s*\.\s*(NewFile|Stdout|Pipe)\b|/proc/|/dev/fd\b",
    "processes": rb"[\"`]os/exec[\"`]|\bos\s*\.\s*StartProcess\b",
    "go directives": rb"^[ \t]{0,40}(toolchain|replace|exclude|retract)[ \t]",
}
_COMPILED = {name: re.compile(pattern, re.MULTILINE) for name, pattern in _DECEPTIVE.items()}
_FROM_INSIDE = {"signals", "syscall", "unsafe", "cgo", "processes", "report"}


def deceptive_patterns(diff: bytes) -> tuple[str, ...]:
    """Names of patterns in the lines that a diff adds, sorted."""
    added = b"\n".join(
        line[1:]
        for line in diff.split(b"\n")
        if line.startswith(b"+") and not line.startswith(b"+++ ")
    )
    return tuple(sorted(name for name, pattern in _COMPILED.items() if pattern.search(added)))


def can_signal(flags: Iterable[str]) -> bool:
    """Whether a patch with these flags could have killed its own run, or have written that
    somebody did."""
    return not _FROM_INSIDE.isdisjoint(flags)
