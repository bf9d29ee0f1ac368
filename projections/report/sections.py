"""Sections that the reports of both kinds of study have."""

from collections.abc import Mapping, Sequence

from projections.amendments import IN_WORDS, Amendments, changed_keys
from projections.report.conduct import Conduct, Deviation
from projections.report.model import (
    Block,
    Column,
    Commands,
    Fact,
    Facts,
    Section,
    Table,
    columns,
    day,
    paragraph,
)
from projections.report.numbers import count
from projections.report.plain_text import listed
from projections.results import ComputedFrom, DeclaredModel


def deviations_section(
    conduct: Conduct,
    amendments: Amendments,
    code_not_as_frozen: Sequence[str],
    more: Sequence[Deviation] = (),
) -> Section:
    """What did not go as planned, and who looked at outcomes when."""
    found = [
        *conduct.deviations(),
        *more,
        *(
            Deviation(
                what=f"amendment {IN_WORDS[row.finding]}",
                records=(row.seq,),
                detail=row.reason,
            )
            for row in amendments.recorded
        ),
        *(
            Deviation(
                what="outcomes inspected",
                records=(row.seq,),
                detail=f"{row.graded} cells with an outcome: {row.reason}",
            )
            for row in amendments.inspected
        ),
    ]
    found.sort(key=lambda deviation: deviation.records[0])
    blocks: list[Block] = []
    if all(deviation.what == "outcomes inspected" for deviation in found):
        blocks.append(
            paragraph(
                "No amendment, void, rerun, retry, interrupted run or missing sandbox is recorded."
            )
        )
    blocks.append(
        Table(
            caption="Deviations and inspections, in the order of records",
            columns=(
                *columns("what", "records"),
                Column(title="in the words of the record", kind="prose"),
            ),
            rows=tuple((each.what, listed(each.records), each.detail) for each in found),
        )
    )
    if code_not_as_frozen:
        blocks.append(
            paragraph(
                "Of the program that computed the numbers, not as frozen: "
                f"{'; '.join(code_not_as_frozen)}."
            )
        )
    return Section(id="deviations", title="Deviations", blocks=tuple(blocks))


def declared_models_tables(declared: Sequence[DeclaredModel]) -> list[Block]:
    """Which models were asked and how, as frozen and as amendments left it. Empty where none is."""
    if not declared:
        return []
    models = Table(
        caption="Models",
        columns=(
            Column(title="model"),
            *(Column(title=title, kind="number") for title in ("since record", "cells")),
            *(Column(title=title, kind="code") for title in ("key", "variant")),
            *(Column(title=title) for title in ("quantization", "format")),
            *(Column(title=title, kind="number") for title in ("context", "largest context")),
            *(Column(title=title) for title in ("reasoning", "earlier reasoning")),
        ),
        rows=tuple(
            (
                each.model.id,
                str(each.since),
                count(each.cells),
                each.model.key,
                each.model.variant,
                each.model.quantization,
                each.model.format,
                count(each.model.context_length),
                count(each.model.max_context_length),
                each.model.reasoning,
                each.model.reasoning_history,
            )
            for each in declared
        ),
        note="Since the freeze, or since the amendment of that record. Cells: planned ones whose "
        "last attempt began while it was so; a cell keeps what it began with. Context in tokens.",
    )
    sampling = Table(
        caption="Sampling",
        columns=columns(
            "model",
            *("since record", "temperature", "top p", "seed", "most tokens of an answer"),
            numbers=True,
        ),
        rows=tuple(
            (
                each.model.id,
                str(each.since),
                f"{each.model.generation.temperature:g}",
                f"{each.model.generation.top_p:g}",
                str(each.model.generation.seed),
                count(each.model.generation.max_completion_tokens),
            )
            for each in declared
        ),
        note="A repeated cell adds the number of its repetition to the seed.",
    )
    return [models, sampling]


def readings_section(readings: Mapping[str, str]) -> Section:
    """How open points are read, as the study says."""
    if not readings:
        return Section(id="readings", title="Readings", blocks=())
    table = Table(
        caption="How open points of the protocol are read",
        columns=(Column(title="point"), Column(title="reading", kind="prose")),
        rows=tuple((name.replace("_", " "), text) for name, text in readings.items()),
    )
    return Section(id="readings", title="Readings", blocks=(table,))


