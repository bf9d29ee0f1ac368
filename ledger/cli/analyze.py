"""``ledger analyze``."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
    writing,
)
from ledger.errors import Refused, Usage

if TYPE_CHECKING:
    from actors.study.analysis import AnyResults
    from projections.progress import Progress
    from projections.repair.results import Results
    from projections.transfer.results import TransferResults


@click.command("analyze")
@study_option
@json_option
@click.option("--reason", help="Why outcomes are looked at; recorded before they are shown.")
@click.option(
    "--check",
    is_flag=True,
    help="Compute the last recorded analysis again and compare every byte; shows no outcome.",
)
@click.option(
    "--interim",
    is_flag=True,
    help="Look before every planned cell has ended; the report says so.",
)
def command(study: Path, as_json: bool, reason: str | None, check: bool, interim: bool) -> int:
    """Compute the declared analyses from the graded cells, or the scores of a transfer study, and
    record them.

    The inspection of outcomes is recorded first, with its reason. Prints the primary result and all
    declared contrasts, or every system with its counts; `ledger report` then writes everything.
    With --check: status 3 where the ledger does not give the recorded results.

    \b
        ledger analyze --reason "every cell has ended, as planned"
        ledger analyze --check
    """
    from actors.loop import carry_out
    from actors.study import analysis
    from actors.study import orders as operator
    from ledger.cli.inspection_gate import may_append, pass_gate
    from ledger.cli.next_step import warn_of_edits
    from schemas.commands import AnalyseStudy

    if check:
        if reason is not None:
            raise Usage("--check shows no outcome and takes no --reason")
        return _check(study, as_json)
    progress = _require_end(study, interim)
    pass_gate(study, reason, "an analysis", progress, announce=as_json)
    recorded: int | None = None
    if may_append(study):
        with writing(study) as context:
            carry_out(context, AnalyseStudy(), {**operator.HANDLERS, **analysis.HANDLERS})
            fact, completed = analysis.last_analysis(context)
            recorded = fact.seq
            results = analysis.read_results(context, fact.seq, completed)
            warn_of_edits(context, "this analysis")
    else:
        with reading(study) as context:
            results = analysis.compute(context)
            warn_of_edits(context, "this analysis")
    _print(results, recorded, as_json)
    return 0


def _require_end(study: Path, interim: bool) -> "Progress":
    """How far the study has come. Raises Refused where planned cells have not ended and nobody said
    that an interim look is meant: an inspection cannot be taken back."""
    from projections.fold import fold
    from projections.progress import Progress

    with reading(study) as context:
        progress = fold(Progress(context.artifacts.get), context.log_facts())
    ended, planned = progress.done_cells(), len(progress.cells)
    if progress.study is None or progress.completed or (interim and ended):
        return progress
    if progress.study.grading.when == "end":
        return progress  # the gate refuses, whatever is meant
    if ended == 0:
        raise Refused("no cell has ended yet, so there is nothing to analyse: `ledger run`")
    raise Refused(
        f"{ended} of {planned} planned cells have ended: `ledger run` goes on. An early look is "
        "recorded and makes every later amendment exploratory; where it is meant: --interim"
    )


def _print(results: "AnyResults", recorded: int | None, as_json: bool) -> None:
    from actors.study import analysis
    from actors.study.declarations import differs
    from projections.repair.report import primary_sentence
    from projections.transfer.report import result_sentence
    from projections.transfer.results import TransferResults

    head = results.computed_from
    if isinstance(results, TransferResults):
        sentence = result_sentence(results)
    else:
        sentence = primary_sentence(results)
    if as_json:
        print_json(
            {
                "record": recorded,
                "sentence": sentence,
                "results_digest": sha256(analysis.encode(results)).hexdigest(),
                "results": msgspec.to_builtins(results),
            }
        )
        return
    if results.simulated:
        print("SIMULATED: a rehearsal, not evidence")
    if interim := analysis.interim(results):
        print(interim)
    print(sentence)
    if isinstance(results, TransferResults):
        _print_systems(results)
    else:
        _print_contrasts(results)
    if results.code_not_as_frozen:
        names = [f"code/{name}" for name in results.code_not_as_frozen]
        print(f"code       {differs(names, None)}")
    where = f"record {recorded}" if recorded is not None else "not recorded: a copy to read"
    print(f"analysis   {where}, computed from records 0 to {head.head}")
    print("next       ledger report")


def _print_systems(results: "TransferResults") -> None:
    from projections.transfer.report import NOTICE

    print()
    print_table(
        [
            {
                "system": system.label,
                "class": each.class_,
                "verified": f"{each.verified}/{each.runs}"
                + (f" (+{each.void} void)" if each.void else ""),
                "unverified": each.unverified,
                "failed": each.failed,
                "behavioural": f"{each.behavioural}/{each.behavioural_of}",
                "cannot show": ", ".join(system.cannot_show) or "nothing",
            }
            for system in results.systems
            for each in system.classes
        ]
    )
    for run in results.boundary_failures:
        print(f"boundary   {run.cell}: {printable(run.boundary_failure)}")
    for found in results.thresholds:
        print(
            f"threshold  {found.id} ({results.label(found.memory, found.driver)}, "
            f"{found.class_ or 'all'}): "
            f"{found.n}/{found.of}{f' (+{found.void} void)' if found.void else ''}, "
            f"{found.limit}: {found.status.replace('_', ' ')}, {found.chosen}"
        )
    for dropped in results.dropped:
        print(f"changed    {printable(dropped.words)}")
    print(NOTICE)
    print()


def _print_contrasts(results: "Results") -> None:
    from projections.repair.report import verdict_word
    from projections.report.numbers import NONE, difference, interval, p_value

    rows: list[dict[str, Any]] = []
    for found in results.contrasts:
        tested = found.primary or bool(found.family)
        p_exact = found.test.p_exact if found.test else None
        rows.append(
            {
                "contrast": found.id,
                "comparison": f"{found.new} - {found.baseline}, {found.model}",
                "claim": found.claim,
                "pairs": f"{found.missing.used}/{found.missing.planned}",
                "only new": found.table.new_only,
                "only baseline": found.table.baseline_only,
                "difference": difference(found.risk_difference),
                "Tango": interval(found.intervals.tango if found.intervals else None),
                "exact p": p_value(p_exact, results.alpha) if tested else NONE,
                "Holm p": p_value(found.p_holm, results.alpha) if found.family else NONE,
                "verdict": verdict_word(found),
            }
        )
    if rows:
        print()
        print_table(rows)
        print()


def _check(study: Path, as_json: bool) -> int:
    from actors.study import analysis
    from projections.transfer.results import TransferResults

    with reading(study) as context:
        fact, completed = analysis.last_analysis(context)
        recorded = analysis.read_results(context, fact.seq, completed)
        again = analysis.compute(context, completed.head)
    # Which code ran then stays as it was recorded: the numbers are in question.
    same_code = again.code_not_as_frozen == recorded.code_not_as_frozen
    again = msgspec.structs.replace(again, code_not_as_frozen=recorded.code_not_as_frozen)
    if isinstance(again, TransferResults) and isinstance(recorded, TransferResults):
        again = msgspec.structs.replace(again, scorer=recorded.scorer)
    digest = sha256(analysis.encode(again)).hexdigest()
    identical = digest == completed.results.digest
    if as_json:
        print_json(
            {
                "identical": identical,
                "record": fact.seq,
                "head": completed.head,
                "recorded": completed.results.digest,
                "computed": digest,
                "same_code": same_code,
            }
        )
        return 0 if identical else 3
    if identical:
        print(
            f"record {fact.seq}: identical, computed again from records 0 to {completed.head} "
            f"(SHA-256 {digest})"
        )
    else:
        print(f"record {fact.seq} names results {completed.results.digest}")
        print(f"records 0 to {completed.head} give    {digest}")
    if not same_code:
        print("note: other files of code differ from the frozen ones now than did then")
    return 0 if identical else 3
