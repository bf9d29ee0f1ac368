"""Models, budgets, isolation, and how to compute everything again."""

from projections.repair.report.inputs import ReportInputs
from projections.repair.results import Results
from projections.report.conduct import Conduct
from projections.report.model import (
    Block,
    Column,
    Section,
    Table,
    columns,
)
from projections.report.numbers import (
    NONE,
    count,
)
from projections.report.plain_text import listed
from projections.report.sections import (
    declared_models_tables,
    reproduction_section,
)


def models_section(results: Results) -> Section:
    """What was asked, how, and what a cell could spend: as frozen and as amendments left it."""
    budgets = Table(
        caption="Budgets of a cell",
        columns=columns(
            "since record",
            *("cells", "turns", "tool calls", "test runs", "bytes of a patch", "attempts"),
            numbers=True,
            first="number",
        ),
        rows=tuple(
            (
                str(each.since),
                count(each.cells),
                count(each.budgets.turns),
                count(each.budgets.tool_calls),
                count(each.budgets.test_runs),
                count(each.budgets.patch_bytes),
                count(each.budgets.infrastructure_attempts),
            )
            for each in results.budgets
        ),
    )
    models = declared_models_tables(results.models)
    blocks = (*models, budgets) if models else ()
    return Section(id="models", title="Models and budgets", blocks=blocks)


def isolation_section(conduct: Conduct) -> Section:
    probes: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    for seq, _, probe in conduct.probes:
        title = f"{probe.kind}, accepted as unsafe" if probe.accepted_unsafe else probe.kind
        probes.setdefault((title, tuple(probe.enforced.items())), []).append(seq)
    if not probes:
        return Section(id="isolation", title="Isolation of test runs", blocks=())
    names = dict.fromkeys(name for _, enforced in probes for name, _ in enforced)
    table = Table(
        caption="What contained the tests, found by trying",
        columns=columns(
            "isolation",
            *(f"{title}, record {listed(records)}" for (title, _), records in probes.items()),
        ),
        rows=tuple(
            (name, *(dict(enforced).get(name, NONE) for _, enforced in probes)) for name in names
        ),
    )
    return Section(id="isolation", title="Isolation of test runs", blocks=(table,))


def reproduction(inputs: ReportInputs) -> Section:
    return reproduction_section(
        inputs.results.computed_from,
        inputs.conduct,
        root=inputs.root,
        checkpoint=inputs.checkpoint,
        analysis=inputs.analysis,
        results_digest=inputs.results_digest,
        tables=_index_streams(inputs.results),
    )


def _index_streams(results: Results) -> list[Block]:
    streams = {
        (interval_.stream, interval_.replicates, interval_.pairs, interval_.index_sha256)
        for contrast in results.contrasts
        for interval_ in (contrast.bootstrap, contrast.sensitivity.stratified)
        if interval_ is not None
    }
    if streams:
        return [
            Table(
                caption="Index streams of the bootstrap",
                columns=(
                    Column(title="stream"),
                    *columns("replicates", "pairs", numbers=True, first="number"),
                    Column(title="SHA-256 of the index matrix", kind="code"),
                ),
                rows=tuple(
                    (name, count(replicates), count(pairs), digest)
                    for name, replicates, pairs, digest in sorted(streams)
                ),
            )
        ]
    return []