def amendments_section(amendments: Amendments) -> Section:
    """Every amendment with its class."""
    if not amendments.recorded:
        return Section(
            id="amendments",
            title="Amendments",
            blocks=(paragraph("No amendment has been recorded."),),
        )
    table = Table(
        caption="Amendments; their class is the ledger's finding",
        columns=(
            *columns("record", "when", "class"),
            Column(title="reason", kind="prose"),
            *columns("changes a claim", "changed"),
        ),
        rows=tuple(
            (
                str(row.seq),
                day(row.at),
                IN_WORDS[row.finding]
                + (f" (records {row.inspections})" if row.inspections else ""),
                row.reason,
                "yes" if row.changes_claim else "no",
                _files(row.changed.splitlines(), row.removed.splitlines()),
            )
            for row in amendments.recorded
        ),
    )
    values = Table(
        caption="Values in study.toml that amendments changed",
        columns=(
            Column(title="record", kind="number"),
            Column(title="key: before \u2192 after", kind="code"),
        ),
        rows=tuple(
            (str(row.seq), line) for row in amendments.recorded for line in changed_keys(row)
        ),
    )
    blocks = (table, values) if values.rows else (table,)
    return Section(id="amendments", title="Amendments", blocks=blocks)


def reproduction_section(
    head: ComputedFrom,
    conduct: Conduct,
    *,
    root: str,
    checkpoint: str,
    analysis: int,
    results_digest: str,
    tables: Sequence[Block] = (),
    tasks: str = "tasks",
) -> Section:
    """What everything rests on, and how to check it."""
    frozen = conduct.frozen
    facts = [
        Fact(term="Ledger", value=conduct.ledger, is_code=True),
        Fact(term="Study digest", value=head.study, is_code=True),
        Fact(term="Head", value=f"record {head.head}"),
        Fact(term="Leaf", value=head.leaf, is_code=True),
        Fact(term=f"Root of {head.head + 1} records", value=root, is_code=True),
        Fact(term="Checkpoint", value=checkpoint or "none at hand", is_code=bool(checkpoint)),
        Fact(term="Anchored outside", value=_anchors(conduct)),
        Fact(term="Results", value=f"record {analysis}, results.json"),
        Fact(term="Digest of results.json", value=results_digest, is_code=True),
    ]
    if frozen is not None:
        facts += [
            Fact(term="Revision", value=frozen.commit or "no checkout", is_code=True),
        ]
    blocks: list[Block] = [Facts(items=tuple(facts))]
    if frozen is not None:
        bound = [
            *((f"document {file.name}", file.digest) for file in frozen.documents),
            (tasks, frozen.tasks),
            ("plan", frozen.plan),
            *((f"component {each.name}", each.digest) for each in frozen.components),
        ]
        blocks.append(
            Table(
                caption="What the freeze binds",
                columns=(Column(title="what"), Column(title="SHA-256", kind="code")),
                rows=tuple(bound),
            )
        )
    if conduct.runs:
        blocks.append(
            Table(
                caption="Runs",
                columns=columns("record", "begun", "platform", "Python", "revision"),
                rows=tuple(
                    (
                        str(seq),
                        day(at),
                        run.platform,
                        run.python,
                        run.commit[:12] or "no checkout",
                    )
                    for seq, at, run in conduct.runs
                ),
            )
        )
    blocks += tables
    blocks.append(
        Commands(
            lines=(
                "ledger verify-chain",
                "ledger replay --check",
                "ledger audit",
                "ledger analyze --check",
                f"ledger show {analysis}",
                "ledger report",
            )
        )
    )
    return Section(id="reproduction", title="Reproduction", blocks=tuple(blocks))


def _files(changed: Sequence[str], removed: Sequence[str]) -> str:
    return listed([*changed, *(f"{name} (removed)" for name in removed)])


def _anchors(conduct: Conduct) -> str:
    anchors = [
        f"{event.kind} {event.where} ({event.size} records, record {seq})"
        for seq, event in conduct.anchors
    ]
    return "; ".join(anchors) or "no anchor is recorded"
