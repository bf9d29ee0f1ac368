"""Cells that were repeated at other seeds."""

from projections.analyses.reliability import ReliabilityMeasures
from projections.repair.report.phrases import mark
from projections.repair.results import Results
from projections.report.model import (
    MARKS,
    MISSING,
    NOT_RESOLVED,
    RESOLVED,
    Block,
    Column,
    Fact,
    Facts,
    Section,
    Table,
    paragraph,
)
from projections.report.numbers import (
    count,
    interval,
    level,
    share,
)
from projections.results import Share
from schemas.repair.study import RepairStudy


def reliability_section(results: Results, study: RepairStudy) -> Section:
    found = results.reliability
    if found is None:
        return Section(id="reliability", title="Reliability", blocks=())
    cells = Table(
        caption="Repeated cells by seed",
        columns=(
            Column(title="task"),
            Column(title="arm"),
            *(Column(title=f"seed {seed}", kind="mark") for seed in found.seeds),
        ),
        rows=tuple(
            (
                cell.task,
                f"{cell.treatment} {cell.model}",
                *(mark(resolved, None) for resolved in cell.resolved),
            )
            for cell in found.cells
        ),
        note="; ".join(f"{sign} {MARKS[sign]}" for sign in (RESOLVED, NOT_RESOLVED, MISSING)) + ".",
    )
    facts = [Fact(term="Pairs of seeds that agree", value=share(found.agreement))]
    if found.measures is not None:
        facts += _facts(found.measures)
    summary = Facts(items=tuple(facts))
    blocks: list[Block] = [cells, summary]
    if all(model.generation.temperature == 0 for model in study.models):
        blocks.append(
            paragraph(
                "At temperature 0 seeds cannot act: this measures how repeatable the run time is."
            )
        )
    return Section(id="reliability", title="Reliability", blocks=tuple(blocks))


def _facts(measures: ReliabilityMeasures) -> list[Fact]:
    """Of the cells without a missing seed."""
    by_count = ", ".join(
        f"{times} times: {count(cells)}/{measures.cells}"
        for times, cells in enumerate(measures.successes)
    )
    icc = "not estimable: nothing varies"
    if measures.icc is not None:
        assert measures.icc_lower is not None and measures.icc_upper is not None
        spread = interval((measures.icc_lower, measures.icc_upper))
        icc = f"{measures.icc:+.3f} ({level(measures.confidence)} bootstrap over cells {spread})"
        if measures.undefined:
            of = f"{count(measures.undefined)} of {count(measures.replicates)}"
            icc += f"; nothing varies in {of} resamples"
    return [
        Fact(term="Resolved", value=by_count),
        Fact(term="Unanimous cells", value=share(Share(n=measures.unanimous, of=measures.cells))),
        Fact(term="Variance within cells", value=f"{measures.within_variance:.3f}"),
        Fact(term="Intraclass correlation", value=icc),
    ]
