"""What the ``study.toml`` of a repair study declares, held against what there is."""

from collections.abc import Sequence
from hashlib import sha256

from harnesses import registry
from ledger.errors import Usage
from ledger.study_directory import StudyDirectory
from schemas.repair.selection import ChangedSetting
from schemas.repair.study import RepairStudy

SHOWN = 3


def check_declared(
    directory: StudyDirectory, study: RepairStudy, *, contrasts: bool = False
) -> None:
    """Raises Usage where the study names a treatment, document or file of texts that is not there,
    and with ``contrasts`` where it is preregistered and has no primary contrast."""
    problems = []
    for index, treatment in enumerate(study.treatments):
        try:
            registry.find_harness(treatment.id)
        except LookupError as error:
            problems.append(f"`treatments[{index}].id`: {error}")
    named = [(f"documents[{index}]", name) for index, name in enumerate(study.documents)]
    if study.tasks.texts:
        named.append(("tasks.texts", study.tasks.texts))
    for key, name in named:
        try:
            directory.document(name)
        except Usage as error:
            problems.append(f"`{key}`: {str(error).removeprefix('study.toml: ')}")
    if contrasts and study.preregistered and not has_primary(study):
        problems.append(
            "`contrasts`: none is primary. A preregistered study has one (`primary = true`); a "
            "study without one says `preregistered = false`, and whatever it finds is exploratory"
        )
    if problems:
        raise Usage(f"{directory.toml}: {'; '.join(problems)}")


def has_primary(study: RepairStudy) -> bool:
    return any(contrast.primary for contrast in study.contrasts)


def texts_digest(directory: StudyDirectory, study: RepairStudy) -> str:
    """Digest of the file of issue and merge-request texts; empty where none is declared."""
    if not study.tasks.texts:
        return ""
    return sha256(directory.document(study.tasks.texts)).hexdigest()


def listed(changed: Sequence[ChangedSetting]) -> str:
    """The first few changed settings, for a message."""
    more = len(changed) - SHOWN
    return "; ".join([*map(str, changed[:SHOWN]), *([f"and {more} more"] if more > 0 else [])])
