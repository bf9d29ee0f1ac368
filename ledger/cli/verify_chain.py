"""``ledger verify-chain``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import (
    json_option,
    judged,
    notes_in,
    print_json,
    printable,
    read_given,
    require_ledger,
    study_option,
)
from ledger.errors import Unfinished, Usage
from ledger.finding import Finding
from ledger.study_directory import StudyDirectory
from schemas.counted import counted

if TYPE_CHECKING:
    from ledger.verify.verification import Report, Requirement

FINDINGS_SHOWN = 50


@click.command("verify-chain")
@study_option
@json_option
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    default=None,
    help="An exported folder, a JSONL file or a database instead of a study.",
)
@click.option(
    "--require",
    type=click.Choice(["self", "git", "time", "copy"]),
    default=None,
    help="Kind of anchor that counts. By default `self` for a ledger that your own key "
    "signed and for an export of it, an outside one for an imported ledger and for any other.",
)
@click.option(
    "--max-anchor-age",
    type=click.IntRange(0),
    default=None,
    metavar="EVENTS",
    help="Most events that may follow the newest anchor that counts.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A signed note that you have kept; may be repeated.",
)
@click.option(
    "--key",
    metavar="STRING",
    default=None,
    help="Verifier string of the key that must have signed.",
)
@click.option(
    "--time-authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Certificate (PEM) of a time-stamping authority you trust.",
)
@click.option(
    "--git-clone",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="A clone of the remote that notes were pushed to, where that is not on this machine.",
)
@click.option(
    "--no-last-seen",
    is_flag=True,
    help="Do not compare with, or add to, what this user's verifier remembers.",
)
def command(
    study: Path,
    as_json: bool,
    path: Path | None,
    require: "Requirement | None",
    max_anchor_age: int | None,
    against: tuple[Path, ...],
    key: str | None,
    time_authority: Path | None,
    git_clone: Path | None,
    no_last_seen: bool,
) -> int:
    """Check every byte of a ledger: chain, copies, streams, artifacts, checkpoints, schema.

    \b
        ledger verify-chain
        ledger verify-chain --path received/ --key "$KEY" --against kept-note

    All faults are found, not only the first. Status 0: complete and matched by an anchor that
    counts; 3: a violation; 4: consistent but not anchored as required; 5: could not finish.

    checkpoints.log protects against accidents and partial edits, not against an owner who holds
    the signing key: against that only an outside anchor helps (`ledger checkpoint --help`). No
    command repairs a chain.

    A note given with --against counts where its signature could be checked: without a known key it
    is listed with the reason and does not count; give the signer's string with --key.

    The study itself must hold every record that you have signed or seen of it. An export or
    another copy may be older: its records must be the first ones of your own log; where you have
    no log of it, its own checkpoints do not count (status 4).
    """
    import json

    from ledger.verify.verification import Options, exit_status, report_json, verify

    options = Options(
        key=key,
        require=require,
        max_anchor_age=max_anchor_age,
        against=tuple(note for path in against for note in notes_in(path)),
        time_authority=_authority_in(time_authority) if time_authority else None,
        git_clone=git_clone,
        last_seen=not no_last_seen,
    )
    target = path or study
    if path is None:
        require_ledger(StudyDirectory(study))
    try:
        report = verify(target, options=options)
    except OSError as error:
        raise Unfinished(f"{target}: {error.strerror}") from None
    if as_json:
        print_json(json.loads(report_json(report)))
        return exit_status(report)
    print(f"status     {report.status}; {_unsigned(report)}")
    print(f"ledger     {judged(report.path, report.ledger)}")
    print(f"events     {report.events}")
    if report.head is not None:
        print(f"head       seq {report.head.seq}  leaf {report.head.leaf}")
        print(f"root       {report.head.root or 'none: records are missing'}")
    for anchor in report.anchors:
        counts = "counts" if anchor.counts else "does not count"
        age = f"over {counted(anchor.size, 'event')}, {anchor.age} after it"
        print(f"anchor     {anchor.kind} {age}, {counts}: {printable(anchor.detail)}")
    found = grouped(report.findings)
    for finding, places in found[:FINDINGS_SHOWN]:
        seq = "-" if finding.seq is None else finding.seq
        more = f" and {places - 1} more" if places > 1 else ""
        print(
            f"finding    {finding.code} at {seq}{more}: expected {printable(finding.expected)}, "
            f"got {printable(finding.got)}"
        )
    if len(found) > FINDINGS_SHOWN:
        print(f"           and {len(found) - FINDINGS_SHOWN} more (--json shows all)")
    print(f"assurance  {report.assurance}")
    return exit_status(report)


def _unsigned(report: "Report") -> str:
    if not report.unsigned:
        return "every record is under a signature"
    return f"no signature covers the last {counted(report.unsigned, 'record')}"


def grouped(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Findings that differ in nothing but their record: the first one, and how many there are."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.expected, finding.got), []).append(finding)
    return [(group[0], len(group)) for group in groups.values()]


def _authority_in(path: Path) -> Path:
    """Raises Usage for a file that is no PEM certificate."""
    if b"-----BEGIN CERTIFICATE-----" not in read_given(path):
        raise Usage(f"{path}: not a certificate in PEM form")
    return path
