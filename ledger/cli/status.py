"""``ledger status``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, print_table, reading, study_option


@click.command("status")
@study_option
@json_option
@click.option("--cells", is_flag=True, help="One line a cell.")
def command(study: Path, as_json: bool, cells: bool) -> None:
    """Show how far the study has come, also while it runs. Shows no outcome."""
    from ledger.cli.run import summary
    from projections.fold import fold
    from projections.progress import Progress

    with reading(study) as context:
        progress = fold(Progress(context.artifacts.get), context.log_facts())
        head = context.log.head()
    rows = progress.tables()["cells"]
    found = {"head": head.seq if head else None, **summary(progress)}
    if as_json:
        print_json({**found, **({"rows": list(rows)} if cells else {})})
        return
    if progress.frozen is None:
        print("not frozen yet")
        return
    if progress.simulated:
        print("SIMULATED: a rehearsal, not evidence")
    state = progress.stopped or "running, or killed: `ledger run` goes on"
    if progress.completed:
        state = "complete"
    elif progress.runs == 0:
        state = "frozen, not started: `ledger run`"
    print(f"study       {progress.frozen.digest}")
    print(f"state       {state} (run {progress.runs}, head record {found['head']})")
    print(f"cells       {progress.done_cells()} of {len(progress.cells)} done")
    graded = sum(cell.status in ("graded", "void") for cell in progress.cells.values())
    print(f"graded      {graded}")
    print(f"model       {progress.resident or 'none resident'}, {progress.model_switches} loads")
    print(
        f"turns       {found['turn_attempts']} asked, {found['abandoned_turns']} abandoned, "
        f"{found['transport_retries']} transport retries"
    )
    if cells:
        print_table(rows, ["position", "cell", "block", "status", "ended", "turns", "tool_calls"])
