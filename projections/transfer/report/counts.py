"""Thresholds, counts by class, and the seven stages."""

from projections.report.model import (
    Block,
    Group,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import PERCENTAGES_FROM
from projections.transfer.report.phrases import COUNT_NAMES, count_of_class, n_of
from projections.transfer.results import TransferResults
from schemas.transfer.family import STAGES


def thresholds_section(results: TransferResults) -> Section:
    blocks: list[Block] = []
    if results.thresholds:
        blocks.append(
            Table(
                caption="Thresholds, and when they were chosen",
                columns=(
                    *columns("threshold", "count", "system", "class"),
                    *columns("limit", "found", numbers=True, first="number"),
                    *columns("status", "chosen"),
                ),
                rows=tuple(
                    (
                        found.id,
                        COUNT_NAMES[found.name],
                        results.label(found.memory, found.driver),
                        found.class_ or "every class",
                        found.limit,
                        n_of(found),
                        found.status.replace("_", " "),
                        found.chosen,
                    )
                    for found in results.thresholds
                ),
                note="What was not observed, void runs too, never meets a threshold, and none is "
                "met while planned runs have not ended. Where one is not met, the command that "
                "writes this report ends with status 8.",
            )
        )
    if results.dropped:
        blocks.append(
            Table(
                caption="Thresholds that stand no more as they did",
                columns=columns("threshold", "was", "now", "record", "how"),
                rows=tuple(
                    (each.id, each.was, each.now or "removed", str(each.seq), each.finding)
                    for each in results.dropped
                ),
            )
        )
    return Section(id="thresholds", title="Thresholds", blocks=tuple(blocks))


def counts_section(results: TransferResults) -> Section:
    classes = sorted({count.class_ for count in results.counts})
    found = {
        (count.class_, count.memory, count.driver, count.name): count for count in results.counts
    }
    tables: list[Block] = []
    for class_ in classes:
        rows = []
        for name, title in COUNT_NAMES.items():
            cells = [
                found.get((class_, system.memory, system.driver, name))
                for system in results.systems
            ]
            rows.append((title, *(count_of_class(cell) for cell in cells)))
        tables.append(
            Table(
                caption=f"Class {class_.replace('_', ' ')}: numerator/denominator (+ unobserved, "
                "+ void)",
                columns=columns("count", *(system.label for system in results.systems)),
                rows=tuple(rows),
                note="In brackets the 95 % Wilson interval; where nothing failed, or nothing "
                "happened, the exact (Clopper\u2013Pearson) bound. 0/0 is not estimable; below "
                f"{PERCENTAGES_FROM} no percentages.",
            )
        )
    if tables:
        tables.append(
            paragraph("Classes have different denominators and are not pooled: there is no total.")
        )
    return Section(id="counts", title="Counts by class", blocks=tuple(tables))


def stages_section(results: TransferResults) -> Section:
    rows: list[tuple[str, ...]] = []
    groups = []
    for system in results.systems:
        own = [
            run
            for run in results.runs
            if run.system == (system.memory, system.driver) and run.result != "void"
        ]
        groups.append(Group(title=system.label, rows=len(STAGES)))
        for number, stage in enumerate(STAGES, start=1):
            verdicts = [run.stages[stage].verdict for run in own]
            earliest = sum(run.earliest == stage for run in own)
            reported = sum(
                run.stages[stage].grade == "reported"
                and run.stages[stage].verdict in ("pass", "fail")
                for run in own
            )
            rows.append(
                (
                    f"{number} {stage}",
                    *(str(verdicts.count(word)) for word in ("pass", "fail", "unobserved")),
                    str(verdicts.count("not_required")),
                    str(reported),
                    str(earliest),
                )
            )
    table = Table(
        caption="Verdicts of the seven stages",
        columns=columns(
            "stage",
            *("pass", "fail", "unobserved", "not required", "on its own word", "earliest failing"),
            numbers=True,
        ),
        rows=tuple(rows),
        groups=tuple(groups),
        note="Each stage is judged on its own evidence; a failure is assigned to the earliest "
        "stage with evidence of it. Verdicts on the system's own word count only by a policy "
        "that was frozen before the run.",
    )
    return Section(id="stages", title="Stages", blocks=(table,))
