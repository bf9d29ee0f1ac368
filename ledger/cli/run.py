"""``ledger run``."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from actors.loop import Context, abandon_pending, carry_out
from actors.supervisor import SET_ROLES, Supervisor, Worker, prove_no_worker, start_worker
from ledger.checkpoint import Checkpointer
from ledger.cli.options import json_option, print_json, printable, study_option, writing
from ledger.cli.progress_lines import ProgressLines
from ledger.errors import LedgerError, Refused, SafetyStop
from ledger.log import decode
from projections.progress import Progress
from schemas.credentials import without_credentials
from schemas.events.run import RunStarted
from schemas.identifiers import RUN_STREAM

if TYPE_CHECKING:
    from actors.study.kind import StudyKind


@click.command("run")
@study_option
@json_option
@click.option(
    "--unsafe-no-sandbox",
    is_flag=True,
    help="Run tests although nothing here can contain them; recorded and reported.",
)
@click.option(
    "--graders",
    type=click.IntRange(1, 16),
    default=None,
    help="How many processes grade at the end; the number of cores by default.",
)
def command(study: Path, as_json: bool, unsafe_no_sandbox: bool, graders: int | None) -> int:
    """Run the frozen plan, or resume it.

    Starts one process per role, shows live progress, and ends when every planned cell has ended
    and, in a repair study, is graded. Ctrl-C stops in an orderly way; after a crash, a power cut or
    kill -9 the same command resumes: no completed model call is made again.
    """
    with writing(study) as context:
        busy = (
            f"another `ledger run` works on {context.directory.root}; wait for its end, or "
            "look at it with `ledger status`"
        )
        with context.directory.exclusive("run", busy):
            status, progress = run_study(context, unsafe_no_sandbox, graders)
    if as_json:
        print_json(summary(progress))
    elif status == 0:
        print(f'complete: {progress.cells_in_words()}; next: `ledger analyze --reason "…"`')
    return status


def run_study(
    context: Context, unsafe_no_sandbox: bool = False, graders: int | None = None
) -> tuple[int, Progress]:
    """Run or resume; returns (exit status, progress at the end). The caller holds the run lock.

    Raises the LedgerError that stopped the study; the stop is recorded first in every case.
    """
    from actors.study.declarations import Changes, differs, edited
    from actors.study.scheduler import cells_that_wait
    from actors.study_kinds import kind_in, orders_in
    from ledger.cli.next_step import as_bound
    from projections.fold import fold
    from schemas.commands import StartRun, StopRun

    def stop(reason: Literal["complete", "interrupted", "safety", "failed"], detail: str) -> None:
        said = without_credentials(detail)[:2000]
        carry_out(context, StopRun(reason=reason, detail=said), orders)

    kind, orders = kind_in(context), orders_in(context)
    prove_no_worker(context)
    progress = fold(Progress(context.artifacts.get), context.log_facts())
    if progress.completed:
        if not progress.stopped:  # the run that completed it was killed before it could say so
            abandon_pending(context, SET_ROLES, "the study is complete")
            stop("complete", "")
        amendments = as_bound(context)
        if amendments and (changed := edited(context.directory, amendments)):
            raise Refused(differs(Changes(documents=changed), amendments.study))
        print("the study is complete already", file=sys.stderr)
        return 0, progress
    try:
        carry_out(context, StartRun(allow_unsafe_sandbox=unsafe_no_sandbox), orders)
        waiting = fold(Progress(context.artifacts.get), context.log_facts()).waiting_cells()
        for warning in (*cells_that_wait(waiting), *kind.before_run(context)):
            print(f"ledger: {printable(warning)}", file=sys.stderr)
        with live_display() as look:

            def follow(now: Progress) -> None:
                nonlocal progress
                progress = now
                look(now)

            count = graders or os.cpu_count() or 1
            Supervisor(
                context,
                lambda stack: launch(context, kind, stack, count),
                follow,
                lambda: Checkpointer(context.directory).sign(context.log),
            ).run()
    except KeyboardInterrupt:
        if not has_begun(context):
            raise
        stop("interrupted", "stopped by Ctrl-C or a termination signal")
        print("stopped; `ledger run` resumes from here", file=sys.stderr)
        return 130, progress
    except LedgerError as error:
        if not has_begun(context):
            raise
        # A full disk takes no record either: it is the first error that says what to do.
        with suppress(LedgerError):
            stop("safety" if isinstance(error, SafetyStop) else "failed", str(error))
        raise
    stop("complete", "")
    return 0, progress


def has_begun(context: Context) -> bool:
    """True once this run is recorded, also where what recorded it could not say so any more."""
    return any(
        fact.run == context.run and isinstance(fact.event, RunStarted)
        for fact in map(decode, context.log.read_stream(RUN_STREAM))
    )


def launch(context: Context, kind: "StudyKind", stack: ExitStack, graders: int) -> list[Worker]:
    """Start the set of one machine: the stand-in server where the study is a rehearsal, then one
    worker a role that the kind of study needs, and several graders."""
    from actors.rehearsal.stand_in import start_stand_in
    from projections.fold import fold

    study = fold(Progress(context.artifacts.get), context.study_facts()).study
    assert study is not None  # `start_run` refuses before the freeze
    options: list[str] = []
    workers: list[Worker] = []
    if study.server.kind == "stand_in":
        place = context.directory.run / "stand_in"
        stand_in = stack.enter_context(start_stand_in(place, study, kind.briefs(context)))
        options = ["--server-url", stand_in.base_url, "--lms", stand_in.lms[0]]
        workers.append(Worker("stand-in", stand_in.process, helper=True))
    workers.append(start_worker(context, "scheduler", ["scheduler"]))
    if study.models:
        workers.append(start_worker(context, "model_server", ["model_server"], options))
    for role in kind.roles:
        names = [f"grader-{n}" for n in range(graders)] if role == "grader" else [role]
        workers += [start_worker(context, name, [role]) for name in names]
    return workers


@contextmanager
def live_display() -> Iterator[Callable[[Progress], None]]:
    """A live progress line on standard error; where that is no terminal, now and then a line."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines()

        def tell(progress: Progress) -> None:
            done = progress.cells_in_words()
            if progress.is_graded:
                done += f", {progress.graded()} graded"
            gold = f"; gold checks {len(progress.gold)}" if progress.is_graded else ""
            lines.say(done, f"{done}; {what_runs(progress)}{gold}")

        yield tell
        return
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
        transient=True,
    )
    with bars:
        cells = bars.add_task("cells ", total=None, now="")
        grades = bars.add_task("graded", total=None, now="", visible=False)

        def look(progress: Progress) -> None:
            total = len(progress.cells) or None
            bars.update(
                cells, total=total, completed=progress.done_cells(), now=what_runs(progress)
            )
            gold = f"gold checks {len(progress.gold)}"
            shown = progress.is_graded
            bars.update(grades, total=total, completed=progress.graded(), now=gold, visible=shown)

        yield look


