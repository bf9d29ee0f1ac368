"""Reading the reporter's lines: strict, bounded, and believed only where everything agrees.

A run has finished when its lines are whole, carry the nonce, end with the session's end, and the
process's exit status, the session's own counts and the single tests say the same. Everything else
is an infrastructure verdict with a reason, never a failed test. One case has no session and is a
finding all the same: a conftest that cannot be imported, which the reporter has seen itself; then
nothing was collected, as when a test file cannot be imported.

A run that grades or validates holds a canary: tests that must fail, in a file that only the run's
nonce names. Where one of them does not fail, something in the process decides what is reported,
and no other outcome of it is worth more.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from actors.languages.contract import OWN_SIGNALS, Ended, Outcome, Report, secret_name
from actors.languages.python.command import CANARY_TESTS
from schemas.base import Value

_EXIT = {
    2: "interrupted",
    3: "internal error",
    4: "usage error",
    5: "no tests collected",
}


class Begin(Value, tag_field="kind", tag="begin"):
    nonce: str
    pytest: str


class ConftestFailed(Value, tag_field="kind", tag="conftest_failed"):
    nonce: str
    path: str
    text: str


class Collected(Value, tag_field="kind", tag="collected"):
    nonce: str
    tests: int
    """Different ids; ``items`` may be more where a file was collected twice."""
    items: int


class Collection(Value, tag_field="kind", tag="collection"):
    nonce: str
    id: str
    outcome: Literal["failed", "skipped"]
    text: str


class Phase(Value, tag_field="kind", tag="phase"):
    nonce: str
    id: str
    when: Literal["setup", "call", "teardown"]
    outcome: str
    """passed, failed, skipped, or a word of another plugin (``rerun``)."""
    xfail: bool


class LatePlugin(Value, tag_field="kind", tag="late_plugin"):
    nonce: str
    name: str
    """Module of a plugin, or module and class of its object."""


class Meddled(Value, tag_field="kind", tag="meddled"):
    nonce: str
    file: str
    """Below the workspace."""
    what: str


class Signals(Value, tag_field="kind", tag="signals"):
    """Code of the run is about to send a signal to its own process."""

    nonce: str
    signal: int


class InternalError(Value, tag_field="kind", tag="internal_error"):
    nonce: str
    text: str


class End(Value, tag_field="kind", tag="end"):
    nonce: str
    exit_status: int
    failed: int
    collected: int
    stopped: bool


Line = (
    Begin
    | ConftestFailed
    | Collected
    | Collection
    | Phase
    | LatePlugin
    | Meddled
    | Signals
    | InternalError
    | End
)
_decoder = msgspec.json.Decoder(Line)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Tests that must fail: ``name`` stands in their ids and in no other, ``tests`` is how many."""

    name: str
    tests: int


def read_results(
    content: bytes,
    *,
    complete: bool,
    nonce: str,
    exit_status: int | None,
    signal: int | None,
    timed_out: bool,
    workspace: str = "",
    output: bytes = b"",
    canary: Canary | None = None,
) -> Report:
    """Judge one run by its lines and by how its process ended.

    ``complete`` is false where the channel's limit cut something off. ``workspace`` is the prefix
    under which the run saw its files; it is taken off the path of a broken conftest. The canary is
    in no outcome, collection error or meddling of the results.
    """
    flags: tuple[str, ...] = ()
    killed = exit_status is None and signal not in OWN_SIGNALS

    def broken(reason: str) -> Report:
        return Report(verdict="infrastructure", reason=reason, flags=flags, killed=killed)

    if timed_out:
        return Report(verdict="timeout", reason="the time limit was reached")
    if not complete:
        return broken("the report is larger than allowed")
    lines: list[Line] = []
    for number, raw in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            line = _decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return broken(f"forged or damaged report: line {number} is not one of the reporter's")
        if line.nonce != nonce:
            return broken(f"forged report: line {number} has another nonce")
        lines.append(line)
    late = {line.name for line in lines if isinstance(line, LatePlugin)}
    flags = tuple(sorted(f"plugin registered during the run: {name}" for name in late))
    if exit_status is None and any(isinstance(one, Signals) for one in lines):
        flags = tuple(sorted({*flags, "kills its own run"}))
        killed = False
    if content and not content.endswith(b"\n"):
        return broken("damaged report: its last line is not whole")
    how = f"signal {signal}" if exit_status is None else f"exit status {exit_status}"
    if not lines or not isinstance(lines[0], Begin):
        return broken(f"pytest did not start ({how})")

    ends = [position for position, line in enumerate(lines) if isinstance(line, End)]
    if not ends:
        failed = [line for line in lines if isinstance(line, ConftestFailed)]
        if failed and exit_status in (1, 4):
            path = failed[0].path.removeprefix(workspace).lstrip("/") or "conftest.py"
            reason = f"{path} cannot be imported: {failed[0].text[:300]}"
            return Report(
                verdict="finished",
                reason=reason,
                collection_errors=(path,),
                first_error=f"{path}: {failed[0].text}",
                flags=flags,
            )
        if exit_status == 4:
            return broken(f"pytest refuses how it is called: {_last_line(output)}")
        return broken(f"no session-finished record ({how})")
    if ends != [len(lines) - 1]:
        return broken("forged report: lines after the session's end")
    end = lines[-1]
    assert isinstance(end, End)
    if exit_status != end.exit_status:
        return broken(f"disagreement: the process ended with {how}, the session said otherwise")
    if exit_status not in (0, 1):
        return broken(f"pytest {how} ({_EXIT.get(exit_status, 'unknown')}){_because(lines)}")
    agreed = _agreed(lines, end, flags)
    return agreed if canary is None else _without_canary(agreed, canary)


