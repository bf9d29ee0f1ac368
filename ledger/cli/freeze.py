"""``ledger freeze``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, printable, study_option, writing
from schemas.counted import counted


@click.command("freeze")
@study_option
@json_option
def command(study: Path, as_json: bool) -> None:
    """Bind documents, study.toml, tasks, plan, code and library versions in one event of digests.

    `ledger run` refuses before this and whenever something frozen differs, naming the file. Prints
    the study digest and the power of the primary contrast, also at the solvable share of tasks.

    Of a transfer study it binds the families instead of tasks: prompts, fixtures, predicates,
    required stages and thresholds, after all that `ledger transfer validate` checks. Of a command
    that brings its own driver it binds the files that `documents` lists; it names those that the
    command sees too.
    """
    from actors.loop import carry_out
    from actors.study_kinds import kind_of, orders_in
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import FreezeStudy

    with writing(study) as context:
        carry_out(context, FreezeStudy(), orders_in(context))
        progress = fold(Progress(context.artifacts.get), context.log_facts())
        frozen = progress.frozen
        assert frozen is not None and progress.study is not None
        summary = kind_of(progress.study).freeze_summary(context, progress, frozen)
    if as_json:
        print_json(
            {
                "study": frozen.digest,
                **summary.counts,
                "components": [component.name for component in frozen.components],
                "commit": frozen.commit,
                "dirty": frozen.dirty,
            }
        )
        return
    print(f"study digest   {frozen.digest}")
    bound = [*summary.bound, counted(len(frozen.components), "component")]
    print(f"bound          {', '.join(bound)}")
    for line in summary.lines:
        print(printable(line))
    if frozen.dirty:
        print("note           the checkout has uncommitted changes; the event says so")
    print("next           ledger run")
