"""``ledger import``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, judged, print_json, printable
from schemas.counted import counted


@click.command("import")
@json_option
@click.argument("source", type=click.Path(file_okay=False, path_type=Path))
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--key",
    metavar="STRING",
    help="Verifier string that the ledger's owner has published; remembered.",
)
def command(source: Path, directory: Path, as_json: bool, key: str | None) -> None:
    """Make a read-only study in DIRECTORY from the export in SOURCE.

        ledger import received/ their-study --key "$KEY"

    Every byte is verified first; what contradicts itself, its checkpoints or the key is refused
    with status 3 and nothing is kept. An imported ledger is never written: every reading command
    works on it (tables and reports are derived beside it), every other refuses. It counts as
    anchored only by an outside anchor: `ledger verify-chain --study DIRECTORY --against NOTE`.
    """
    from ledger.cli.verify_chain import grouped
    from ledger.export import import_ledger

    report = import_ledger(source, directory, key)
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "path": str(source),
                "ledger": report.ledger,
                "status": report.status,
                "events": report.events,
                "findings": [finding.code for finding in report.findings],
                "assurance": report.assurance,
            }
        )
        return
    print(f"ledger     {judged(source, report.ledger)}")
    print(f"imported   {counted(report.events, 'event')} to {directory}, read-only")
    for finding, places in grouped(report.findings):
        times = f" ({places} times)" if places > 1 else ""
        print(f"finding    {finding.code}{times}: {printable(finding.got)} ({finding.severity})")
    print(f"anchored   {'yes' if report.status == 'verified' else 'not yet'}")
    print(f"assurance  {report.assurance}")
