"""Reading what ``go test -json`` said (``go doc test2json``), and believing what agrees.

Results are keyed by package and test, subtests included. A package that could not be built has lost
its tests; a test that began and has no terminal action has failed. With a canary a package is
believed only where its first tests failed as they must, and its passes only where its last one was
reached: code that ends the process early passes nothing.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from actors.languages.contract import OWN_SIGNALS, Ended, Outcome, Report
from actors.languages.go.command import PLAN, Package, Plan, canary_name
from schemas.base import Value

CANARY_TESTS = ("Error", "Fatal", "Subtest")
_TERMINAL: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_FOREIGN_SIGNAL = re.compile(r"signal: (killed|terminated|hangup|interrupt|quit|user defined)")
_TEXT = 2000


class Begin(Value, tag_field="kind", tag="begin"):
    nonce: str
    go: str


class OutputLine(Value, tag_field="kind", tag="line"):
    nonce: str
    job: int
    text: str


class JobEnded(Value, tag_field="kind", tag="ended"):
    nonce: str
    job: int
    status: int
    """Negative: the number of the signal that ended `go`."""


class End(Value, tag_field="kind", tag="end"):
    nonce: str


_decoder = msgspec.json.Decoder(Begin | OutputLine | JobEnded | End)


class Event(msgspec.Struct, rename="pascal"):
    """A line of ``go test -json``; fields of other versions are let through."""

    action: str
    package: str = ""
    import_path: str = ""
    test: str = ""
    output: str = ""
    failed_build: str = ""


_event_decoder = msgspec.json.Decoder(Event)


@dataclass
class _Seen:
    """What was said of one package."""

    begun: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ended: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    end: str = ""
    failed_build: str = ""
    last_words: list[str] = field(default_factory=list)


class _NotCredible(Exception):
    def __init__(self, reason: str, *flags: str, killed: bool = False) -> None:
        super().__init__(reason)
        self.flags, self.killed = flags, killed


def read_report(ended: Ended) -> Report:
    """See ``contract.Tests``."""
    if ended.timed_out:
        return Report(verdict="timeout", reason="the time limit was reached")
    plan = msgspec.json.decode((ended.requested.place / PLAN).read_bytes(), type=Plan)
    try:
        lines, statuses = _lines(ended, len(plan.jobs))
        packages, built = _packages(plan, lines)
        return _judge(ended, plan, packages, built, statuses)
    except _NotCredible as error:
        return Report(
            verdict="infrastructure", reason=str(error), flags=error.flags, killed=error.killed
        )


def _lines(ended: Ended, jobs: int) -> tuple[list[str], list[int]]:
    """What `go` printed, and how it ended for every job. Raises _NotCredible."""
    how = f"exit status {ended.exit_status}"
    killed = False
    if ended.exit_status is None:
        how, killed = f"signal {ended.signal}", ended.signal not in OWN_SIGNALS
    if not ended.complete:
        raise _NotCredible("the report is larger than allowed")
    raws = ended.results.split(b"\n")
    if raws[-1]:
        raise _NotCredible("damaged report: its last line is not whole", killed=killed)
    said: list[str] = []
    statuses: list[int] = []
    finished = False
    for number, raw in enumerate(raws[:-1], start=1):
        try:
            line = _decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _NotCredible(
                f"forged or damaged report: line {number} is not one of the reporter's"
            ) from None
        if line.nonce != ended.requested.nonce:
            raise _NotCredible(f"forged report: line {number} has another nonce")
        if finished:
            raise _NotCredible("forged report: lines after the end")
        match line:
            case OutputLine():
                said.append(line.text)
            case JobEnded():
                statuses.append(line.status)
            case End():
                finished = True
            case Begin():
                pass
    for status in statuses:
        if status < 0:
            raise _NotCredible(f"go test: signal {-status}", killed=-status not in OWN_SIGNALS)
    if not finished or ended.exit_status != 0:
        raise _NotCredible(f"no end of the report ({how})", killed=killed)
    if len(statuses) != jobs:
        raise _NotCredible(f"forged report: {len(statuses)} calls of {jobs} have ended")
    return said, statuses


def _packages(plan: Plan, lines: list[str]) -> tuple[dict[str, _Seen], dict[str, str]]:
    """What was said of each package, and what the compiler said of each build."""
    packages: dict[str, _Seen] = {name: _Seen() for name in plan.packages}
    built: dict[str, str] = defaultdict(str)
    for text in lines:
        try:
            event = _event_decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _NotCredible(f"go test printed what is no event: {text[:200]!r}") from None
        if event.action in ("build-output", "build-fail"):
            built[event.import_path] += event.output
            continue
        seen = packages.get(event.package)
        if seen is None:
            raise _NotCredible(f"forged report: nobody asked for package {event.package[:200]!r}")
        if seen.end:
            raise _NotCredible(f"forged report: lines after the end of {event.package}")
        if event.action == "output":
            seen.last_words = [*seen.last_words[-9:], event.output]
        elif event.action == "run":
            seen.begun[event.test] += 1
        elif event.action in _TERMINAL:
            if event.test:
                seen.ended[event.test].append(_TERMINAL[event.action])
            else:
                seen.end, seen.failed_build = event.action, event.failed_build
    return packages, built


def _judge(
    ended: Ended,
    plan: Plan,
    packages: dict[str, _Seen],
    built: dict[str, str],
    statuses: list[int],
) -> Report:
    if any(status not in (0, 1) for status in statuses) or not any(
        seen.end for seen in packages.values()
    ):
        raise _NotCredible(f"go test ended with {statuses}: {_last_line(ended.output)}")
    for name, seen in packages.items():
        words = [word for word in seen.last_words if _FOREIGN_SIGNAL.match(word)]
        if words and seen.end == "fail":
            raise _NotCredible(f"{name}: {words[-1].strip()}", killed=True)
        if seen.end == "pass" and any("failed" in ends for ends in seen.ended.values()):
            raise _NotCredible(f"disagreement: {name} is said to pass, and a test of it failed")
        if not seen.end:
            raise _NotCredible(f"{name} has no terminal action")
    failed = any(seen.end == "fail" for seen in packages.values())
    if failed != any(status == 1 for status in statuses):
        raise _NotCredible(f"disagreement: go test ended with {statuses}")
    canary = canary_name(ended.requested.nonce) if ended.requested.canary else ""
    outcomes: dict[str, Outcome] = {}
    lost: dict[str, str] = {}
    for name, seen in packages.items():
        package = plan.packages[name]
        if not seen.begun and seen.end == "fail":
            said = built.get(seen.failed_build, "") or "".join(seen.last_words)
            lost |= dict.fromkeys(package.files, said.strip()[:_TEXT])
            continue
        outcomes |= _outcomes(name, package, seen, canary)
    first = next((f"{file}: {text}" for file, text in sorted(lost.items())), "")
    if not outcomes and not lost:
        raise _NotCredible("no tests were run")
    return Report(
        verdict="finished",
        outcomes=dict(sorted(outcomes.items())),
        collection_errors=tuple(sorted(lost)),
        first_error=first,
    )


def _outcomes(name: str, package: Package, seen: _Seen, canary: str) -> dict[str, Outcome]:
    """Outcomes of one package by test id, without the canary. Raises _NotCredible."""
    found: dict[str, Outcome] = {}
    for test in sorted({*seen.begun, *seen.ended}):
        top = test.partition("/")[0]
        if canary and top.startswith(f"Test{canary}"):
            continue
        files = package.tests.get(top)
        if files is None:
            raise _NotCredible(f"forged report: no file of {name} defines {top[:200]!r}")
        ends = seen.ended.get(test, [])
        if max(len(ends), seen.begun.get(test, 0)) > len(files):
            raise _NotCredible(f"forged report: {test[:200]} of {name} has ended {len(ends)} times")
        whole = len(ends) == seen.begun.get(test, 0) > 0
        worst = next((end for end in ("failed", "skipped") if end in ends), "passed")
        found[f"{files[0]}::{test}"] = msgspec.convert(worst if whole else "failed", Outcome)
    if not canary:
        return found
    for kind in CANARY_TESTS:
        end = seen.ended.get(f"Test{canary}{kind}", [])
        if end and end != ["failed"]:
            raise _NotCredible(
                f"not credible: a test that must fail was reported as {end[0]}",
                "canary did not fail",
            )
        if not end and "passed" in found.values():
            raise _NotCredible(
                "not credible: a test that must fail was not reported", "canary is missing"
            )
    last = seen.ended.get(f"Test{canary}Last", [])
    if last and last != ["failed"]:
        raise _NotCredible(
            f"not credible: a test that must fail was reported as {last[0]}", "canary did not fail"
        )
    if not last:
        # The process ended before: by a panic, or by somebody who had printed enough.
        return {test: "error" if end == "passed" else end for test, end in found.items()}
    return found


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:300]
