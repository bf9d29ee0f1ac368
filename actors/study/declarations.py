"""What ``study.toml`` declares, held against what there is and against what tasks rest on.

Each check names everything that is wrong, so that a study is put right once.
"""

from collections.abc import Sequence
from hashlib import sha256

from actors.study.digests import lock_digest, package_files
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments
from schemas.counted import first_few
from schemas.study import Study

SHOWN = 3
PROGRAM = ("code/", "libraries")
"""How the names of what the freeze binds of the program begin."""


def differs(names: Sequence[str], study: Study | None) -> str:
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


def _way_back(names: Sequence[str], study: Study | None) -> str:
    """What no amendment changes can only be put back; the program too by installing it again."""
    fixed = study.fixed_documents if study else ()
    to_put_back = [name for name in names if name.removeprefix("documents/") in fixed]
    back = "Put it back"
    if any(name.startswith(PROGRAM) for name in names):
        back += " (the program: install what it was frozen with)"
    if len(to_put_back) < len(names):
        back += ', or record the change with `ledger amend --reason "…"`'
    if to_put_back:
        back += f"; {in_short(to_put_back)} can only be put back: a changed one makes another study"
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
