"""``ledger analyze``."""

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

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
    from actors.study.analysis import Summary
    from projections.progress import Progress
    from projections.results import StudyResults


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
    from actors.study_kinds import kind_in
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
            found = kind_in(context).analysis()
            carry_out(context, AnalyseStudy(), analysis.handlers(found))
            fact, completed = analysis.last_analysis(context)
            recorded = fact.seq
            results = analysis.read_results(context, fact.seq, completed, found.results)
            warn_of_edits(context, "this analysis")
    else:
        with reading(study) as context:
            found = kind_in(context).analysis()
            results = analysis.compute(context, found)
            warn_of_edits(context, "this analysis")
    _print(results, found.summary(results), recorded, as_json)
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


def _print(
    results: "StudyResults", summary: "Summary", recorded: int | None, as_json: bool
) -> None:
    from projections.results import encode_results

    head = results.computed_from
    if as_json:
        print_json(
            {
                "record": recorded,
                "sentence": summary.sentence,
                "results_digest": sha256(encode_results(results)).hexdigest(),
                "results": msgspec.to_builtins(results),
            }
        )
        return
    if results.simulated:
        print("SIMULATED: a rehearsal, not evidence")
    if summary.interim:
        print(summary.interim)
    print(summary.sentence)
    if summary.body:
        print()
        for part in summary.body:
            if isinstance(part, str):
                print(printable(part))
            else:
                print_table(part)
        print()
    if results.code_not_as_frozen:
        print(f"program    not as frozen: {'; '.join(results.code_not_as_frozen)}")
    where = f"record {recorded}" if recorded is not None else "not recorded: a copy to read"
    print(f"analysis   {where}, computed from records 0 to {head.head}")
    print("next       ledger report")


def _check(study: Path, as_json: bool) -> int:
    from actors.study import analysis
    from actors.study_kinds import kind_in
    from projections.results import encode_results

    with reading(study) as context:
        found = kind_in(context).analysis()
        fact, completed = analysis.last_analysis(context)
        recorded = analysis.read_results(context, fact.seq, completed, found.results)
        again = analysis.compute(context, found, completed.head)
    # Which code ran then stays as it was recorded: the numbers are in question.
    same_code = again.code_not_as_frozen == recorded.code_not_as_frozen
    digest = sha256(encode_results(found.as_if_run_by(again, recorded))).hexdigest()
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