def _without_canary(results: Report, canary: Canary) -> Report:
    """The results proper, if every test of the canary failed as it must."""
    if results.verdict != "finished":
        return results

    def broken(reason: str, *flags: str) -> Report:
        flagged = tuple(sorted({*results.flags, *flags}))
        return Report(verdict="infrastructure", reason=reason, flags=flagged)

    seen = {test: seen for test, seen in results.outcomes.items() if canary.name in test}
    survived = sorted({seen for seen in seen.values() if seen not in ("failed", "error")})
    if survived:
        return broken(
            f"not credible: a test that must fail was reported as {', '.join(survived)}",
            "canary did not fail",
        )
    if len(seen) < canary.tests:
        return broken(
            f"not credible: {len(seen)} of {canary.tests} tests that must fail were reported",
            "canary is missing",
        )
    outcomes = {test: o for test, o in results.outcomes.items() if test not in seen}
    if not outcomes and not results.collection_errors:
        return broken("no tests collected")
    meddling = tuple(one for one in results.meddling if canary.name not in one[1])
    return replace(results, outcomes=outcomes, meddling=meddling)


def read_report(ended: Ended) -> Report:
    """See ``contract.Tests``."""
    requested = ended.requested
    canary = None
    if requested.canary:
        canary = Canary(name=secret_name("canary", requested.nonce), tests=CANARY_TESTS)
    return read_results(
        ended.results,
        complete=ended.complete,
        nonce=requested.nonce,
        exit_status=ended.exit_status,
        signal=ended.signal,
        timed_out=ended.timed_out,
        workspace=requested.inside,
        output=ended.output,
        canary=canary,
    )


def _last_line(output: bytes) -> str:
    """What pytest says in its errors of usage, which it prints last."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    errors = [line for line in lines if re.match(r"error:|.*: error:", line, re.IGNORECASE)]
    return ([*lines, *errors] or [""])[-1][:300]


def _because(lines: Sequence[Line]) -> str:
    texts = [line.text for line in lines if isinstance(line, InternalError)]
    return f": {texts[0][-300:]}" if texts else ""


def _agreed(lines: Sequence[Line], end: End, flags: tuple[str, ...]) -> Report:
    """Per-test outcomes, if they agree with the session's counts and exit status."""

    def disagree(reason: str) -> Report:
        return Report(verdict="infrastructure", reason=f"disagreement: {reason}", flags=flags)

    phases: dict[str, list[Phase]] = defaultdict(list)
    collection_errors: dict[str, str] = {}
    collected = None
    failed_reports = 0
    for line in lines:
        match line:
            case Phase():
                phases[line.id].append(line)
                failed_reports += line.outcome == "failed" and not line.xfail
            case Collection():
                failed_reports += line.outcome == "failed"
                if line.outcome == "failed":
                    collection_errors.setdefault(line.id.partition("::")[0], line.text)
            case Collected():
                collected = line
            case _:
                pass
    outcomes: dict[str, Outcome] = {}
    for test, reports in phases.items():
        outcome = _outcome(reports)
        if outcome is None:
            return disagree(f"{test} was not run from setup to teardown")
        outcomes[test] = outcome
    if failed_reports != end.failed:
        return disagree(f"{failed_reports} reports failed, the session counted {end.failed}")
    if (end.failed > 0) != (end.exit_status == 1):
        return disagree(f"{end.failed} failed and the exit status is {end.exit_status}")
    expected = collected.tests if collected else end.collected
    if collected and collected.items != end.collected:
        return disagree(f"{collected.items} tests were collected, then {end.collected}")
    if len(outcomes) > expected or (len(outcomes) < expected and not end.stopped):
        return disagree(f"{len(outcomes)} tests reported of {expected} collected")
    meddling = {(line.file, line.what) for line in lines if isinstance(line, Meddled)}
    return Report(
        verdict="finished",
        outcomes=dict(sorted(outcomes.items())),
        collection_errors=tuple(sorted(collection_errors)),
        first_error=next((f"{file}: {text}" for file, text in collection_errors.items()), ""),
        flags=flags,
        meddling=tuple(sorted(meddling)),
    )


def _outcome(reports: Sequence[Phase]) -> Outcome | None:
    """One word for all reports of a test, the worst winning; None where phases are missing.

    A test may have several calls or set-ups (subtests, reruns); it has passed only if all did.
    """
    by_phase = {
        when: [report for report in reports if report.when == when]
        for when in ("setup", "call", "teardown")
    }
    setup, call, teardown = by_phase["setup"], by_phase["call"], by_phase["teardown"]
    if not setup or not teardown:
        return None
    if any(report.outcome not in ("passed", "skipped") for report in setup):
        return "error"
    if any(report.outcome not in ("passed", "skipped") for report in call):
        return "failed"
    if any(report.outcome != "passed" for report in teardown):
        return "error"
    for report in (*setup, *call):
        if report.outcome == "skipped":
            return "xfailed" if report.xfail else "skipped"
    if not call:
        return None
    return "xpassed" if any(report.xfail for report in call) else "passed"
