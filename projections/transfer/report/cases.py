"""Families, cases, failures and runs."""

from projections.report.model import (
    Block,
    Column,
    Folded,
    Group,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import NONE
from projections.transfer.report.phrases import SYMBOLS, evidence, why
from projections.transfer.results import TransferResults
from schemas.counted import counted
from schemas.transfer.family import STAGES


def families_section(results: TransferResults) -> Section:
    if not results.families:
        return Section(id="families", title="Families", blocks=())
    table = Table(
        caption="Families: every case verified at k of k, and the baseline misses",
        columns=(
            *columns("family", "system", "class"),
            *columns("distractors", "cases verified", numbers=True, first="number"),
            *columns("result"),
            *columns(
                "both",
                *("only with", "only without", "neither", "unobserved"),
                numbers=True,
                first="number",
            ),
        ),
        rows=tuple(
            (
                family.family,
                results.label(family.memory, family.driver),
                family.class_.replace("_", " "),
                str(family.distractors),
                f"{family.verified_cases}/{family.cases}",
                family.result.replace("_", " "),
                *(
                    str(number)
                    for number in (
                        family.paired.both,
                        family.paired.only_with,
                        family.paired.only_without,
                        family.paired.neither,
                        family.paired.unobserved,
                    )
                ),
            )
            for family in results.families
        ),
        note="The last five columns are the paired 2\u00d72 over trials: decision and outcome of "
        "the positive hit with the correction in the store, and without it (baseline).",
    )
    weak = [family for family in results.families if family.non_discriminating]
    blocks: list[Block] = [table]
    if weak:
        blocks.append(
            Table(
                caption="Families that do not discriminate",
                columns=(
                    *columns("family", "system"),
                    Column(title="why", kind="prose"),
                ),
                rows=tuple(
                    (
                        family.family,
                        results.label(family.memory, family.driver),
                        family.non_discriminating,
                    )
                    for family in weak
                ),
            )
        )
    return Section(id="families", title="Families", blocks=tuple(blocks))


def cases_section(results: TransferResults) -> Section:
    systems = [(system.memory, system.driver) for system in results.systems]
    found = {
        (case.family, case.case, case.distractors, case.memory, case.driver): case
        for case in results.cases
    }
    keys = dict.fromkeys(key[:3] for key in found)
    kinds = {(case.family, case.case): case.kind for case in results.cases}
    rows = []
    for family, case, distractors in keys:
        cells = []
        for system in systems:
            one = found.get((family, case, distractors, *system))
            cells.append(
                NONE if one is None else f"{one.verified}/{one.trials} {SYMBOLS[one.result]}"
            )
        rows.append((case, kinds[family, case].replace("_", " "), str(distractors), *cells))
    table = Table(
        caption="Cases: trials verified of k, and whether the case passes at all of them",
        columns=(
            *columns("case", "kind"),
            *columns("distractors", numbers=True, first="number"),
            *columns("", *(system.label for system in results.systems))[1:],
        ),
        rows=tuple(rows),
    )
    return Section(id="cases", title="Cases", blocks=(table,) if rows else ())


def failures_section(results: TransferResults) -> Section:
    failed = [run for run in results.runs if run.result == "failed"]
    blocks: list[Block] = []
    for family in dict.fromkeys(run.family for run in failed):
        own = [run for run in failed if run.family == family]
        table = Table(
            caption=f"Failed runs of {family} with their earliest evidenced failing stage",
            columns=(
                Column(title="run", kind="run"),
                *columns("stage", "attribution uncertain"),
                Column(title="why", kind="prose"),
                Column(title="records"),
            ),
            rows=tuple(
                (
                    run.cell,
                    run.earliest or "none",
                    ", ".join(run.uncertain) or NONE,
                    why(run),
                    evidence(run),
                )
                for run in own
            ),
        )
        blocks.append(Folded(title=f"{family}: {counted(len(own), 'failed run')}", table=table))
    if blocks:
        blocks.append(
            paragraph(
                "Stages before the earliest failing one that were not observed make its "
                "attribution uncertain: they are listed, not guessed."
            )
        )
    return Section(id="failures", title="Failed runs", blocks=tuple(blocks))


def runs_section(results: TransferResults) -> Section:
    short = {"pass": "pass", "fail": "FAIL", "unobserved": "?", "not_required": NONE}
    rows: list[tuple[str, ...]] = []
    groups = []
    for system in results.systems:
        own = [run for run in results.runs if run.system == (system.memory, system.driver)]
        groups.append(Group(title=system.label, rows=len(own)))
        for run in own:
            rows.append(
                (
                    run.cell,
                    run.result,
                    run.behavioural.replace("_", " "),
                    *(short[run.stages[stage].verdict] for stage in STAGES),
                )
            )
    table = Table(
        caption="Every run with its seven stages",
        columns=(
            Column(title="run", kind="run"),
            *columns("result", "behavioural", *STAGES),
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="Each run has a page of its own with prompt, snapshot, trace, decision, calls and "
        "surface. A question mark stands for unobserved.",
    )
    return Section(id="runs", title="Runs", blocks=(table,) if rows else ())
