"""The one gate in front of outcomes: written down first, shown afterwards.

It guards what this program shows. What was opened with another program it cannot know.
"""

import os
import sys
from pathlib import Path

from ledger.cli.options import reading, writing
from ledger.errors import Refused
from ledger.sqlite_log import IMPORTED_MARK
from ledger.study_directory import StudyDirectory


def pass_gate(study: Path, reason: str | None, what: str) -> None:
    """Commit ``outcomes.inspected`` with the reason, or raise Refused with the rule.

    Called once a command, before it shows ``what``. An imported ledger, or one that this user
    cannot write, keeps no record of who looked: the rule is applied all the same, and a line on
    standard error says that nothing was recorded. Another says so where the study is a rehearsal.
    """
    from actors.loop import carry_out
    from actors.operator import HANDLERS
    from projections.fold import fold
    from projections.progress import Progress
    from schemas.commands import InspectOutcomes

    if reason is None or not reason.strip():
        raise Refused(
            f'{what} shows outcomes. Say why with --reason "…": the ledger records that they were '
            "inspected, and every later amendment is exploratory"
        )
    recorded = may_append(study)
    if recorded:
        with writing(study) as context:
            carry_out(context, InspectOutcomes(reason=reason.strip()), HANDLERS)
    with reading(study) as context:
        progress = fold(Progress(context.artifacts.get), context.log_facts())
    if progress.study is None:
        raise Refused("the study is not frozen: there are no outcomes")
    if progress.study.grading.when == "end" and not progress.completed:
        raise Refused('this study grades at the end ([grading] when = "end") and is not complete')
    if not recorded:
        print(
            "ledger: this copy of the ledger is never written; the inspection is not recorded",
            file=sys.stderr,
        )
    if progress.study.simulated:
        print("SIMULATED: a rehearsal, not evidence", file=sys.stderr)


def may_append(study: Path) -> bool:
    """False for an imported ledger and for one that this user cannot write."""
    directory = StudyDirectory(study)
    imported = directory.ledger.with_name(IMPORTED_MARK).exists()
    return not imported and all(
        os.access(path, os.W_OK) for path in (directory.ledger, directory.var)
    )
