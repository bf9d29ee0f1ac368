"""What ``study.toml`` declares, held against what there is and against what tasks rest on.

Each check names everything that is wrong, so that a study is put right once.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from harnesses import registry
from ledger.errors import Usage
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments
from schemas.selection import ChangedSetting
from schemas.study import Study

SHOWN = 3


def check_declared(directory: StudyDirectory, study: Study, *, contrasts: bool = False) -> None:
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


def has_primary(study: Study) -> bool:
    return any(contrast.primary for contrast in study.contrasts)


def texts_digest(directory: StudyDirectory, study: Study) -> str:
    """Digest of the file of issue and merge-request texts; empty where none is declared."""
    if not study.tasks.texts:
        return ""
    return sha256(directory.document(study.tasks.texts)).hexdigest()


def listed(changed: Sequence[ChangedSetting]) -> str:
    """The first few changed settings, for a message."""
    more = len(changed) - SHOWN
    return "; ".join([*map(str, changed[:SHOWN]), *([f"and {more} more"] if more > 0 else [])])


def differs(names: Iterable[str]) -> str:
    """What to do where files are not as frozen; ``names`` as the freeze binds them."""
    shown = ", ".join(name.removeprefix("documents/") for name in names)
    return (
        f"not as frozen: {shown}. Put it back, or record the change with "
        '`ledger amend --reason "…"` (a family of a transfer study can only be put back: another '
        "one is another suite)"
    )


def not_as_frozen(directory: StudyDirectory, amendments: Amendments) -> list[str]:
    """Of study.toml and the bound documents those whose bytes are not the frozen or last amended
    ones, or that are gone. Nothing is parsed: it may be anything by now."""
    changed = []
    for name, digest in sorted(amendments.bound().items()):
        path = directory.root / name.removeprefix("documents/")
        if name != "study.toml" and not name.startswith("documents/"):
            continue
        try:
            present = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        except OSError:
            present = ""
        if present != digest:
            changed.append(name)
    return changed
