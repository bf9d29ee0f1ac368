"""Calls by which a case can be satisfied, worked out from its expectations and tried on a world.

An author's mistake makes a case that no system can pass: a predicate that no expected call reaches,
an expected call that is prohibited. So the review plays every case once as a system would that
knows all: it makes the expected calls, fills the arguments that the expectation leaves free from
what the predicate wants, repeats what the fixture acknowledges falsely, and reads the surfaces.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actors.families.problems import Findings, Problem
from actors.fixture.world import World
from schemas.transfer.family import (
    DECLARE_DECISION,
    NEEDS_RESOLUTION,
    Acknowledgement,
    ArgumentTest,
    CallPattern,
    Case,
    Check,
    Family,
    Tool,
)
from schemas.transfer.family_checks import (
    MISSING,
    Decision,
    Observed,
    all_hold,
    declared_texts,
    expected_calls,
    look_up,
    malformed,
    passes,
    prohibited_calls,
)

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """What came of playing calls on a case's world."""

    action: bool
    """The expected calls were seen."""
    prohibited: tuple[str, ...]
    """Tools of prohibited calls."""
    outcome: bool
    lines: tuple[str, ...]
    """What each line of the predicate found, for those that do not hold."""
    refused: tuple[str, ...]
    """What the fixture answered to calls that it refused."""


def play(
    family: Family, case: Case, calls: Sequence[tuple[str, Arguments]], decision: Decision | None
) -> Played:
    """Make the calls on a fresh world of the case and judge as the scorer does."""
    declared = declared_texts(family.cases)
    world = World(family.fixture, family.decision_options, case.acknowledgements, declared=declared)
    refused: list[str] = []
    if decision is not None:
        basis = list(decision.basis)
        world.call(DECLARE_DECISION, {"option": decision.option, "basis": basis})
    for tool, arguments in calls:
        shown = world.call(tool, arguments)
        if not shown.ok:
            refused.append(f"{tool}: {shown.message}")
    world.close()
    journal = [entry.call for entry in world.journal]
    observed = Observed(family.fixture.surfaces, world.before, world.state, journal, decision)
    holds, lines = all_hold(case.expected.outcome, observed)
    return Played(
        action=expected_calls(case.expected.action, journal) is not None,
        prohibited=tuple(call.tool for call in prohibited_calls(case.prohibited, journal)),
        outcome=holds,
        lines=tuple(sentence for held, sentence in lines if not held),
        refused=tuple(refused),
    )


def ideal_decision(case: Case, alternative: Sequence[CallPattern], family: Family) -> Decision:
    """What a system that knows all would declare before these calls."""
    effects = {tool.name: tool.effect for tool in family.fixture.tools}
    acts = any(effects.get(pattern.tool) == "write" for pattern in alternative)
    options = [
        option for option in case.expected.decision_accept if (option != NEEDS_RESOLUTION) == acts
    ]
    option = options[0] if options else case.expected.decision_accept[0]
    return Decision(option=option, basis=case.eligible)


def ideal_calls(
    family: Family, case: Case, alternative: Sequence[CallPattern]
) -> list[tuple[str, Arguments]]:
    """The alternative as calls with every argument filled in."""
    tools = {tool.name: tool for tool in family.fixture.tools}
    calls: list[tuple[str, Arguments]] = []
    for pattern in alternative:
        tool = tools[pattern.tool]
        arguments = _fill(family, case, tool, pattern)
        behaviour = case.acknowledgements.get(tool.name, tool.acknowledgement)
        calls += [(tool.name, arguments)] * ((pattern.times or 1) + _in_vain(tool, behaviour))
    return calls


def _in_vain(tool: Tool, behaviour: Acknowledgement) -> int:
    """How many calls the fixture acknowledges without doing them."""
    if tool.effect != "write" or behaviour.kind != "false":
        return 0
    return behaviour.calls or 0


def _fill(family: Family, case: Case, tool: Tool, pattern: CallPattern) -> Arguments:
    wanted: Arguments = {}
    for name, value in _wanted(family, case, tool) if tool.effect == "write" else ():
        before = wanted.get(name)
        if isinstance(value, list) and isinstance(before, list):
            value = [*before, *(item for item in value if item not in before)]
        wanted[name] = value
    filled: Arguments = {}
    for name, kind in tool.parameters.items():
        test = pattern.arguments.get(name)
        if name in wanted and (test is None or passes(test, wanted[name])):
            filled[name] = wanted[name]
        elif test is not None and test.op != "any":
            filled[name] = _passing(test, kind)
        elif name not in tool.optional or test is not None:
            filled[name] = _any(family, case, tool, name, kind)
    return filled


def _passing(test: ArgumentTest, kind: str) -> Any:
    """An argument that passes the test, for what the predicate leaves open."""
    match test.op:
        case "in" if isinstance(test.value, (list, tuple)) and test.value:
            return test.value[0]
        case "includes":
            return [test.value] if kind == "list" else test.value
        case "excludes":
            return [] if kind == "list" else ""
        case _:
            return test.value


