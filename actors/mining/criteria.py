"""The static criteria: what makes a commit a candidate, and the audit of every commit that is not.

All criteria are evaluated for every commit and the first failed one, in the order of
:data:`STATIC_CRITERIA`, is its verdict. Named classes of commits come before structural ones,
else "no production file" would hide them all.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from actors.languages.classifier import Classifier
from actors.languages.contract import Language
from actors.mining import halves
from actors.mining.history import Commit, IsolatedRepository
from actors.mining.trees import Entry, TreeChanges
from actors.test_runs.overlays import unsafe_reason
from harnesses.retrieval.snapshot import FileClass, display_path
from schemas.base import Count, Value
from schemas.repair.study import Platform, TaskRules

STATIC_CRITERIA = (
    "root_commit",
    "object_missing",
    "empty",
    "revert",
    "dependency_only",
    "documentation_only",
    "generated_only",
    "formatting_only",
    "no_production_file",
    "no_test_file",
    "no_selectable_test",
    "too_many_production_files",
    "too_many_test_files",
    "too_many_production_lines",
    "duplicate",
    "mixed",
    "patches_not_disjoint",
    "patch_does_not_apply",
)
EXECUTED_CRITERIA = (
    "environment_failed",
    "public_tests_fail_at_base",
    "no_fail_to_pass",
    "gold_fails",
    "flaky",
    "statement_leaks",
)

HIDDEN: tuple[FileClass, ...] = ("test", "infrastructure")
"""Classes whose files make the hidden half."""


class Numbers(Value):
    """What decided a verdict, counted with renames found at 50 % similarity."""

    changed_paths: Annotated[int, Meta(ge=0, description="paths that differ, without renames")] = 0
    production_files: Count = 0
    production_source_files: Annotated[
        int, Meta(ge=0, description="production files that are source code, not resources")
    ] = 0
    production_lines: Annotated[int, Meta(ge=0, description="added + deleted")] = 0
    test_files: Annotated[int, Meta(ge=0, description="test and test-infrastructure files")] = 0
    test_lines: Annotated[int, Meta(ge=0, description="added + deleted in these")] = 0
    selectable_tests: Annotated[
        int, Meta(ge=0, description="changed test files beneath a test root that gold holds")
    ] = 0


class AuditRow(Value):
    """The verdict on one walked commit."""

    commit: str
    parent: Annotated[str, Meta(description="first parent; empty for a root commit")]
    date: Annotated[str, Meta(description="committer date, RFC 3339 in UTC")]
    subject: str
    merge: bool
    verdict: Literal["candidate", "rejected"]
    criterion: Annotated[str, Meta(description="first failed criterion; empty for a candidate")]
    failed: Annotated[tuple[str, ...], Meta(description="every failed criterion, in order")]
    reasons: Annotated[dict[str, str], Meta(description="failed criterion: why")]
    numbers: Numbers
    classes: Annotated[dict[str, Count], Meta(description="changed paths by class")]
    dropped: Annotated[
        tuple[str, ...], Meta(description="changed paths in neither half, escaped for display")
    ] = ()


def audit_lines(rows: Iterable[AuditRow]) -> bytes:
    """The audit as JSON lines."""
    encoder = msgspec.json.Encoder(order="deterministic")
    return b"".join(encoder.encode(row) + b"\n" for row in rows)


def funnel_counts(rows: Iterable[AuditRow]) -> dict[str, int]:
    """Commits by first failed criterion, in the criteria's order, every criterion named; then
    ``candidate``. The values add up to the number of walked commits."""
    counted = Counter(row.criterion or "candidate" for row in rows)
    return {name: counted[name] for name in (*STATIC_CRITERIA, "candidate")}


FileChange = Literal["dependency", "documentation", "generated", "formatting", "code", "other"]


@dataclass(frozen=True)
class ChangedFile:
    path: str
    old: Entry | None
    new: Entry | None
    file_class: FileClass

    @property
    def is_hidden(self) -> bool:
        return self.file_class in HIDDEN

    @property
    def is_production(self) -> bool:
        return self.file_class == "production"


def changed_files(
    room: IsolatedRepository, classifier: Classifier, changes: TreeChanges
) -> tuple[ChangedFile, ...]:
    """Classify the paths of a change, sorted by path bytes. Raises UnreadableObject."""
    found = []
    for path, (old, new) in changes.items():
        entry = new or old
        header = b""
        if entry and entry.mode.startswith("100") and classifier.is_source(path):
            header = room.trees.blob(entry.oid)
        found.append(ChangedFile(path, old, new, classifier.classify(path, header)))
    return tuple(found)


ProductionImage = frozenset[tuple[str, Entry | None]]


def production_images(files: Iterable[ChangedFile]) -> tuple[ProductionImage, ProductionImage]:
    """The production files of a change before and after it."""
    production = [file for file in files if file.is_production]
    return (
        frozenset((file.path, file.old) for file in production),
        frozenset((file.path, file.new) for file in production),
    )


@dataclass(frozen=True)
class Halves:
    """The two patches of a commit, where it has both, and the trees they lead to."""

    gold_patch: bytes
    hidden_patch: bytes


@dataclass(frozen=True)
class Assessment:
    row: AuditRow
    files: tuple[ChangedFile, ...]
    halves: Halves | None


def assess(
    room: IsolatedRepository,
    classifier: Classifier,
    rules: TaskRules,
    platform: Platform,
    commit: Commit,
    base: Commit,
    files: tuple[ChangedFile, ...],
    restored: str,
    patches: dict[str, str],
) -> Assessment:
    """Evaluate every static criterion on a commit whose objects are all there.

    ``restored`` names the ancestor whose production files this commit puts back (empty: none);
    ``patches`` maps the identity of each gold patch seen so far to its commit and is added to.
    Raises :class:`UnreadableObject` for a damaged blob.
    """
    reasons: dict[str, str] = {}
    production = [file for file in files if file.is_production]
    hidden = [file for file in files if file.is_hidden]
    retained = [*production, *hidden]
    numbers, selectable = _count(room, classifier, platform, base, commit, files)

    if not files:
        reasons["empty"] = "the tree is that of the first parent"

    why = _revert_reason(commit, restored)
    if why:
        reasons["revert"] = why

    # What a task could consist of decides, and of test infrastructure only its code (a formatter's
    # new options in tox.ini come with what it formatted); where there is nothing, all files do.
    decisive = [
        file
        for file in retained
        if file.file_class != "infrastructure" or classifier.is_source(file.path)
    ]
    kinds = Counter(
        _file_change(room, classifier.language, file) for file in decisive or retained or files
    )
    seen = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    if files and set(kinds) == {"dependency"}:
        reasons["dependency_only"] = seen
    if files and kinds["documentation"] and set(kinds) <= {"documentation", "formatting"}:
        reasons["documentation_only"] = seen
    if files and set(kinds) == {"generated"}:
        reasons["generated_only"] = seen
    if files and set(kinds) == {"formatting"}:
        reasons["formatting_only"] = seen

    if numbers.production_source_files == 0:
        resources = numbers.production_files
        reasons["no_production_file"] = f"0 source files ({resources} resources of packages)"
    if not any(file.file_class == "test" for file in files):
        reasons["no_test_file"] = f"0 test files ({len(hidden)} test-infrastructure files)"
    if not selectable:
        reasons["no_selectable_test"] = (
            f"0 changed test files of gold lie beneath {', '.join(classifier.test_roots)}"
        )
    for name, number, limit in (
        ("too_many_production_files", numbers.production_files, rules.max_production_files),
        ("too_many_test_files", numbers.test_files, rules.max_test_files),
        ("too_many_production_lines", numbers.production_lines, rules.max_production_lines),
    ):
        if number > limit:
            reasons[name] = f"{number} > {limit}"

    gold_updates = {file.path: file.new for file in production}
    hidden_updates = {file.path: file.new for file in hidden}
    trees = room.trees
    gold_patch = b""
    if production:
        gold_tree = trees.write(base.tree, gold_updates)
        gold_patch = halves.make_patch(room, base.tree, gold_tree)
        identity = halves.patch_identity(gold_patch)
        newer = patches.setdefault(identity, commit.oid)
        if newer != commit.oid:
            reasons["duplicate"] = f"the gold patch is that of {newer[:12]}"

    why = _mixed_reason(room, files, commit.tree)
    if why:
        reasons["mixed"] = why

    made: Halves | None = None
    if production and hidden:
        overlap = _overlap([file.path for file in production], [file.path for file in hidden])
        if overlap:
            reasons["patches_not_disjoint"] = overlap
        hidden_tree = trees.write(base.tree, hidden_updates)
        # Built from the base in one step, so that it does not depend on the order of the halves.
        both_tree = trees.write(base.tree, gold_updates | hidden_updates)
        hidden_patch = halves.make_patch(room, base.tree, hidden_tree)
        fault = halves.application_fault(
            room, base.tree, gold_patch, hidden_patch, (gold_tree, hidden_tree, both_tree)
        )
        if fault:
            reasons["patch_does_not_apply"] = fault
        made = Halves(gold_patch, hidden_patch)

    row = audit_row(commit, reasons, numbers, files)
    return Assessment(row=row, files=files, halves=made)


def audit_row(
    commit: Commit,
    reasons: Mapping[str, str],
    numbers: Numbers,
    files: Iterable[ChangedFile] = (),
) -> AuditRow:
    """The row of a commit that fails the criteria in ``reasons``."""
    failed = tuple(name for name in STATIC_CRITERIA if name in reasons)
    classes = Counter(file.file_class for file in files)
    return AuditRow(
        commit=commit.oid,
        parent=commit.parent or "",
        date=commit.date,
        subject=commit.subject,
        merge=len(commit.parents) > 1,
        verdict="rejected" if failed else "candidate",
        criterion=failed[0] if failed else "",
        failed=failed,
        reasons={name: reasons[name] for name in failed},
        numbers=numbers,
        classes={str(name): count for name, count in sorted(classes.items())},
        dropped=tuple(
            display_path(file.path)
            for file in files
            if not file.is_production and not file.is_hidden
        ),
    )


def is_selectable(
    room: IsolatedRepository, classifier: Classifier, platform: Platform, path: str, entry: Entry
) -> bool:
    """Whether an arm may run this test file of a tree on the declared platform."""
    return classifier.is_selectable(path) and classifier.language.sources.built_for(
        path, _content(room, entry), platform
    )


def _count(
    room: IsolatedRepository,
    classifier: Classifier,
    platform: Platform,
    base: Commit,
    commit: Commit,
    files: tuple[ChangedFile, ...],
) -> tuple[Numbers, list[str]]:
    """A file counts where its old or its new path is of the class."""
    by_path = {file.path: file for file in files}
    counted = {"production": [0, 0], "hidden": [0, 0]}
    sources = 0
    retained = any(file.is_production or file.is_hidden for file in files)
    for entry in halves.count_lines(room, base.tree, commit.tree) if retained else ():
        sides = [by_path[path] for path in (entry.old_path, entry.new_path) if path in by_path]
        for name, applies in (
            ("production", any(side.is_production for side in sides)),
            ("hidden", any(side.is_hidden for side in sides)),
        ):
            counted[name][0] += applies
            counted[name][1] += entry.lines * applies
        sources += any(side.is_production and classifier.is_source(side.path) for side in sides)
    selectable = [
        file.path
        for file in files
        if file.new is not None and is_selectable(room, classifier, platform, file.path, file.new)
    ]
    numbers = Numbers(
        changed_paths=len(files),
        production_files=counted["production"][0],
        production_source_files=sources,
        production_lines=counted["production"][1],
        test_files=counted["hidden"][0],
        test_lines=counted["hidden"][1],
        selectable_tests=len(selectable),
    )
    return numbers, selectable


_REVERT_SUBJECT = re.compile(
    r"""^(reverts?\b"""
    # `feat: revert command` may add a command; quotes or a commit make it a revert.
    r"""|\w+(\([^)]*\))?!?:\s*reverts?\s+(["'“`]|commit\b|[0-9a-f]{7,40}\b)"""
    r"""|merge (branch|pull request)\b.*[/'"\s]revert-)""",
    re.IGNORECASE,
)
_REVERT_BODY = re.compile(
    r"^[^\S\n]*This reverts (commit|merge request) ", re.IGNORECASE | re.MULTILINE
)


def _revert_reason(commit: Commit, restored: str) -> str:
    if _REVERT_SUBJECT.match(commit.subject):
        return "the subject says so"
    if _REVERT_BODY.search(commit.message):
        return "the body says so"
    if restored:
        return f"restores the production files from before {restored[:12]}"
    return ""


def _file_change(room: IsolatedRepository, language: Language, file: ChangedFile) -> FileChange:
    """What kind of change a file has; for source code, by its syntax tree."""
    if file.file_class == "dependency":
        name = file.path.rpartition("/")[2]
        old, new = _content(room, file.old), _content(room, file.new)
        return "dependency" if language.only_dependencies(name, old, new) else "other"
    if file.file_class == "docs":
        return "documentation"
    if file.file_class == "generated":
        return "generated"
    if not file.is_production and not file.is_hidden:
        return "other"
    same_mode = file.old is not None and file.new is not None and file.old.mode == file.new.mode
    if not same_mode or not file.path.endswith(language.files.source_suffixes):
        return "code"
    return language.sources.change_kind(_content(room, file.old), _content(room, file.new))


def _content(room: IsolatedRepository, entry: Entry | None) -> bytes:
    return room.trees.blob(entry.oid) if entry and entry.mode.startswith("100") else b""


def _mixed_reason(room: IsolatedRepository, files: Iterable[ChangedFile], gold_tree: str) -> str:
    """Changes that full files and a text diff cannot carry to every host alike."""
    found = []
    for file in files:
        modes = {entry.mode for entry in (file.old, file.new) if entry}
        retained = file.is_production or file.is_hidden
        if "160000" in modes:
            found.append(f"submodule {display_path(file.path)}")
        elif "120000" in modes:
            found.append(f"symlink {display_path(file.path)}")
        elif file.old and file.new and file.old.oid == file.new.oid:
            found.append(f"mode-only {display_path(file.path)}")
        elif file.is_production and any(
            b"\0" in _content(room, entry) for entry in (file.old, file.new)
        ):
            found.append(f"binary {display_path(file.path)}")
        elif retained and _unsafe_name(file.path):
            found.append(f"unsafe name {display_path(file.path)}")
    retained_paths = [
        file.path for file in files if file.new and (file.is_production or file.is_hidden)
    ]
    found.extend(_case_collisions(room, retained_paths, gold_tree))
    return "; ".join(found[:5]) + (f"; {len(found) - 5} more" if len(found) > 5 else "")


def _unsafe_name(path: str) -> bool:
    """Names that some file system cannot hold as they are, and every spelling of ``.git``."""
    return unsafe_reason(path) != "" or not path.isprintable() or len(path.encode()) > 1_024


def _case_collisions(room: IsolatedRepository, paths: Iterable[str], gold_tree: str) -> list[str]:
    """Of ``paths``, those that a case-insensitive file system takes for another path of gold."""
    found = []
    for path in paths:
        tree, prefix = gold_tree, ""
        for part in path.split("/"):
            entries = room.trees.entries(tree)
            same = [name for name in entries if _fold(name) == _fold(part)]
            if len(same) > 1:
                found.append(f"case collision {display_path(prefix + part)}")
                break
            tree, prefix = entries[part].oid, f"{prefix}{part}/"
    return found


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _overlap(production: list[str], hidden: list[str]) -> str:
    """A path of one half that is, or lies beneath, a path of the other."""
    for left, right in ((production, hidden), (hidden, production)):
        taken = {path.casefold() for path in right}
        for path in left:
            parts = path.casefold().split("/")
            for end in range(1, len(parts) + 1):
                if "/".join(parts[:end]) in taken:
                    return f"{display_path(path)} meets a path of the other half"
    return ""
