"""``ledger export``."""

from pathlib import Path

import click

from ledger.cli.options import json_option, judged, print_json, require_ledger, study_option
from ledger.study_directory import StudyDirectory
from schemas.counted import counted


@click.command("export")
@study_option
@json_option
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--records-only", is_flag=True, help="Leave the artifacts out.")
def command(study: Path, as_json: bool, directory: Path, records_only: bool) -> int:
    """Write the ledger to DIRECTORY: JSON lines of exactly the recorded bytes, the checkpoints and
    the artifacts.

    Check it with `ledger verify-chain --path DIRECTORY`, or without this program by
    `python ledger/independent_verifier.py DIRECTORY`. Nothing is judged while exporting.
    """
    from ledger.export import export

    require_ledger(StudyDirectory(study))
    moved = export(study, directory, records_only)
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "path": moved.path,
                "ledger": moved.ledger,
                "records": moved.records,
                "checkpoints": moved.checkpoints,
                "artifacts": moved.artifacts,
                "missing": list(moved.missing),
                "altered": list(moved.altered),
            }
        )
    else:
        print(f"ledger {judged(moved.path, moved.ledger)}")
        print(
            f"{counted(moved.records, 'record')}, {counted(moved.checkpoints, 'checkpoint')}, "
            f"{counted(moved.artifacts, 'artifact')} in {directory}"
        )
        for digest in moved.missing:
            print(f"missing artifact {digest}")
        for digest in moved.altered:
            print(f"altered artifact {digest}")
    return 3 if moved.missing or moved.altered else 0
