"""``ledger amend``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, study_option, writing


@click.command("amend")
@study_option
@json_option
@click.option("--reason", required=True, help="Why, for everyone who reads the report.")
@click.option("--changes-claim", is_flag=True, help="The change alters a claim of the study.")
def command(study: Path, as_json: bool, reason: str, changes_claim: bool) -> None:
    """Record what now differs from what was frozen.

    The ledger itself finds the amendment's class: before the first cell, after it (exploratory), or
    after outcomes were inspected (exploratory, the inspections are listed).

    \b
        ledger amend --reason "the server's address has changed"

    It may concern study.toml, the documents that it names, and components of the program (`ledger
    components` lists them): a changed component makes exploratory what rests on it, unless all its
    finished cells execute again to the same bytes. Of a
    transfer study: further memories, drivers and systems in study.toml, which are planned behind
    the others; until the first run has begun also what is declared of them, or that they are there;
    not [suite], no family. Of a repair study: not the tasks; treatments and models of planned
    cells until the first cell has begun.
    """
    from actors.loop import carry_out
    from actors.study_kinds import orders_in
    from ledger.cli.next_step import after_freeze
    from projections.amendments import IN_WORDS, Amendments, changed_keys
    from projections.fold import Follower
    from projections.progress import Progress
    from schemas.commands import AmendStudy

    busy = "a run is at work with what was frozen: stop it first (Ctrl-C), amend, then run again"
    left = (
        "a worker is still at work with what was frozen (`ledger worker`, or one of a run that was "
        "killed, which ends by itself): wait until it has ended"
    )
    with (
        writing(study) as context,
        context.directory.exclusive("run", busy),
        context.directory.exclusive("workers", left),
    ):
        amendment = AmendStudy(reason=reason, changes_claim=changes_claim)
        carry_out(context, amendment, orders_in(context))
        read = context.artifacts.get
        amendments, progress = Amendments(read), Progress(read)
        Follower(context.log, amendments, progress).catch_up()
        hint = after_freeze(context, progress)
    recorded = amendments.recorded[-1]
    if as_json:
        print_json({**recorded.as_dict(), "exploratory": recorded.finding != "before_first_cell"})
        return
    print(f"recorded as amendment at record {recorded.seq}, {IN_WORDS[recorded.finding]}")
    for name in recorded.changed.splitlines():
        print(f"  changed {name}")
        if name == "study.toml":
            for line in changed_keys(recorded):
                print(f"    {line}")
    for name in recorded.removed.splitlines():
        print(f"  removed {name}")
    for words in recorded.components.splitlines():
        print(f"  component {words}")
    print(f"next       {hint}")