def what_runs(progress: Progress) -> str:
    """The cell that runs or what is done between cells, the model that is loaded, tokens so far."""
    running = next((c for c in progress.cells.values() if c.status == "running"), None)
    tokens = sum(c.prompt_tokens + c.completion_tokens for c in progress.cells.values())
    if running is None and progress.is_graded:
        if progress.ungraded() and progress.next_cell() is None:
            return "grading"
        if not progress.begun or progress.next_cell() is None:
            return "gold checks of the test environment"
    parts = [str(running.cell) if running else "between two cells"]
    if progress.study is not None and progress.study.models:
        parts = [f"{parts[0]} turn {running.turns}"] if running else parts
        parts += [progress.resident or "no model", f"{tokens:,} tokens"]
    return "  ".join(parts)


def summary(progress: Progress) -> dict[str, object]:
    """Where a study stands, as JSON. Shows no outcome."""
    counts: dict[str, int] = {}
    for cell in progress.cells.values():
        counts[cell.status] = counts.get(cell.status, 0) + 1
    return {
        "frozen": progress.frozen.digest if progress.frozen else None,
        "simulated": progress.simulated if progress.frozen else None,
        "completed": progress.completed,
        "cells": {
            "planned": len(progress.cells),
            "done": progress.done_cells(),
            "void": progress.void_cells(),
            "by_status": counts,
        },
        "runs": progress.runs,
        "stopped": progress.stopped,
        "stopped_because": progress.stopped_because,
        "resident": progress.resident,
        "model_switches": progress.model_switches,
        "turn_attempts": sum(cell.turn_attempts for cell in progress.cells.values()),
        "abandoned_turns": sum(cell.abandoned for cell in progress.cells.values()),
        "transport_retries": sum(cell.transport_retries for cell in progress.cells.values()),
        "gold_checks": len(progress.gold),
    }
