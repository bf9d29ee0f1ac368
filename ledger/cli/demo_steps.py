"""What the demos of both kinds of study share: folder, commands, closing block."""

import contextlib
import io
import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger.errors import Refused
from schemas.counted import counted

MARKER = "made-by-ledger-demo"


def begin_folder(directory: Path) -> None:
    """Make the folder, and mark it first: what is marked may be made anew."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).touch()


def goes_on(directory: Path, kind: str) -> bool:
    """True where an unfinished demo of this kind lies there; another demo's folder is removed.
    Raises Refused for a folder that no demo made."""
    if not directory.exists() or not any(directory.iterdir()):
        return False
    if not (directory / MARKER).exists():
        raise Refused(f"{directory} exists and was not made by the demo; name another --dir")
    if _may_go_on(directory, kind):
        print(f"going on with the unfinished demo in {directory}", file=sys.stderr)
        return True
    shutil.rmtree(directory)
    return False


def _may_go_on(directory: Path, kind: str) -> bool:
    """True for a demo that was begun, is not complete, and was frozen with this version's code."""
    from actors.study.declarations import not_as_frozen
    from actors.study_kinds import kind_of
    from ledger.cli.options import reading
    from projections.amendments import Amendments
    from projections.fold import fold
    from projections.progress import Progress

    if not (directory / "var" / "ledger.db").exists():
        return False
    with reading(directory) as context:
        if context.log.head() is None:
            return False
        facts = list(context.log_facts())
        _, study = context.directory.read_study()
        if study.kind != kind:
            return False
        amendments = fold(Amendments(context.artifacts.get), facts)
        if fold(Progress(context.artifacts.get), facts).completed:
            return False
        return not not_as_frozen(context.directory, amendments, kind_of(study).components(study))


def run_command(*words: str) -> int:
    """Run one command in this process, as a user would type it; its exit status."""
    from ledger.cli.main import cli

    _show(words)
    result = cli.main(list(words), prog_name="ledger", standalone_mode=False)
    return result if isinstance(result, int) else 0


def read_command(*words: str, show: bool = True) -> Any:
    """Run one command with ``--json`` and read what it prints."""
    from ledger.cli.main import cli

    if show:
        _show(words)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        cli.main([*words, "--json"], prog_name="ledger", standalone_mode=False)
    return json.loads(output.getvalue())


def _show(words: Sequence[str]) -> None:
    """Print the command as a user would type it in the study's folder."""
    typed = list(words)
    if "--study" in typed:
        at = typed.index("--study")
        del typed[at : at + 2]
    print(f"\n$ ledger {shlex.join(typed)}", flush=True)


def proven(
    study: Path, verified: dict[str, Any], replayed: dict[str, Any]
) -> list[tuple[str, str]]:
    """Lines of the closing block: where the ledger lies, and what checking it came to."""
    return [
        ("study", str(study)),
        ("ledger", str(study / "var" / "ledger.db")),
        (
            "chain",
            f"{verified['status']}: {verified['events']} events, "
            f"{counted(len(verified['findings']), 'finding')}; "
            f"root {verified['head']['root'][:16]}…",
        ),
        (
            "replay",
            f"{len(replayed['tables'])} tables rebuilt from record 0, "
            f"{'identical' if replayed['identical'] else 'DIFFERENT'}",
        ),
    ]


def print_block(lines: Sequence[tuple[str, str]]) -> None:
    """(name, what it came to), wrapped, between two rules."""
    print("\n" + "-" * 78)
    for name, value in lines:
        first, *more = textwrap.wrap(value, 65, break_long_words=False, break_on_hyphens=False)
        print(f"{name:<12} {first}")
        for line in more:
            print(f"{'':<12} {line}")
    print("-" * 78)
