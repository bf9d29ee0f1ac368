"""``ledger audit``."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ledger.cli.options import (
    json_option,
    judged,
    ledger_of,
    print_json,
    print_table,
    printable,
    reading,
    study_option,
)
from ledger.errors import Usage
from schemas.counted import counted

if TYPE_CHECKING:
    from projections.audits.finding import Verdict

LIMITS = {"violation": 50, "note": 5}
"""Findings of one audit that are printed; --json shows all."""


@click.command("audit")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@study_option
@json_option
@click.option("--list", "list_audits", is_flag=True, help="List the audits and what they ask.")
def command(names: Sequence[str], study: Path, as_json: bool, list_audits: bool) -> int:
    """Run the named audits, or all of them.

    Each audit reads the log and says what it looked at and what it found, with the record. Status 0
    where no audit found a violation, 3 where one did. No audit shows an outcome.

    \b
        ledger audit --list
        ledger audit chain inspections
    """
    questions = _questions()
    unknown = [name for name in names if name not in questions]
    if unknown:
        raise Usage(f"there is no audit {unknown[0]!r}; audits are {', '.join(questions)}")
    if list_audits:
        listed = [{"audit": name, "question": text} for name, text in questions.items()]
        if as_json:
            print_json({"audits": listed})
        else:
            print_table(listed)
        return 0
    path, ledger, verdicts = _run(study, [n for n in questions if not names or n in names])
    violated = any(verdict.status == "violated" for verdict in verdicts)
    if as_json:
        rows = [
            {"ok": verdict.status != "violated", **msgspec.to_builtins(verdict)}
            for verdict in verdicts
        ]
        print_json({"ok": not violated, "path": str(path), "ledger": ledger, "audits": rows})
    else:
        print(f"ledger {judged(path, ledger)}")
        _print(verdicts)
    return 3 if violated else 0


def _questions() -> dict[str, str]:
    from projections.audits import chain
    from projections.audits.registry import AUDITS

    return {chain.NAME: chain.QUESTION, **{audit.NAME: audit.QUESTION for audit in AUDITS}}


def _run(study: Path, names: Sequence[str]) -> "tuple[Path, str, list[Verdict]]":
    """(the file that was judged, the ledger's id, what the audits say)"""
    from projections.audits import chain
    from projections.audits.run import run_audits

    with reading(study) as context:
        verdicts = [chain.audit_chain(context.directory.root)] if chain.NAME in names else []
        verdicts += run_audits(context.log, context.artifacts.get, names)
        return context.directory.ledger, ledger_of(context), verdicts


def _print(verdicts: "Sequence[Verdict]") -> None:
    print_table(
        [
            {
                "audit": verdict.audit,
                "status": verdict.status.replace("_", " "),
                "checked": ", ".join(
                    f"{count} {name.replace('_', ' ')}" for name, count in verdict.checked.items()
                ),
            }
            for verdict in verdicts
        ]
    )
    for verdict in verdicts:
        shown: Counter[str] = Counter()
        for finding in verdict.findings:
            shown[finding.severity] += 1
            if shown[finding.severity] > LIMITS[finding.severity]:
                continue
            where = "" if finding.seq is None else f" at record {finding.seq}"
            print(f"{verdict.audit}: {finding.severity}{where}: {printable(finding.text)}")
        for severity, limit in LIMITS.items():
            if shown[severity] > limit:
                more = shown[severity] - limit
                print(f"{verdict.audit}: {counted(more, severity)} more; --json shows all")
