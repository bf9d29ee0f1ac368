"""The review of a family before it is frozen: record rules, completeness, leakage lint, waivers.

A waiver accepts findings of one rule of the leakage lint, in one case or in the whole family, with
a reason that is frozen and printed. What decides what a verdict means (records, kinds, stages,
decisions, calls, predicates that can hold) cannot be waived.
"""

from collections.abc import Sequence

import msgspec

from actors.families import completeness, leakage_lint
from actors.families.ideal_calls import check_satisfiable
from actors.families.problems import Findings, Problem
from projections.transfer.corrections import Corrections
from schemas.transfer.family import WAIVABLE_RULES, Family
from schemas.transfer.lifecycle import standings_of


def review(family: Family, corrections: Corrections | None = None) -> list[Problem]:
    """Every problem of one family, waived ones included (with their reason), in a fixed order.

    ``corrections`` is what the ledger knows, folded up to the position of the freeze.
    """
    problems = list(_findings(family, corrections or Corrections()))
    used: set[int] = set()
    reviewed: list[Problem] = []
    for problem in problems:
        for index, waiver in enumerate(family.waivers):
            fits = waiver.rule == problem.rule and waiver.case in ("", problem.place)
            if fits and problem.rule in WAIVABLE_RULES:
                used.add(index)
                problem = msgspec.structs.replace(problem, waived=waiver.reason)
                break
        reviewed.append(problem)
    for index, waiver in enumerate(family.waivers):
        if index not in used:
            where = f" in {waiver.case}" if waiver.case else ""
            reviewed.append(
                Problem(
                    rule="waiver",
                    place=waiver.case,
                    message=f"the waiver of `{waiver.rule}`{where} accepts nothing: "
                    + (
                        "take it out"
                        if waiver.rule in WAIVABLE_RULES
                        else "only the leakage lint's findings can be waived, since the others "
                        "decide what a verdict means"
                    ),
                )
            )
    return reviewed


def review_suite(
    families: Sequence[Family], corrections: Corrections | None = None
) -> dict[str, list[Problem]]:
    """Family id → its problems; under the empty id those of the whole suite."""
    found = {family.family_id: review(family, corrections) for family in families}
    found[""] = list(leakage_lint.blind_policies(families))
    return found


def unwaived(problems: Sequence[Problem]) -> list[Problem]:
    """What keeps a family from being frozen."""
    return [problem for problem in problems if not problem.waived]


def _findings(family: Family, corrections: Corrections) -> Findings:
    standings = standings_of(family.records, corrections.standings, family.conditions)
    yield from completeness.check_records(family, corrections, standings)
    yield from completeness.check_kinds(family)
    yield from completeness.check_operations(family)
    yield from completeness.check_look_alikes(family)
    yield from completeness.check_decisions(family)
    yield from completeness.check_cases(family, standings)
    yield from leakage_lint.lint(family)
    yield from check_satisfiable(family)
