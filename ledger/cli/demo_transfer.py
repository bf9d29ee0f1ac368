"""``ledger demo --transfer``: a transfer study, by the same commands that a user would type."""

import importlib.util
import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ledger.cli.demo_steps import (
    begin_folder,
    goes_on,
    print_block,
    proven,
    read_command,
    run_command,
)
from ledger.cli.options import print_table
from ledger.errors import Unfinished
from projections.transfer.report.systems import behaves, behaviour_names
from projections.transfer.results import TransferResults

QUICK_FAMILY = "families/F106.yaml"
COLUMNS = {
    "forgets": "forgets",
    "over-applies": "over-applies",
    "serves the superseded": "superseded",
    "guesses in conflict": "guesses",
    "lies about its memory": "lies",
    "says that it is done, and the surface disagrees": "false done",
}
"""Title in the closing table by behaviour; ``report.md`` has all behaviours and their counts."""


SERVER = Path("node_modules", "@modelcontextprotocol", "server-memory", "dist", "index.js")
SERVER_MEMORY = """
[[memories]]
id = "server-memory"
kind = "mcp"
command = ["node", {server}]
query = "project"
deterministic = true

[[systems]]
memory = "server-memory"
driver = "reader"
"""
"""A memory that is not ours: `@modelcontextprotocol/server-memory` of npm."""


def run_demo(directory: Path, quick: bool, server_memory: Path | None) -> int:
    """Make the study or go on with it, run every command, and say what each system does wrong.
    Returns 0 where chain, replay and audits agree, else 3."""
    begun = time.monotonic()
    study = prepare(directory, quick, server_memory)
    where = ["--study", str(study)]
    if read_command("status", *where, show=False)["frozen"] is None:
        run_command("transfer", "validate", *where)
        run_command("freeze", *where)
    status = run_command("run", *where)
    if status != 0:
        return status
    verified = read_command("verify-chain", *where)
    replayed = read_command("replay", "--check", *where)
    audited = read_command("audit", *where)
    analysis = read_command("analyze", "--reason", "the demo shows its result", *where)
    report = read_command("report", *where)
    results = msgspec.convert(analysis["results"], TransferResults)
    print()
    print_table(systems_table(results))
    met = len(results.thresholds) - len(results.missed)
    sound = sum(row["ok"] for row in audited["audits"])
    print_block(
        [
            *proven(study, verified, replayed),
            ("audits", f"{sound} of {len(audited['audits'])} without a finding"),
            ("runs", f"{len(results.runs)}, one page each: {Path(report['folder']) / 'runs'}"),
            ("boundaries", _boundaries(results)),
            ("thresholds", f"{met} of {len(results.thresholds)} met"),
            ("report", report["html"]),
            ("", report["markdown"]),
            ("rule-based", "no model acts here: this shows policies, and no product's quality"),
            ("time", f"{time.monotonic() - begun:.0f} s"),
        ]
    )
    print(f"next: ledger query --tables --study {shlex.quote(str(study))}")
    agree = not verified["findings"] and replayed["identical"] and sound == len(audited["audits"])
    return 0 if agree else 3


def prepare(directory: Path, quick: bool, server_memory: Path | None) -> Path:
    """Make the demo's study folder, or find an unfinished one. Raises Refused for a folder that no
    demo made."""
    if goes_on(directory, "transfer"):
        return directory.resolve()
    text = (files("actors.rehearsal") / "templates" / "demo-transfer.toml").read_text()
    if quick:
        begin, end = text.index("families = ["), text.index("]", text.index("families = ["))
        text = f'{text[:begin]}families = ["{QUICK_FAMILY}"{text[end:]}'
    if server_memory is not None:
        missing = _missing(server_memory)
        if missing:
            print(f"without server-memory: {missing}", file=sys.stderr)
        else:
            text += SERVER_MEMORY.format(server=json.dumps(str((server_memory / SERVER).resolve())))
    try:
        begin_folder(directory)
        (directory / "study.toml").write_text(text)
    except OSError as error:
        raise Unfinished(f"{directory}: {error.strerror}") from None
    run_command("init", str(directory), "--template", "transfer")
    return directory.resolve()


def _missing(server_memory: Path) -> str:
    """What server-memory would need here; empty where all of it is there."""
    from actors.sandbox import probe

    if shutil.which("node") is None:
        return "node is missing (Node.js 20)"
    if not (server_memory / SERVER).is_file():
        return f"`npm ci` has not run in {server_memory}"
    if importlib.util.find_spec("mcp") is None:
        return "the extra `memory` is not installed (requirements/memory.txt)"
    sandbox = probe()
    return "" if sandbox.kind != "none" else f"no sandbox works here: {sandbox.remedy}"


def systems_table(results: TransferResults) -> Sequence[dict[str, Any]]:
    """A row a system: what it does wrong, and which stages it cannot show. No counts: classes of
    corrections are never pooled."""
    names = {name.partition(":")[0]: name for name in behaviour_names(results)}
    return [
        {
            "system": system.name,
            **{title: behaves(names[name], system) for name, title in COLUMNS.items()},
            "cannot show": ", ".join(system.cannot_show) or "nothing",
        }
        for system in results.systems
    ]


def _boundaries(results: TransferResults) -> str:
    """High-consequence failures by system."""
    by_system: dict[str, int] = {}
    for run in results.boundary_failures:
        name = " + ".join(run.system)
        by_system[name] = by_system.get(name, 0) + 1
    named = ", ".join(f"{name} {count}" for name, count in by_system.items())
    return f"high-consequence failures: {named or 'none'}"
