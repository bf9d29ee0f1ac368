"""Remediations, uncertain labels, waivers, models and programs."""

from projections.report.conduct import Deviation
from projections.report.model import (
    Column,
    Section,
    Table,
    columns,
    paragraph,
)
from projections.report.numbers import NONE
from projections.report.plain_text import listed
from projections.report.sections import (
    declared_models_tables,
)
from projections.transfer.results import TransferResults
from schemas.counted import counted
from schemas.transfer.family import LEAKAGE_RULES
from schemas.transfer.study import TransferStudy


def remediations_section(results: TransferResults) -> Section:
    if not results.remediations:
        return Section(id="remediations", title="Remediations", blocks=())
    table = Table(
        caption="Remediations: one layer changed, and what its runs came to",
        columns=(
            Column(title="remediation"),
            Column(title="failed run", kind="run"),
            *columns("stage", "layer", "changed system", "status"),
            *columns("runs ended", "verified", "failed", numbers=True, first="number"),
            Column(title="limitation, or why it was abandoned", kind="prose"),
            Column(title="records"),
        ),
        rows=tuple(
            (
                found.remediation,
                found.cell,
                found.stage,
                found.layer.replace("_", " ")
                + (" (unattributed)" if found.attributed is False else ""),
                found.system or NONE,
                found.status,
                f"{found.ended}/{found.reruns}",
                f"{found.verified}/{found.reruns}",
                f"{found.failed}/{found.reruns}",
                found.limitation or NONE,
                listed(found.records),
            )
            for found in results.remediations
        ),
        note="The failing case, its negative, supersession and expiry controls, and a seeded "
        "sample of other classes, with unchanged prompts, fixtures and predicates. A fluent "
        "postmortem is not a remediation receipt.",
    )
    return Section(id="remediations", title="Remediations", blocks=(table,))


def uncertainty_section(results: TransferResults) -> Section:
    rows = [
        (run.cell, "; ".join([*run.void_attempts, *run.uncertainty, *run.notes]))
        for run in results.runs
        if run.void_attempts
        or run.uncertainty
        or (run.notes and run.result in ("unverified", "void"))
    ]
    if not rows:
        return Section(id="uncertainty", title="Uncertainty", blocks=())
    table = Table(
        caption="What could not be determined, and why",
        columns=(Column(title="run", kind="run"), Column(title="in words", kind="prose")),
        rows=tuple(rows),
    )
    return Section(id="uncertainty", title="Uncertainty", blocks=(table,))


def waivers_section(results: TransferResults) -> Section:
    if not results.waivers:
        return Section(
            id="waivers",
            title="Waivers",
            blocks=(paragraph("No finding of the leakage lint was waived."),),
        )
    table = Table(
        caption="Findings of the review that were accepted before the freeze",
        columns=(
            *columns("family", "rule", "of", "case"),
            Column(title="reason", kind="prose"),
        ),
        rows=tuple(
            (
                each.family,
                each.waiver.rule,
                "the leakage lint"
                if each.waiver.rule in LEAKAGE_RULES
                else "what a verdict means: not the leakage lint",
                each.waiver.case or "the whole family",
                each.waiver.reason,
            )
            for each in results.waivers
        ),
    )
    return Section(id="waivers", title="Waivers", blocks=(table,))


def models_section(results: TransferResults, study: TransferStudy) -> Section:
    """Which models drivers ask, and how."""
    blocks = declared_models_tables(results.models)
    if blocks:
        asked = "; ".join(f"{d.id}: {d.model}" for d in study.drivers if d.model) or "none any more"
        blocks.append(
            paragraph(
                f"Asked by drivers ({asked}) of a server of kind {study.server.kind}, at most "
                f"{study.suite.max_turns} turns a session. Residency: {study.server.residency}."
            )
        )
    return Section(id="models", title="Models", blocks=tuple(blocks))


def other_programs(results: TransferResults) -> list[Deviation]:
    """Runs of a program that is not the frozen one, together where the same differs."""
    found: dict[tuple[str, str], list[int]] = {}
    for other in results.other_programs:
        found.setdefault((other.memory, other.what), []).append(other.seq)
    return [
        Deviation(
            what="runs of a program that is not the frozen one: exploratory",
            records=tuple(sorted(seqs)),
            detail=f"{counted(len(seqs), 'run')} of {memory}: {what}",
        )
        for (memory, what), seqs in found.items()
    ]
