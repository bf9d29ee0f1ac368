"""``ledger backup``."""

from pathlib import Path

import click

from ledger.cli.options import (
    json_option,
    judged,
    print_json,
    printable,
    require_ledger,
    study_option,
)
from ledger.study_directory import StudyDirectory
from schemas.counted import counted


@click.command("backup")
@study_option
@json_option
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(study: Path, as_json: bool, directory: Path) -> int:
    """Copy the study to DIRECTORY, also while a run goes on, and verify the copy.

        ledger backup /mnt/other-disk/my-study-1

    DIRECTORY is new and lies outside the study's folder. The copy is a study directory: the ledger
    as it stood at one moment, its checkpoints, every artifact that its records name, study.toml,
    the documents and the families. A file that `documents` leaves out, such as an agent's program,
    is yours to copy. DIRECTORY gets its name when every byte was verified against the newest
    checkpoint, and what is printed says whose key signed that; nothing that exists is overwritten.
    After a kill the same command goes on.

    The key that signs the ledger is not in the copy: keep signing-key.pem of your configuration
    folder too, where nobody else can read it. Without it a copy is verified and never written.

    To restore, put the copy in the study's place. Never go on with both: that would be two
    histories. A copy without records that you have seen is refused until you say they are lost.
    """
    from ledger.export import backup
    from ledger.verify.verification import exit_status

    require_ledger(StudyDirectory(study))
    report = backup(study, directory)
    newest = next((anchor for anchor in report.anchors if anchor.kind == "self"), None)
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "path": str(StudyDirectory(study).ledger),
                "ledger": report.ledger,
                "status": report.status,
                "events": report.events,
                "signed": newest.size if newest is not None and newest.counts else 0,
                "assurance": report.assurance,
            }
        )
    else:
        print(f"status     {report.status}")
        print(f"ledger     {judged(StudyDirectory(study).ledger, report.ledger)}")
        print(f"backup     {directory}")
        print(f"events     {report.events}")
        if newest is not None:
            under = f"the newest, over the first {counted(newest.size, 'event')}"
            print(f"checkpoint {under}: {printable(newest.detail)}")
        print(f"assurance  {report.assurance}")
    return exit_status(report)
