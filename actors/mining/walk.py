"""The static funnel: from a repository's history to candidates and an audit row a commit.

Deterministic, offline and blind to outcomes: a function of repository, head, rules, platform and
texts. It runs no test; that is :mod:`actors.mining.validation`.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.languages.classifier import Classifier, classifier, is_text
from actors.languages.registry import LANGUAGES
from actors.mining import statements
from actors.mining.criteria import (
    Assessment,
    AuditRow,
    ChangedFile,
    Numbers,
    ProductionImage,
    assess,
    audit_row,
    changed_files,
    is_selectable,
    production_images,
)
from actors.mining.descriptors import LanguageCount, TreeFacts, needed_gold_symbols, size
from actors.mining.halves import full_files
from actors.mining.history import (
    Commit,
    IsolatedRepository,
    Walk,
    first_parent_walk,
    isolated_repository,
    read_commit,
)
from actors.mining.statements import Statement
from actors.mining.trees import TREE_MODE, UnreadableObject
from actors.test_runs.overlays import folders_of
from harnesses.retrieval.snapshot import display_path
from ledger.errors import Usage
from schemas.repair.overlay import Changes
from schemas.repair.study import Platform, Repository, TaskRules
from schemas.repair.task import Size


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A commit that passes every static criterion: what ``schemas.repair.task.Task`` needs except
    for executed results, with contents as bytes."""

    repository: str
    commit: str
    base: str
    base_tree: str
    gold_tree: str
    committed: str
    """Committer date, RFC 3339 in UTC."""
    statement: Statement
    production_paths: tuple[str, ...]
    test_paths: tuple[str, ...]
    changed_production_lines: int
    gold: Changes
    gold_patch: bytes
    hidden: Changes
    hidden_patch: bytes
    protected_paths: tuple[str, ...]
    """Every test, test-infrastructure and dependency path of base or gold, sorted; without those
    that are not UTF-8, which no edit can name."""
    dropped_paths: tuple[str, ...]
    """Changed paths in neither half, sorted."""
    package_roots: tuple[str, ...]
    """Folders of the base tree with production code, sorted."""
    base_test_files: tuple[str, ...]
    """Selectable test files of the base tree, sorted."""
    hidden_test_files: tuple[str, ...]
    """Selectable test files of the hidden half that gold holds, sorted."""
    removed_test_files: tuple[str, ...]
    """Selectable test files that the hidden half deletes, sorted."""
    unchanged_tests: frozenset[str]
    """``path::name`` of every test function in changed test files whose body gold leaves as it is;
    parameters are not part of a name."""
    known_tests: frozenset[str]
    """``path::name`` of every function that the changed test files of gold define."""
    needs_gold_symbol: int
    size: Size
    languages: dict[str, LanguageCount]


@dataclass(frozen=True)
class Mined:
    rows: tuple[AuditRow, ...]
    """One for every walked commit, newest to oldest."""
    candidates: tuple[Candidate, ...]
    """In the same order: tasks are numbered by it."""


