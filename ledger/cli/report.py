"""``ledger report``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, print_json, reading, study_option, writing
from ledger.errors import Unfinished


@click.command("report")
@study_option
@json_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="var/reports/<head>/ in the study's folder",
    help="Folder to write into.",
)
def command(study: Path, as_json: bool, out: Path | None) -> None:
    """Write the report of the last analysis: HTML, Markdown, cells as CSV, results as JSON, and the
    amendments.

    The same records give the same bytes, and every number in it cites the record that it was
    computed from. results.json has the digest that the analysis recorded.
    """
    from actors import analysis, operator
    from actors.loop import carry_out
    from ledger.atomic_file import write_file
    from ledger.cli.inspection_gate import may_append
    from ledger.cli.next_step import drift, warn_of_drift
    from schemas.commands import WriteReport

    recorded = may_append(study)
    with writing(study) if recorded else reading(study) as context:
        if recorded:
            carry_out(context, WriteReport(), {**operator.HANDLERS, **analysis.HANDLERS})
        head, files = analysis.report_files(context)
        warn_of_drift(drift(context))
        folder = out if out is not None else context.directory.reports / str(head)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_file(folder / name, content, mode=0o644)
    except OSError as error:
        raise Unfinished(
            f"{folder}: {error.strerror}; the report is in the ledger, write it with --out DIR"
        ) from None
    if as_json:
        print_json(
            {
                "head": head,
                "recorded": recorded,
                "folder": str(folder),
                "html": str(folder / "report.html"),
                "markdown": str(folder / "report.md"),
                "csv": str(folder / "cells.csv"),
                "json": str(folder / "results.json"),
                "amendments": str(folder / "PROTOCOL_AMENDMENTS.md"),
            }
        )
        return
    print(f"report of records 0 to {head}")
    for name in files:
        print(f"  {folder / name}")
    if not recorded:
        print("  not recorded: this copy of the ledger is never written")