def _wanted(family: Family, case: Case, tool: Tool) -> Iterator[tuple[str, Any]]:
    """Arguments that the predicate asks for, by laying its paths over what the tool writes."""
    template, value = tool.operation.path.split("/"), tool.operation.value
    for check in case.expected.outcome:
        if check.surface not in family.fixture.surfaces or check.op == "unchanged":
            continue
        if malformed(check, family.fixture.surfaces):
            continue  # named by another rule
        root = family.fixture.surfaces[check.surface]
        path = "/".join(filter(None, (root, check.path))).split("/")
        bound = _lay_over(template, path)
        if bound is None:
            continue
        yield from bound.items()
        if len(path) == len(template) and isinstance(value, str):
            argument, found = _argument(value), _value_for(check, family, "/".join(path))
        elif len(path) == len(template) + 1 and isinstance(value, Mapping):
            argument = _argument(value.get(path[-1]))
            found = _value_for(check, family, "/".join(path))
        else:
            continue
        if argument and found is not MISSING:
            yield argument, found


def _lay_over(template: Sequence[str], path: Sequence[str]) -> dict[str, str] | None:
    """Arguments for which the template's path is ``path`` (or its beginning); None: never."""
    bound: dict[str, str] = {}
    for part, key in zip(template, path, strict=False):
        argument = _argument(part)
        if argument:
            bound[argument] = key
        elif part != key:
            return None
    return bound


def _argument(template: Any) -> str:
    found = re.fullmatch(r"\{(\w+)\}", template) if isinstance(template, str) else None
    return found[1] if found else ""


def _value_for(check: Check, family: Family, path: str) -> Any:
    """A value of which the check holds; MISSING where it asks for none."""
    match check.op:
        case "equals" | "starts_with":
            return check.value
        case "in":
            return check.value[0] if check.value else MISSING
        case "includes":
            first = look_up(family.fixture.state, path)
            kept = list(first) if isinstance(first, (list, tuple)) else []
            return [*kept, *(item for item in check.value if item not in kept)]
        case "between":
            after, before = check.value["after"], check.value["before"]
            first = look_up(family.fixture.state, path)
            steps = list(first) if isinstance(first, (list, tuple)) else []
            if after not in steps or before not in steps:
                return [after, *check.value["equals"], before] if check.value["equals"] else steps
            start = steps.index(after) + 1
            return [*steps[:start], *check.value["equals"], *steps[steps.index(before, start) :]]
    return MISSING


def _any(family: Family, case: Case, tool: Tool, name: str, kind: str) -> Any:
    """Some value for an argument about which nothing is said: an entry of the state where it names
    one, that of the session first."""
    session = case.session
    above, marker, _ = tool.operation.path.partition(f"{{{name}}}")
    entries = look_up(family.fixture.state, above.rstrip("/")) if marker else MISSING
    if isinstance(entries, Mapping):
        for said in (session.project, session.principal, session.task_class):
            if said in entries:
                return said
        return next(iter(sorted(entries)), session.project)
    if name == "project":
        return session.project
    return {"list": [], "integer": 0, "number": 0, "boolean": False}.get(kind, "something")


def check_satisfiable(family: Family) -> Findings:
    """Every alternative of every case can be done, is not prohibited, and makes the predicate hold;
    and the positive's predicate does not hold where nothing is done."""
    tools = {tool.name for tool in family.fixture.tools}
    for case in family.cases:
        for number, alternative in enumerate(case.expected.action or ((),), start=1):
            if not all(pattern.tool in tools for pattern in alternative):
                continue  # named by another rule
            if not case.expected.decision_accept:
                continue
            calls = ideal_calls(family, case, alternative)
            decision = ideal_decision(case, alternative, family)
            played = play(family, case, calls, decision)
            why = (
                [f"{tool} is prohibited" for tool in played.prohibited]
                + [f"refused: {message}" for message in played.refused]
                + ([] if played.action else ["the expected calls were not seen"])
                + list(played.lines)
            )
            if why:
                yield Problem(
                    rule="satisfiable",
                    place=case.case_id,
                    message=f"alternative {number} of the expected action cannot succeed as played "
                    f"({_shown(calls)}): {'; '.join(dict.fromkeys(why))}",
                )
        if case.kind == "positive" and play(family, case, (), None).outcome:
            yield Problem(
                rule="idle-predicate",
                place=case.case_id,
                message="the predicate holds where nothing is done: it shows no outcome",
            )


def _shown(calls: Sequence[tuple[str, Arguments]]) -> str:
    return "; ".join(
        f"{tool}({', '.join(f'{name}={value}' for name, value in arguments.items())})"
        for tool, arguments in calls
    )
