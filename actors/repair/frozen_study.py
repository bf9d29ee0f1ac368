"""The frozen study in the hands of a worker: study, tasks, plan, base trees.

Everything comes from the log and its artifacts. The repositories that were mined are not needed any
more and not looked at: base trees come from the frozen packs, which hold nothing but base trees, so
no future object is in any place that a cell or a test run could reach.
"""

import copy
import fcntl
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from actors.languages.classifier import Classifier, classifier
from actors.languages.contract import Language
from actors.languages.registry import LANGUAGES
from actors.loop import Context
from actors.repair.components import components
from actors.study.frozen_study import FrozenStudy
from actors.test_runs.git_trees import SnapshotFile, read_snapshot
from actors.test_runs.object_stores import check_store, import_pack
from actors.test_runs.templates import make_template
from harnesses.retrieval.index import CommitIndex, index_in_memory
from harnesses.retrieval.snapshot import FileMode, Snapshot, snapshot, snapshot_file
from ledger.errors import Refused
from ledger.regular_file import open_lock
from schemas.base import ArtifactRef
from schemas.events.study import (
    AmendmentRecorded,
    StudyFrozen,
    TasksFrozen,
)
from schemas.repair.study import RepairStudy
from schemas.repair.task import Task
from schemas.study import of_kind
from schemas.study_file import parse_study

BASE_TREES_KEPT = 2


@dataclass(frozen=True)
class BaseTree:
    """A task's base tree in memory."""

    entries: Sequence[SnapshotFile]
    """As git holds them, links and submodules included."""
    snapshot: Snapshot
    """As arms see it: every file with its class."""
    classifier: Classifier


class FrozenRepair(FrozenStudy[RepairStudy]):
    """A frozen repair study. Raises Refused where an amendment took away what cells need."""

    def __init__(self, context: Context) -> None:
        super().__init__(RepairStudy, context, components)
        self.tasks: dict[str, Task] = self.progress.tasks
        self.planned = frozenset(self.progress.cells)
        """Names of all planned cells."""
        missing = self.study.undeclared([cell.cell for cell in self.progress.cells.values()])
        if missing:
            raise Refused(
                "an amendment has taken away what planned cells need "
                f"({'; '.join(missing)}): put it back into study.toml and `ledger amend` again"
            )
        self._studies = [
            (fact.seq, fact.event.study)
            for fact in self.facts
            if isinstance(fact.event, StudyFrozen | AmendmentRecorded)
        ]
        self._packs: dict[str, ArtifactRef] = {}
        for fact in self.facts:
            if isinstance(fact.event, TasksFrozen):
                self._packs = fact.event.packs
        self._base_trees: OrderedDict[str, BaseTree] = OrderedDict()
        self._indexes: OrderedDict[str, CommitIndex] = OrderedDict()
        self._checked_stores: set[Path] = set()

    def as_of(self, seq: int) -> "FrozenRepair":
        """The same with ``study`` and components as they stood at record ``seq``. A cell's attempt
        has the budgets and the model that it began with, whatever has been amended since: only so
        is what it was charged and asked the same again."""
        stood = self.event.study
        for at, study in self._studies:
            stood = study if at <= seq else stood
        earlier = copy.copy(self)
        earlier._seq = seq
        earlier.study = of_kind(RepairStudy, parse_study(self.context.artifacts.get(stood)))
        return earlier

    def language(self, task: Task) -> Language:
        return LANGUAGES[self.study.repository(task.repository).language]

    def base_store(self, repository: str) -> Path:
        """The bare object store with the repository's base trees; made from the frozen pack when
        it is not there yet. Every worker checks it once: its name proves nothing."""
        pack = self._packs.get(repository)
        if pack is None:
            raise Refused(f"no base trees of repository {repository} were frozen")
        templates = self.context.directory.templates
        templates.mkdir(parents=True, exist_ok=True)
        store = templates / f"{repository}-{pack.digest[:16]}.git"
        with open_lock(templates / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not store.exists():
                import_pack(self.context.artifacts.get(pack), store)
            elif store not in self._checked_stores:
                check_store(store)
            self._checked_stores.add(store)
        return store

    def template(self, task: Task) -> Path:
        """A work tree of the task's base, to be copied for every test run."""
        store = self.base_store(task.repository)
        with open_lock(self.context.directory.templates / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return make_template(store, task.base_tree, self.context.directory.templates)

    def base(self, task: Task) -> BaseTree:
        """The base tree in memory; the last few are kept."""
        found = self._base_trees.get(task.base_tree)
        if found is None:
            entries = read_snapshot(self.base_store(task.repository), task.base_tree)
            names = [entry.path.decode("utf-8", "surrogateescape") for entry in entries]
            rules = classifier(self.study.repository(task.repository), names)
            files = [
                snapshot_file(
                    name,
                    msgspec.convert(entry.mode, FileMode),
                    entry.content,
                    rules.classify(name, entry.content),
                )
                for name, entry in zip(names, entries, strict=True)
            ]
            found = self._base_trees[task.base_tree] = BaseTree(entries, snapshot(files), rules)
            while len(self._base_trees) > BASE_TREES_KEPT:
                self._base_trees.popitem(last=False)
        return found

    def index(self, task: Task) -> CommitIndex:
        """The index of the task's base tree; the last few are kept."""
        found = self._indexes.get(task.base_tree)
        if found is None:
            found = self._indexes[task.base_tree] = index_in_memory(self.base(task).snapshot)
            while len(self._indexes) > BASE_TREES_KEPT:
                self._indexes.popitem(last=False)
        return found

    def protected_paths(self, task: Task) -> frozenset[str]:
        """Paths closed to edits: tests, infrastructure and dependency files of base and gold."""
        content = self.context.artifacts.get(task.protected_paths)
        return frozenset(msgspec.json.decode(content, type=list[str]))

    def statement(self, task: Task) -> str:
        return self.context.artifacts.get(task.statement).decode()
