"""``ledger tasks``: from commits to the frozen split."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.command_group import CommandGroup
from ledger.cli.options import (
    json_option,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
    writing,
)
from ledger.cli.progress_lines import ProgressLines
from ledger.errors import Refused, Usage
from schemas.counted import counted
from schemas.repair.study import RepairStudy

if TYPE_CHECKING:
    from actors.mining.handlers import Progress
    from projections.repair.tasks import MinedTasks
    from schemas.repair.study import Repository

repository_option = click.option(
    "--repository",
    metavar="ID",
    default="",
    help="Only this repository; all declared ones by default.",
)


@click.group("tasks", cls=CommandGroup)
def command() -> None:
    """Mine, validate, show, audit and freeze the tasks of a study.

    In this order: `mine`, `validate`, `freeze`, then `ledger plan`; `show` and `audit` look at what
    was found. Mining walks first-parent history and names the first criterion that each commit
    fails. Validation runs three arms (base, base + hidden tests, base + hidden tests + gold) on the
    candidates, newest first. Nothing here knows any agent's outcome.
    """


@command.command("mine")
@study_option
@json_option
@repository_option
def mine(study: Path, as_json: bool, repository: str) -> None:
    """Walk the history and evaluate every static criterion; every commit gets an audit row.

    Nothing is run yet. What each criterion asks: docs/mining.md; which one a commit fails: `ledger
    tasks audit`.
    """
    from actors.loop import carry_out
    from actors.mining.handlers import Miner
    from ledger.cli.next_step import next_step
    from projections.fold import fold
    from projections.repair.tasks import MinedTasks
    from schemas.commands import MineRepository

    with writing(study) as context:
        _, declared = context.directory.read_study_of(RepairStudy)
        with progress_bar() as look:
            for name in _chosen(declared.repositories, repository):
                carry_out(context, MineRepository(repository=name), Miner(look).handlers())
        mined = fold(MinedTasks(context.artifacts.get), context.log_facts()).mined
        hint = next_step(context, declared)
    rows = [
        {
            "repository": event.repository,
            "walked": event.walked,
            "candidates": event.candidates,
            "rejected": event.rejected,
        }
        for event in mined.values()
    ]
    if as_json:
        print_json({"repositories": rows})
        return
    for event in mined.values():
        walked = counted(event.walked, "commit")
        print(f"{event.repository}: {walked} walked, {counted(event.candidates, 'candidate')}")
        for criterion, count in sorted(event.rejected.items(), key=lambda item: (-item[1], item)):
            print(f"  {count:>6}  {criterion}")
    print(f"next: {hint}; one line a commit: `ledger tasks audit`")


@command.command("validate")
@study_option
@json_option
@repository_option
@click.option(
    "--unsafe-no-sandbox",
    is_flag=True,
    help="Run tests although nothing here can contain them; recorded and reported.",
)
def validate(study: Path, as_json: bool, repository: str, unsafe_no_sandbox: bool) -> None:
    """Run the tests of candidates, newest first, until the declared number is valid.

    Three times each: the base, the base with the hidden tests (some must fail), and that with the
    gold change (all must pass).

    Interrupted, it goes on where it stopped: a candidate with a verdict is not run again.
    """
    from actors.loop import carry_out
    from actors.mining.handlers import Miner
    from ledger.cli.next_step import next_step
    from projections.fold import fold
    from projections.repair.tasks import MinedTasks
    from schemas.commands import ValidateCandidates

    with writing(study) as context:
        _, declared = context.directory.read_study_of(RepairStudy)
        with progress_bar() as look:
            for name in _chosen(declared.repositories, repository):
                order = ValidateCandidates(repository=name, allow_unsafe_sandbox=unsafe_no_sandbox)
                carry_out(context, order, Miner(look).handlers())
        tasks = fold(MinedTasks(context.artifacts.get), context.log_facts())
        hint = next_step(context, declared)
    rows = _candidate_rows(tasks)
    counts = {
        wanted.id: sum(row["repository"] == wanted.id and row["verdict"] == "valid" for row in rows)
        for wanted in declared.repositories
    }
    if as_json:
        print_json({"candidates": rows, "valid": counts})
    else:
        short = [
            {**row, "commit": row["commit"][:12], "reason": shortened(row["reason"], 60)}
            for row in rows
        ]
        print_table(short, ["repository", "commit", "verdict", "reason"])
        for wanted in declared.repositories:
            print(f"{wanted.id}: {counts[wanted.id]} of {counted(wanted.tasks, 'task')} valid")
    for wanted in declared.repositories:
        if counts[wanted.id] < wanted.tasks and repository in ("", wanted.id):
            raise Refused(
                f"{wanted.id} has no candidate left and {counts[wanted.id]} of "
                f"{counted(wanted.tasks, 'task')} valid: declare fewer (repositories.tasks), "
                "or look at what commits fail (`ledger tasks audit`) and at the rules in study.toml"
            )
    if not as_json:
        print(f"next: {hint}")


@command.command("show")
@study_option
@json_option
@click.argument("task", required=False)
def show(study: Path, as_json: bool, task: str | None) -> None:
    """List the validated or frozen tasks, or show one with its statement."""
    import msgspec

    from ledger.cli.show import require_tasks
    from projections.fold import fold
    from projections.progress import Progress
    from projections.repair.tasks import MinedTasks

    with reading(study) as context:
        facts = list(context.log_facts())
        progress = fold(Progress(context.artifacts.get), facts)
        require_tasks(progress)
        frozen = progress.tasks
        mined = fold(MinedTasks(context.artifacts.get), facts)
        found = frozen or {t.id: t for name in mined.mined for t in mined.valid_tasks(name)}
        if task is not None and task not in found:
            raise Usage(f"there is no task {task!r}; there are {', '.join(found) or 'none yet'}")
        if task is not None:
            one = found[task]
            statement = context.artifacts.get(one.statement).decode()
            if as_json:
                print_json({**msgspec.to_builtins(one), "statement_text": statement})
                return
            print(f"{one.id}  {one.commit}  base {one.base[:12]}  {one.committed}")
            print(f"production  {', '.join(map(printable, one.production_paths))}")
            print(f"tests       {', '.join(map(printable, one.test_paths))}")
            print(f"F2P / P2P   {len(one.fail_to_pass)} / {one.pass_to_pass_count}")
            print(f"needs gold symbol  {one.needs_gold_symbol}\n")
            print("\n".join(map(printable, statement.splitlines())))
            return
    rows = [
        {
            "task": t.id,
            "commit": t.commit if as_json else t.commit[:12],
            "files": len(t.production_paths),
            "lines": t.changed_production_lines,
            "F2P": len(t.fail_to_pass),
            "P2P": t.pass_to_pass_count,
            "words": t.statement_words,
            "needs_gold_symbol": t.needs_gold_symbol,
        }
        for t in found.values()
    ]
    if as_json:
        print_json({"frozen": bool(frozen), "tasks": rows})
        return
    print_table(rows)


@command.command("audit")
@study_option
@json_option
@repository_option
@click.option(
    "--criterion",
    metavar="NAME",
    default="",
    help="Only commits whose first failed criterion this is.",
)
def audit(study: Path, as_json: bool, repository: str, criterion: str) -> None:
    """One row for every walked commit: verdict, first failed criterion and what decided it."""
    from projections.fold import fold
    from projections.repair.tasks import MinedTasks

    if criterion:
        from actors.mining.criteria import EXECUTED_CRITERIA, STATIC_CRITERIA

        known = (*STATIC_CRITERIA, *EXECUTED_CRITERIA)
        if criterion not in known:
            raise Usage(f"there is no criterion {criterion!r}; there are {', '.join(known)}")
    with reading(study) as context:
        tasks = fold(MinedTasks(context.artifacts.get), context.log_facts()).selection()
        if repository and repository not in tasks.mined:
            mined = ", ".join(tasks.mined) or "none yet: `ledger tasks mine`"
            raise Usage(f"repository {repository!r} is not mined; mined are {mined}")
        rows = [
            row
            for name in tasks.mined
            if repository in ("", name)
            for row in tasks.commits(name)
            if criterion in ("", row.criterion)
        ]
    if as_json:
        commits = [
            {"commit": row.commit_id, **row.as_dict(), "date": row.date[:10]} for row in rows
        ]
        for commit in commits:
            del commit["commit_id"]
        print_json({"commits": commits})
        return
    shown = [
        {
            "commit": row.commit_id[:12],
            "date": row.date[:10],
            "verdict": row.verdict,
            "criterion": row.criterion,
            "reason": shortened(row.reason, 60),
            "subject": shortened(row.subject, 50),
        }
        for row in rows
    ]
    print_table(shown)
    counted = Counter(row.criterion or row.verdict for row in rows)
    for what, count in sorted(counted.items(), key=lambda item: (-item[1], item)):
        print(f"{count:>6}  {what}")


@command.command("freeze")
@study_option
@json_option
def freeze(study: Path, as_json: bool) -> None:
    """Fix the split and pack the base trees, from which alone cells and tests will work.

    Takes the first valid tasks in mining order, as many as study.toml declares. Until `ledger
    freeze` another selection may be made in the same way.
    """
    from actors.loop import carry_out
    from actors.study_kinds import orders_in
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import FreezeTasks

    with writing(study) as context:
        context.directory.read_study_of(RepairStudy)  # else it says which kind this is for
        carry_out(context, FreezeTasks(), orders_in(context))
        tasks = fold(Progress(context.artifacts.get), context.log_facts()).tasks
    if as_json:
        print_json({"tasks": list(tasks)})
        return
    print(f"{counted(len(tasks), 'task')} frozen: {', '.join(tasks)}")
    print("next: `ledger plan`")


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _chosen(declared: "Sequence[Repository]", wanted: str) -> list[str]:
    names = [repository.id for repository in declared]
    if wanted and wanted not in names:
        raise Usage(f"study.toml declares no repository {wanted!r}; it declares {', '.join(names)}")
    return [wanted] if wanted else names


def _candidate_rows(tasks: "MinedTasks") -> list[dict[str, str]]:
    return [
        {
            "repository": name,
            "commit": event.commit,
            "verdict": "valid" if event.valid else event.criterion,
            "reason": event.reason,
        }
        for name, by_commit in tasks.validated.items()
        for event in by_commit.values()
    ]


@contextmanager
def progress_bar() -> "Iterator[Progress]":
    """A progress bar on standard error; where that is no terminal, now and then a line."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines()
        yield lambda what, done, total: lines.say(what, f"{what}: {done} of {total}")
        return
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bars:
        bar = bars.add_task("", total=None)

        def look(what: str, done: int, total: int) -> None:
            bars.update(bar, description=what, completed=done, total=total)

        yield look
