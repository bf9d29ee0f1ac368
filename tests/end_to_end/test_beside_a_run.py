"""What an auditor may do while a study runs: copy, verify, prove and tidy, and disturb nothing."""

from pathlib import Path

from ledger.sqlite.log import SqliteLog
from ledger.study_directory import StudyDirectory
from tests.end_to_end.rehearsal_study import StudyOnDisk, check_sound, finish, outcomes

MANY = 100
"""More rounds than a run of two cells lasts."""


def records(study: Path) -> list[bytes]:
    log = SqliteLog.open_read_only(StudyDirectory(study).ledger)
    try:
        return [stored.record for stored in log.read()]
    finally:
        log.close()


def test_backups_proofs_and_gc_beside_a_run(
    frozen_study: StudyOnDisk, completed_study: StudyOnDisk, tmp_path: Path
) -> None:
    study = frozen_study.copy(tmp_path / "study")
    running = study.start("run")
    sizes: list[int] = []
    while running.poll() is None:
        assert len(sizes) < MANY, "the run stands still"
        place = tmp_path / f"backup-{len(sizes)}"
        made = study.ledger_command("backup", str(place), "--json")
        assert (made.status, made.json["status"]) == (0, "verified"), made
        sizes.append(made.json["events"])
        # Nothing that the run is about to name may go, however small the grace.
        tidied = study.ledger_command("gc", "--remove", "--older-than", "0", "--json")
        assert tidied.status == 0 and tidied.json["removed"] == 0, tidied
        assert study.ledger_command("checkpoint").status == 0
        proof = study.ledger_command("prove", str(made.json["events"] - 1))
        assert proof.status == 0 and proof.out.startswith("c2sp.org/tlog-proof@v1\n"), proof
    assert finish(running).status == 0
    check_sound(study, outcomes(completed_study.facts()))
    assert len(sizes) >= 2 and sizes == sorted(sizes) and sizes[0] < sizes[-1]
    whole = records(study.path)
    for number, size in enumerate(sizes):
        assert records(tmp_path / f"backup-{number}") == whole[:size]
