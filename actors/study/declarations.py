"""What ``study.toml`` declares, held against what there is and against what tasks rest on.

Each check names everything that is wrong, so that a study is put right once.
"""

from collections.abc import Sequence
from hashlib import sha256

from actors.study.digests import lock_digest, package_files
from harnesses import registry
from ledger.errors import Usage
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments
from schemas.counted import first_few
from schemas.selection import ChangedSetting
from schemas.study import Study
from schemas.study_file import AnyStudy
from schemas.transfer.study import TransferStudy

SHOWN = 3
PROGRAM = ("code/", "libraries")
"""How the names of what the freeze binds of the program begin."""


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


def differs(names: Sequence[str], study: AnyStudy | None) -> str:
    """What to do where files are not as frozen; ``names`` as the freeze binds them, ``study`` as it
    was frozen or last amended."""
    return f"not as frozen: {in_short(names)}. {_way_back(names, study)}"


def in_short(names: Sequence[str]) -> str:
    """The first few files, as a user knows them."""
    shown = [
        "the installed libraries" if name == "libraries" else name.removeprefix("documents/")
        for name in names
    ]
    return first_few(shown, SHOWN)


def _way_back(names: Sequence[str], study: AnyStudy | None) -> str:
    """A family can only be put back; the program too by installing it again."""
    suite = study.suite.families if isinstance(study, TransferStudy) else []
    families = [name for name in names if name.removeprefix("documents/") in suite]
    back = "Put it back"
    if any(name.startswith(PROGRAM) for name in names):
        back += " (the program: install what it was frozen with)"
    if len(families) < len(names):
        back += ', or record the change with `ledger amend --reason "…"`'
    if families:
        back += f"; {in_short(families)} can only be put back: another family is another suite"
    return back


def not_as_frozen(directory: StudyDirectory, amendments: Amendments) -> list[str]:
    """Names of what the freeze and later amendments bound and what is not so any more, or gone:
    what `ledger run` refuses. Of study.toml nothing is parsed: it may be anything by now."""
    if amendments.frozen is None:
        return []
    present = {f"code/{file.name}": file.digest for file in package_files()}
    present["libraries"] = lock_digest()
    bound = amendments.bound()
    program = {name: digest for name, digest in bound.items() if name.startswith(PROGRAM)}
    changed = {name for name, digest in present.items() if program.get(name) != digest}
    return [*edited(directory, amendments), *sorted(changed | (program.keys() - present.keys()))]


def edited(directory: StudyDirectory, amendments: Amendments) -> list[str]:
    """Of study.toml and the bound documents those whose bytes are not the frozen or last amended
    ones, or that are gone."""
    changed = []
    for name, digest in sorted(amendments.bound().items()):
        path = directory.root / name.removeprefix("documents/")
        if name.startswith(PROGRAM):
            continue
        try:
            present = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        except OSError:
            present = ""
        if present != digest:
            changed.append(name)
    return changed
