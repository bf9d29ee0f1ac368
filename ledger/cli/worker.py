"""``ledger worker``: one process that works in some roles. Here handlers meet what they need."""

import os
import signal
import sys
import threading
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.loop import Context, Handlers, serve
from actors.supervisor import SET_ROLES
from ledger.cli.options import study_option
from ledger.cli.printable import printable
from ledger.clock import new_id
from ledger.errors import LedgerError, Refused, Usage
from schemas.study import Server

if TYPE_CHECKING:
    from actors.servers.contract import ModelServer
    from actors.servers.http_model_server import Limits


@click.command("worker")
@study_option
@click.option(
    "--roles",
    metavar="ROLES",
    required=True,
    help="Roles, separated by commas: scheduler, model_server, cell, test_run, grader, "
    "memory_session (runs of transfer studies).",
)
@click.option("--supervised", default="", hidden=True, help="Run id of the supervisor.")
@click.option(
    "--server-url",
    metavar="URL",
    default="",
    help="Model server instead of the study's or the run's.",
)
@click.option(
    "--lms", metavar="PROGRAM", default="", help="The lms tool instead of the study's or the run's."
)
def command(study: Path, roles: str, supervised: str, server_url: str, lms: str) -> int:
    """Work in some roles of a frozen study until told to stop (Ctrl-C).

    `ledger run` starts the right set by itself; more workers may join on the same ledger. In a
    rehearsal they find the stand-in server of the run that they join. What a joined worker refuses
    ends that run with its message and status.

    \b
        ledger worker --roles grader           # a second process that grades
        ledger worker --roles cell,test_run
    """
    from ledger.artifacts import Artifacts
    from ledger.cli.options import writing_log
    from ledger.study_directory import StudyDirectory

    names = [name.strip() for name in roles.split(",") if name.strip()]
    for name in names or [""]:
        if name not in SET_ROLES:
            raise Usage(f"{name!r} is not a role of a worker; those are {', '.join(SET_ROLES)}")
    stop = threading.Event()
    if supervised:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
    directory = StudyDirectory(study)
    with directory.shared("workers"), writing_log(directory) as log, ExitStack() as closing:
        context = Context(log, Artifacts(directory.artifacts), directory, supervised or new_id())
        try:
            handlers = handlers_of(context, names, server_url, lms, closing)
            serve(context, [role for role in SET_ROLES if role in names], handlers, stop)
        except KeyboardInterrupt:
            return 130
        except LedgerError as error:
            print(printable(f"worker {roles}: {error}"), file=sys.stderr)
            return error.exit_status
    return 0


def handlers_of(
    context: Context, roles: Collection[str], server_url: str, lms: str, closing: ExitStack
) -> Handlers:
    """Handlers of these roles, wired to what they need. Imports only what the roles use.

    ``closing`` is left when the worker ends: what a handler keeps open is closed then."""
    from actors.study_kinds import kind_of
    from projections.fold import fold
    from projections.progress import Progress
    from schemas import commands

    study = fold(Progress(context.artifacts.get), context.study_facts()).study
    if study is None:
        raise Refused("the study is not frozen: `ledger freeze` first")
    kind = kind_of(study)
    handlers: Handlers = {}
    if "scheduler" in roles:
        from actors.study.scheduler import Scheduler

        scheduler = Scheduler(kind.next_step, ("model_server", *kind.roles))
        handlers = {**handlers, commands.ContinueStudy: scheduler.continue_study}
    if "model_server" in roles:
        from actors.model_server import ModelServerActor
        from actors.servers.http_model_server import Limits

        declared = study.server
        limits = Limits(
            first_token_s=float(declared.first_token_s), progress_s=float(declared.progress_s)
        )
        server = _model_server(context, declared, limits, server_url, lms)
        actor = ModelServerActor(study, server, kind.advance)
        handlers = {
            **handlers,
            commands.EnsureResident: actor.ensure_resident,
            commands.AskModel: actor.ask_model,
            commands.ReleaseModels: actor.release_models,
        }
    own = [role for role in kind.roles if role in roles]
    return {**handlers, **(kind.workers(context, own, closing) if own else {})}


def _model_server(
    context: Context, declared: Server, limits: "Limits", server_url: str, lms: str
) -> "ModelServer":
    """The adapter of the study's kind of server."""
    from actors.servers.registry import SERVERS, Address

    if declared.kind == "stand_in" and not server_url:
        from actors.rehearsal.stand_in_process import running_stand_in

        server_url, lms = running_stand_in(context.directory.run / "stand_in")
    address = Address(
        url=server_url or declared.url,
        lms=lms or declared.lms,
        weights=Path(declared.weights) if declared.weights else None,
        limits=limits,
        token=os.environ.get("LM_API_TOKEN"),
    )
    return SERVERS[declared.kind](address)


def _end_with_supervisor() -> None:
    """End this process when the supervisor's end of the pipe closes, however that came about."""
    while os.read(0, 4096):
        pass
    os._exit(0)
