"""What ``study.toml`` declares, held against what there is and against what tasks rest on.

Each check names everything that is wrong, so that a study is put right once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from actors.study.components import Component, all_differences, present_components
from ledger.study_directory import StudyDirectory
from projections.amendments import Amendments
from schemas.counted import first_few
from schemas.study import Study

SHOWN = 3


@dataclass(frozen=True)
class Changes:
    """What is not as it was frozen or last amended."""

    documents: Sequence[str] = ()
    """``study.toml`` and ``documents/NAME``."""
    components: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By component of the program, what differs of it."""

    def __bool__(self) -> bool:
        return bool(self.documents or self.components)

    def names(self) -> list[str]:
        """For programs: documents as the freeze binds them, components in words."""
        return [*self.documents, *in_words(self.components)]


def in_words(components: Mapping[str, Sequence[str]]) -> list[str]:
    """``arm H018: harnesses/tools/search.py differs``, one per component."""
    return [f"{name}: {first_few(words, SHOWN)}" for name, words in components.items()]


def differs(changes: Changes, study: Study | None) -> str:
    """What to do where something is not as frozen; ``study`` as it was frozen or last amended."""
    shown = [in_short(changes.documents)] if changes.documents else []
    return f"not as frozen: {'; '.join([*shown, *in_words(changes.components)])}. " + _way_back(
        changes, study
    )


def in_short(documents: Sequence[str]) -> str:
    """The first few files, as a user knows them."""
    return first_few([name.removeprefix("documents/") for name in documents], SHOWN)


def _way_back(changes: Changes, study: Study | None) -> str:
    """What no amendment changes can only be put back; the program too by installing it again."""
    fixed = study.fixed_documents if study else ()
    to_put_back = [name for name in changes.documents if name.removeprefix("documents/") in fixed]
    back = "Put it back"
    if changes.components:
        back += " (the program: install what it was frozen with)"
    if changes.components or len(to_put_back) < len(changes.documents):
        back += ', or record the change with `ledger amend --reason "…"`'
    if to_put_back:
        back += f"; {in_short(to_put_back)} can only be put back: a changed one makes another study"
    return back


def not_as_frozen(
    directory: StudyDirectory, amendments: Amendments, components: Sequence[Component]
) -> Changes:
    """What the freeze and later amendments bound and what is not so any more, or gone. Of
    study.toml nothing is parsed: it may be anything by now."""
    if amendments.frozen is None:
        return Changes()
    return Changes(
        edited(directory, amendments),
        all_differences(amendments.components, present_components(components), amendments.read),
    )


def edited(directory: StudyDirectory, amendments: Amendments) -> list[str]:
    """Of study.toml and the bound documents those whose bytes are not the frozen or last amended
    ones, or that are gone."""
    changed = []
    for name, digest in sorted(amendments.bound().items()):
        path = directory.root / name.removeprefix("documents/")
        try:
            present = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        except OSError:
            present = ""
        if present != digest:
            changed.append(name)
    return changed
