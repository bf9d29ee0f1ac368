"""``ledger transfer proxy``."""

import os
import sys
from pathlib import Path

import click

from ledger.errors import Refused


@click.command("proxy")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File that the messages are appended to; LEDGER_PROXY_JOURNAL where it is not given.",
)
@click.argument("server", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED, required=True)
def command(journal: Path | None, server: tuple[str, ...]) -> int:
    """Capture what passes between an agent and its MCP memory server (over stdio).

    Put it before the server's command in the agent's own settings: `ledger transfer proxy --journal
    FILE -- COMMAND…`. Bytes pass unchanged; requests and responses are appended to FILE as JSON
    lines, readable by nobody else, at most 16 MiB. It ends with the server's status.

    Inside a system of kind "command" it is started by the program, so what it captured there is the
    program's own word (reported): docs/systems-under-test.md.
    """
    from actors.memory_systems.proxy import JOURNAL, run

    path = str(journal) if journal is not None else os.environ.get(JOURNAL, "")
    if not path:
        raise click.UsageError(f"say where to write: --journal FILE, or {JOURNAL}")
    print(f"capturing to {path}", file=sys.stderr, flush=True)
    try:
        status = run(list(server), path)
    except OSError as error:
        raise Refused(f"{error}") from None
    # A thread that waits for the agent's next line must not keep this alive.
    sys.stderr.flush()
    os._exit(status)
