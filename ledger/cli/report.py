"""``ledger report``."""

import os
from pathlib import Path

import click
import msgspec

from ledger.cli.options import json_option, print_json, printable, reading, study_option, writing
from ledger.errors import Refused, Unfinished
from ledger.study_directory import StudyDirectory
from schemas.counted import counted


@click.command("report")
@study_option
@json_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="var/reports/<head>/ in the study's folder",
    help="Folder to write into.",
)
def command(study: Path, as_json: bool, out: Path | None) -> int:
    """Write the report of the last analysis: HTML, Markdown, cells as CSV, results as JSON, and the
    amendments; of a transfer study also a page for every run.

    The same records give the same bytes, and every number in it cites the record that it was
    computed from. results.json has the digest that the analysis recorded. Status 8 where a
    threshold of a transfer study is missed, or not decided since planned runs have not ended.
    """
    from actors.loop import carry_out
    from actors.study import analysis
    from actors.study_kinds import kind_in
    from ledger.atomic_file import write_file
    from ledger.cli.inspection_gate import may_append
    from ledger.cli.next_step import warn_of_edits
    from schemas.commands import WriteReport

    if out is not None:
        _refuse_own_files(StudyDirectory(study), out)
    recorded = may_append(study)
    with writing(study) if recorded else reading(study) as context:
        found = kind_in(context).analysis()
        if recorded:
            carry_out(context, WriteReport(), analysis.handlers(found))
        head, files = analysis.report_files(context, found)
        summary = found.summary(analysis.last_results(context, found.results))
        warn_of_edits(context, "this report")
        folder = out if out is not None else context.directory.reports / str(head)
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, content, mode=0o644)
    except OSError as error:
        raise Unfinished(
            f"{folder}: {error.strerror}; the report is in the ledger, write it with --out DIR"
        ) from None
    # The files that everybody reads; pages of runs are counted.
    shown = {name: str(folder / name) for name in files if "/" not in name}
    if as_json:
        kinds = {"report.html": "html", "report.md": "markdown", "results.json": "json"}
        tables = {name: path for name, path in shown.items() if name.endswith(".csv")}
        print_json(
            {
                "head": head,
                "recorded": recorded,
                "folder": str(folder),
                **{kind: shown[name] for name, kind in kinds.items()},
                "csv": next(iter(tables.values())),
                "tables": tables,
                "amendments": shown["PROTOCOL_AMENDMENTS.md"],
                "pages": len(files) - len(shown),
                "interim": summary.interim,
                "missed_thresholds": [msgspec.to_builtins(each) for each in summary.missed],
                "dropped_thresholds": [msgspec.to_builtins(each) for each in summary.dropped],
            }
        )
        return 8 if summary.missed else 0
    print(f"report of records 0 to {head}")
    for path in shown.values():
        print(f"  {path}")
    if len(files) > len(shown):
        print(f"  {counted(len(files) - len(shown), 'page')} of runs in {folder / 'runs'}")
    if not recorded:
        print("  not recorded: this copy of the ledger is never written")
    if summary.interim:
        print(summary.interim)
    for line in summary.thresholds:
        print(printable(line))
    return 8 if summary.missed else 0


def _refuse_own_files(directory: StudyDirectory, out: Path) -> None:
    """A report replaces files of its names: it may not stand among those of the study."""
    place = Path(os.path.realpath(out))
    if place == directory.root or (
        place.is_relative_to(directory.var) and not place.is_relative_to(directory.reports)
    ):
        raise Refused(
            f"{out} holds the study's own files: name a folder for the report alone, or leave "
            "--out out"
        )