def mine(
    repository_path: Path,
    repository: Repository,
    rules: TaskRules,
    platform: Platform,
    texts: Mapping[str, str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Mined:
    """Walk the first-parent history of ``repository.head`` and judge every commit.

    ``texts`` maps a full commit id to its issue or merge-request text (first line: the title);
    commits without one use their message. ``platform`` decides which tests are selectable in
    languages with build constraints. ``progress`` is called with the commits done
    and the commits to do, at the start and after each.

    Raises Usage where the repository cannot be mined at all.
    """
    with isolated_repository(repository_path) as room:
        walk = first_parent_walk(
            room,
            repository.head,
            not_before=rules.not_before,
            older_commits_in_a_row=rules.older_commits_in_a_row,
            revert_window=rules.revert_window,
        )
        _require_layout(room, repository, walk)
        classifiers = _Classifiers(room, repository)
        if not classifiers.of(walk.visited[0].tree).package_roots:
            raise Usage(
                f"repository {repository.id}: no package root was found at the head; "
                "name the folders of its production code in `layout.package_roots`"
            )
        facts = TreeFacts(room.trees)
        prepared = _prepare(room, walk, classifiers, progress)
        restored = _restored(walk, prepared, rules.revert_window)
        rows: list[AuditRow] = []
        candidates: list[Candidate] = []
        patches: dict[str, str] = {}
        total = len(walk.visited) + len(walk.commits)
        for commit in walk.commits:
            ready = prepared[commit.oid]
            if isinstance(ready, str):
                criterion = "root_commit" if commit.parent is None else "object_missing"
                rows.append(audit_row(commit, {criterion: ready}, Numbers()))
            else:
                try:
                    found = assess(
                        room,
                        ready.classes,
                        rules,
                        platform,
                        commit,
                        ready.base,
                        ready.files,
                        restored.get(commit.oid, ""),
                        patches,
                    )
                    if found.row.verdict == "candidate":
                        text = texts.get(commit.oid, commit.message)
                        candidates.append(
                            _candidate(
                                room,
                                repository.id,
                                rules,
                                platform,
                                facts,
                                commit,
                                ready,
                                found,
                                text,
                            )
                        )
                    rows.append(found.row)
                except UnreadableObject as error:
                    rows.append(audit_row(commit, {"object_missing": str(error)}, Numbers()))
            progress(len(walk.visited) + len(rows), total)
    return Mined(rows=tuple(rows), candidates=tuple(candidates))


def _require_layout(room: IsolatedRepository, repository: Repository, walk: Walk) -> None:
    """Raises Usage for a declared path that no walked commit has: a misspelt one would turn
    every commit away for a reason that names something else.

    A repository without any test file may name what it likes as ``test_roots``: it has no task
    anyway, and the audit says why.
    """
    layout, head = repository.layout, walk.visited[0]
    try:
        room.trees.count_paths(head.tree)
    except UnreadableObject:
        return  # the audit says so
    files = [path for path in room.trees.files(head.tree) if is_text(path)]
    classes = LANGUAGES[repository.language].files
    folders = sorted({folder for path in files for folder in folders_of(path)})
    tests = sorted(
        {path.rpartition("/")[0] or "." for path in files if classes.is_test_name(path)},
        key=lambda folder: (folder.count("/"), folder),
    )
    for key, paths, kind, known in (
        ("package_roots", layout.package_roots, "folder", folders),
        ("test_roots", layout.test_roots, "folder", folders),
        ("requirements", layout.requirements, "file", files),
    ):
        for number, declared in enumerate(paths):
            path = declared.strip("/")
            if any(_has(room, commit.tree, path, kind) for commit in walk.visited):
                continue
            if key == "test_roots" and not tests:
                continue
            near = difflib.get_close_matches(path, known, n=3)
            name = path.rpartition("/")[2]
            near += [one for one in known if one.rpartition("/")[2] == name and one not in near][:3]
            if key == "test_roots":
                near += [folder for folder in tests if folder not in near][:3]
            there = f"; near it: {', '.join(map(display_path, near))}" if near else ""
            raise Usage(
                f"repository {repository.id}: layout.{key}[{number}]: no {kind} "
                f"{display_path(declared)} at {head.oid[:12]}, nor at any commit that is walked"
                f"{there}"
            )


def _has(room: IsolatedRepository, tree: str, path: str, kind: str) -> bool:
    *above, last = path.split("/")
    try:
        for part in above:
            entry = room.trees.entries(tree).get(part)
            if entry is None or entry.mode != TREE_MODE:
                return False
            tree = entry.oid
        found = room.trees.entries(tree).get(last)
    except UnreadableObject:
        return False
    return found is not None and (found.mode == TREE_MODE) == (kind == "folder")


class _Classifiers:
    """One classifier a tree where package roots are derived, else one for all."""

    def __init__(self, room: IsolatedRepository, repository: Repository) -> None:
        self._room = room
        self._repository = repository
        self._fixed = classifier(repository) if repository.layout.package_roots else None

    def of(self, *trees: str) -> Classifier:
        """For what all ``trees`` hold together: a change may move the package."""
        if self._fixed is not None:
            return self._fixed
        paths = [path for tree in trees for path in self._room.trees.shallow_paths(tree, depth=3)]
        return classifier(self._repository, paths)


@dataclass(frozen=True)
class _Prepared:
    base: Commit
    base_roots: tuple[str, ...]
    classes: Classifier
    files: tuple[ChangedFile, ...]


def _prepare(
    room: IsolatedRepository,
    walk: Walk,
    classifiers: _Classifiers,
    progress: Callable[[int, int], None],
) -> dict[str, _Prepared | str]:
    """The classified change of every visited commit, or why there is none."""
    prepared: dict[str, _Prepared | str] = {}
    total = len(walk.visited) + len(walk.commits)
    for done, commit in enumerate(walk.visited):
        progress(done, total)
        try:
            if commit.parent is None:
                raise UnreadableObject("a root commit has no base")
            base = read_commit(room, commit.parent)
            room.trees.count_paths(base.tree)
            room.trees.count_paths(commit.tree)
            classes = classifiers.of(base.tree, commit.tree)
            changes = room.trees.changes(base.tree, commit.tree)
            files = changed_files(room, classes, changes)
            prepared[commit.oid] = _Prepared(
                base, classifiers.of(base.tree).package_roots, classes, files
            )
        except UnreadableObject as error:
            prepared[commit.oid] = str(error)
    progress(len(walk.visited), total)
    return prepared


def _restored(walk: Walk, prepared: Mapping[str, _Prepared | str], window: int) -> dict[str, str]:
    """Commits that put back the production files that an ancestor found: commit → ancestor.

    The nearest such ancestor within ``window`` first-parent steps.
    """
    restored: dict[str, str] = {}
    last_seen: dict[ProductionImage, tuple[int, str]] = {}
    # From old to new, so that the last commit seen with a pre-image is the nearest ancestor.
    for step, commit in enumerate(reversed(walk.visited)):
        ready = prepared[commit.oid]
        if isinstance(ready, str):
            continue
        before, after = production_images(ready.files)
        if not before:
            continue
        if after in last_seen:
            ancestor_step, ancestor = last_seen[after]
            if step - ancestor_step <= window:
                restored[commit.oid] = ancestor
        last_seen[before] = (step, commit.oid)
    return restored


def _candidate(
    room: IsolatedRepository,
    repository: str,
    rules: TaskRules,
    platform: Platform,
    facts: TreeFacts,
    commit: Commit,
    ready: _Prepared,
    found: Assessment,
    text: str,
) -> Candidate:
    if found.halves is None:
        raise AssertionError("a candidate has both halves")
    trees, classes, language = room.trees, ready.classes, ready.classes.language
    base_files, gold_files = trees.files(ready.base.tree), trees.files(commit.tree)
    production = [file for file in found.files if file.is_production]
    hidden = [file for file in found.files if file.is_hidden]
    gold_set = full_files(trees, {file.path: file.new for file in production})
    hidden_set = full_files(trees, {file.path: file.new for file in hidden})
    gold_facts = statements.gold_facts(
        language,
        production=[(file.path, file.content) for file in gold_set.write],
        hidden=[(file.path, file.content) for file in hidden_set.write],
        deleted=[*gold_set.delete, *hidden_set.delete],
        patches=[found.halves.gold_patch, found.halves.hidden_patch],
        base_tokens=facts.tokens(base_files.values()),
    )
    unchanged, known = set(), set()
    hidden_tests = [
        file
        for file in hidden_set.write
        if classes.is_selectable(file.path)
        and language.sources.built_for(file.path, file.content, platform)
    ]
    for file in hidden_tests:
        after = language.sources.test_functions(file.content)
        known |= {f"{file.path}::{name}" for name in after}
        if file.path in base_files and base_files[file.path].mode.startswith("100"):
            before = language.sources.test_functions(trees.blob(base_files[file.path].oid))
            unchanged |= {
                f"{file.path}::{name}" for name in after if before.get(name) == after[name]
            }
    languages = facts.languages(base_files)
    needed = needed_gold_symbols(gold_facts, [file.content for file in hidden_set.write])
    statement = statements.write_statement(text, gold_facts)
    if rules.interface_line:
        statement = statements.with_interface_line(
            statement, language, needed, [file.content for file in gold_set.write]
        )
    return Candidate(
        repository=repository,
        commit=commit.oid,
        base=ready.base.oid,
        base_tree=ready.base.tree,
        gold_tree=commit.tree,
        committed=commit.date,
        statement=statement,
        production_paths=tuple(file.path for file in production),
        test_paths=tuple(file.path for file in hidden),
        changed_production_lines=found.row.numbers.production_lines,
        gold=gold_set,
        gold_patch=found.halves.gold_patch,
        hidden=hidden_set,
        hidden_patch=found.halves.hidden_patch,
        protected_paths=tuple(
            path
            for path in sorted({*base_files, *gold_files}, key=_path_bytes)
            if is_text(path) and classes.classify(path) in ("test", "infrastructure", "dependency")
        ),
        dropped_paths=tuple(
            file.path for file in found.files if not file.is_production and not file.is_hidden
        ),
        package_roots=ready.base_roots,
        base_test_files=tuple(
            path
            for path, entry in base_files.items()
            if is_selectable(room, classes, platform, path, entry)
        ),
        hidden_test_files=tuple(file.path for file in hidden_tests),
        removed_test_files=tuple(path for path in hidden_set.delete if classes.is_selectable(path)),
        unchanged_tests=frozenset(unchanged),
        known_tests=frozenset(known),
        needs_gold_symbol=len(needed),
        size=size(languages, language.id),
        languages=languages,
    )


def _path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
