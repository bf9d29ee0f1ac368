"""The command line: parse, call one function, print. One module a command.

A module is imported only when its command runs, so ``ledger verify-chain`` never loads a model
client and ``ledger --help`` loads nothing.
"""

import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TextIO, cast

import click
import msgspec

from ledger.cli.command_group import CommandGroup
from ledger.cli.printable import printable_lines, printable_output
from ledger.errors import Integrity, LedgerError, Usage, of_the_machine
from ledger.interruption import interruptible
from schemas.credentials import without_credentials

COMMANDS = {
    "init": "Make a new study directory with a study.toml to edit",
    "demo": "Run the whole product on the example repository, from mining to the report",
    "tasks": "Mine, validate, show, audit and freeze the tasks of a study",
    "plan": "Compute the order of all cells",
    "freeze": "Bind documents, configuration, tasks, plan and code; nothing runs before",
    "register": "Print the card of the frozen study for a registry, and record the receipt",
    "run": "Run the frozen plan, or resume it",
    "worker": "Work in some roles of a running study (started by `run`)",
    "status": "Show how far the study has come; shows no outcome",
    "verify-chain": "Check every byte of the ledger and say what is proven",
    "replay": "Rebuild the projections, compare them, or re-execute a cell from the log",
    "show": "Show a record, a cell or a stream",
    "query": "Ask the projections in SQL",
    "audit": "Run the named audits",
    "components": "List the parts of the program that decide results, and whether they changed",
    "amend": "Record a change of something frozen",
    "checkpoint": "Sign the present root, or anchor it outside",
    "prove": "Prove that a record, or an older checkpoint, is under a checkpoint",
    "check-proof": "Check such a proof without the ledger",
    "export": "Write the ledger as JSON lines with checkpoints and artifacts",
    "import": "Verify an export and make a read-only study of it",
    "backup": "Copy a study that may be running, and verify the copy",
    "gc": "List what crashes left behind; remove it with --remove",
    "analyze": "Compute the declared analyses, or the scores of a transfer study",
    "report": "Write the HTML and the Markdown report",
    "corrections": "Add corrections, and move them through their life",
    "transfer": "Write and review the families of a transfer study",
    "power": "Exact power of McNemar's test",
    "retrieval": "Measure and explain how the arms' engines find files",
    "doctor": "Say what this host has and what to install for what",
    "docs": "Write or check the generated documents",
}


class LazyGroup(CommandGroup):
    """Imports ``ledger.cli.<name>`` when the command ``name`` is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ledger.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done · 1 refused by a rule · 2 usage · 3 integrity violation or replay "
    "difference · 4 consistent but not anchored as required · 5 could not finish · 6 fatal "
    "mismatch found by a preflight · 7 safety stop, resumable · 8 a frozen threshold is missed · "
    "130 interrupted, resumable.",
)
@click.version_option(package_name="laboratory-ledger")
def cli() -> None:
    """An append-only, hash-chained ledger for preregistered studies of coding agents.

    A study is a folder with a study.toml. The usual way: `ledger init DIR`, edit study.toml,
    `ledger tasks mine`, `ledger tasks validate`, `ledger tasks freeze`, `ledger plan`,
    `ledger freeze`, `ledger run`, `ledger analyze`, `ledger report`. `ledger demo` shows all of it.

    A study of corrections: `ledger init DIR --template transfer`, `ledger transfer validate`,
    `ledger freeze`, then the same. `ledger status` says at any time what comes next.

    Options stand behind the command: `ledger status --study DIR --json`. With --json an error is
    the last line of standard error: {"error": message, "exit_status": number}.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its documented exit status.

    A LedgerError is a message for the user; a full disk, a closed folder and content that is not
    what its type says likewise; anything else is our fault and shows a traceback. A termination
    signal is treated as Ctrl-C. With --json the message is the last line of standard error,
    ``{"error": message, "exit_status": number}``.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    signals = ExitStack()
    signals.enter_context(interruptible())
    # Whatever the user's umask: what we write can be changed by nobody else.
    _fill_closed_streams()
    umask = os.umask(0o022)
    os.umask(umask | 0o022)
    try:
        _check_surroundings(words)
        with printable_output():
            result = cli.main(words, prog_name="ledger", standalone_mode=False)
        status = result if isinstance(result, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        status = 130
        _say("interrupted; nothing is lost, the same command goes on", status, as_json)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        status = 2
        text = error.format_message() if as_json else shown.getvalue().rstrip("\n")
        _say(text, status, as_json)
    except LedgerError as error:
        status = error.exit_status
        text = without_credentials(str(error))
        _say(text if as_json else f"ledger: {text}", status, as_json)
    except msgspec.DecodeError as error:
        # What we encoded we can decode: the ledger came from elsewhere, and verification, which
        # does not judge what content means, has nothing against it.
        status = Integrity.exit_status
        text = (
            f"a record or an artifact of this ledger holds something else than its type says: "
            f"{error}; it was made by hand or by another version of this program, ask who made it"
        )
        _say(text if as_json else f"ledger: {text}", status, as_json)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, and no traceback at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OSError as error:
        condition = of_the_machine(error)
        if condition is None:
            raise
        status = condition.exit_status
        _say(f"{condition}" if as_json else f"ledger: {condition}", status, as_json)
    finally:
        signals.close()
        os.umask(umask)
    sys.exit(status)


def _say(text: str, status: int, as_json: bool) -> None:
    """How a command ended, on standard error."""
    if as_json:
        text = json.dumps({"error": text, "exit_status": status})
    print(printable_lines(text), file=sys.stderr)


def _fill_closed_streams() -> None:
    """Whoever closed one of the three standard streams loses what would go there. Left closed, the
    next file to be opened, a database perhaps, would be that stream."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    # Python has None for a stream that was closed when it started.
    sys.stdout = cast("TextIO | None", sys.stdout) or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = cast("TextIO | None", sys.stderr) or os.fdopen(2, "w", encoding="utf-8")


def _check_surroundings(arguments: Sequence[str]) -> None:
    """Raises Usage for an argument that is not UTF-8, which neither SQLite nor a record can hold,
    and for a working folder that is gone."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if sys.getfilesystemencoding() != "utf-8":
                remedy = "this locale has no UTF-8: set PYTHONUTF8=1, or LC_ALL to a UTF-8 locale"
            else:
                remedy = "it is not UTF-8; write it as text"
            raise Usage(f"{argument!a}: {remedy}") from None
    try:
        os.getcwd()
    except FileNotFoundError:
        raise Usage("the working folder is gone; change to one that exists") from None
