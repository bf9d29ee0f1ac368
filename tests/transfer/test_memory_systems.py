"""What every memory under test promises: snapshot and restore by digest, ids of what is seeded."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors.memory_systems.contract import CaseFolders, MemorySystem, Opening, asked
from actors.memory_systems.folder import folder_name
from actors.memory_systems.kept_folder import KeptFolder
from actors.memory_systems.registry import open_memory
from ledger.errors import Refused
from schemas.transfer.correction import Session
from schemas.transfer.rendering import is_intact
from schemas.transfer.study import Memory

SESSION = Session(
    principal="role:a", project="alder", task_class="report", now="2026-07-01T09:00:00Z"
)


def text(number: int, project: str = "alder", decision: str = "a") -> str:
    return (
        f"Correction CT-{number} (procedure)\nMeaning: Alder reports use ledger {number}.\n"
        f"Holds for: principal role:a; project {project}; task classes report\n"
        f"Valid: from 2026-01-01T00:00:00Z without an end\nReplaces: nothing\n"
        f"Decision: {decision}\nAction: write it\nMark: 0123456789abcdef"
    )


KINDS = [
    Memory(id="full", kind="store", policy="full"),
    Memory(id="everything", kind="store", policy="everything"),
    Memory(id="claude", kind="folder", layout="CLAUDE.md"),
    Memory(id="agents", kind="folder", layout="AGENTS.md"),
]


@pytest.fixture
def folders(tmp_path: Path) -> CaseFolders:
    made = CaseFolders(tmp_path / "case")
    made.create()
    return made


def opened(memory: Memory, folders: CaseFolders) -> MemorySystem:
    return open_memory(memory, Opening(folders, 10.0))


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.id)
def test_what_is_seeded_is_there_intact_under_its_ids(memory: Memory, folders: CaseFolders) -> None:
    system = opened(memory, folders)
    texts = {"CT-1": text(1), "U-1": text(2, project="birch"), "CT-3": text(3)}
    ids = system.seed(texts)
    taken = system.snapshot()
    assert list(ids) == list(texts)
    assert taken.items is not None and len(taken.items) == 3
    stored = {item.id: item.text for item in taken.items}
    for key, store_ids in ids.items():
        assert any(is_intact(texts[key], stored[store_id]) for store_id in store_ids)


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.id)
def test_a_store_is_restored_by_its_digest(memory: Memory, folders: CaseFolders) -> None:
    system = opened(memory, folders)
    system.seed({"CT-1": text(1)})
    before = system.snapshot()
    assert system.remember("Alder reports use the sheet.", SESSION).acknowledged
    after = system.snapshot()
    assert before.digest != after.digest
    system.restore(before.digest)
    assert system.snapshot() == before
    system.restore(after.digest)
    assert system.snapshot() == after
    for unknown in ("0" * 64, "", "../store.jsonl"):
        with pytest.raises(LookupError, match="snapshot"):
            system.restore(unknown)


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.id)
def test_nothing_but_the_store_carries_over_and_everything_in_it_does(
    memory: Memory, folders: CaseFolders
) -> None:
    first = opened(memory, folders)
    first.seed({"CT-1": text(1)})
    first.remember("Alder reports use the sheet.", SESSION)
    taken = first.snapshot()
    first.close()
    again = opened(memory, folders)
    assert again.snapshot() == taken
    assert again.seed({"CT-2": text(2)})["CT-2"] not in {(item.id,) for item in taken.items or ()}


@pytest.mark.parametrize("memory", KINDS, ids=lambda memory: memory.id)
def test_a_manifest_names_the_layers_of_its_half(memory: Memory, folders: CaseFolders) -> None:
    manifest = opened(memory, folders).manifest()
    assert set(manifest.layers) == {
        "representation",
        "indexing",
        "query",
        "relevance_filter",
        "conflict_policy",
    }
    assert manifest == opened(memory, folders).manifest()


def layers(folders: CaseFolders, **settings: object) -> dict[str, str]:
    memory = Memory(id="m", kind="store", **settings)  # type: ignore[arg-type]
    return opened(memory, folders).manifest().layers


def test_one_setting_changes_one_layer(folders: CaseFolders) -> None:
    base = layers(folders, policy="full")
    for settings, layer in (({"query": "project"}, "query"), ({"results": 9}, "indexing")):
        changed = layers(folders, policy="full", **settings)
        assert [name for name in base if base[name] != changed[name]] == [layer]


def test_the_query_policy_decides_what_is_asked(folders: CaseFolders) -> None:
    assert asked("prompt", "which?", SESSION) == "which?"
    assert asked("project", "which?", SESSION) == "alder"
    assert asked("everything", "which?", SESSION) == ""
    memory = Memory(id="m", kind="store", policy="retrieval", query="project")
    system = opened(memory, folders)
    system.seed({"CT-1": text(1), "CT-2": "nothing of the kind"})
    found = system.recall("sheet", SESSION)
    assert (found.query, len(found.items)) == ("alder", 1)


def test_only_the_full_policy_heeds_that_something_is_not_to_be_kept(
    folders: CaseFolders,
) -> None:
    said = "For this session only: the code is blue."
    answer = opened(KINDS[0], folders).remember(said, SESSION)
    assert (answer.acknowledged, "not to be kept" in answer.text) == (False, True)
    assert opened(KINDS[0], folders).snapshot().items == ()
    assert opened(KINDS[1], folders).remember(said, SESSION).acknowledged


def test_a_folder_loads_what_lies_above_the_project_and_nothing_beside_it(
    folders: CaseFolders,
) -> None:
    system = opened(KINDS[2], folders)
    ids = system.seed({"a": text(1), "b": text(2, project="birch"), "c": text(3, project="*")})
    found = system.recall("anything", SESSION)
    assert [item.id for item in found.items] == [*ids["c"], *ids["a"]]
    assert (found.admitted, found.query) == (None, "all loaded files")
    tree = folders.store / "tree"
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.md")) == [
        "CLAUDE.md",
        "alder/CLAUDE.md",
        "birch/CLAUDE.md",
    ]


def test_a_projects_name_is_no_path(folders: CaseFolders) -> None:
    system = opened(KINDS[2], folders)
    hostile = Session(
        principal="a", project="../../../etc", task_class="t", now="2026-07-01T09:00:00Z"
    )
    system.remember("x", hostile)
    system.remember("y", Session(principal="a", project="..", task_class="t", now=SESSION.now))
    assert {path.parent.parent for path in (folders.store / "tree").rglob("*.md")} == {
        folders.store / "tree"
    }
    assert folders.strangers() == ()


def test_what_lies_beside_the_cases_own_folders_is_named(folders: CaseFolders) -> None:
    (folders.work / "own").write_text("fine")
    (folders.root / "elsewhere").write_text("not fine")
    assert folders.strangers() == ("elsewhere",)
    with pytest.raises(FileExistsError):
        folders.create()


def test_a_kind_that_is_not_built_in_is_refused(folders: CaseFolders) -> None:
    from actors.memory_systems import registry

    memory = Memory(id="m", kind="store")
    assert open_memory(memory, Opening(folders, 1.0)).capabilities.store == "readable"
    unknown = Memory(id="m", kind="nowhere")  # type: ignore[arg-type]
    with pytest.raises(Refused, match=f"there are: {', '.join(sorted(registry.KINDS))}"):
        open_memory(unknown, Opening(folders, 1.0))


PROJECTS = [
    "team/x", "team_x", "team%2Fx", "CLAUDE.md", "%43LAUDE.md", ".", "..", ".hidden", "hidden", "",
    "a" * 300, "a" * 301, "größe", "gr%C3%B6%C3%9Fe", "a b", "a_b",
]  # fmt: skip


def test_no_two_projects_share_a_folder_and_none_is_a_path() -> None:
    names = [folder_name(project, "CLAUDE.md") for project in PROJECTS]
    assert len(set(names)) == len(PROJECTS)
    assert all(name and "/" not in name and name[0] != "." for name in names)
    assert "CLAUDE.md" not in names and max(map(len, names)) <= 200
    assert folder_name("halyard", "CLAUDE.md") == "halyard", "a usual name is its own"


def test_a_project_that_is_named_like_the_file_at_the_top_has_a_folder(
    folders: CaseFolders,
) -> None:
    system = opened(Memory(id="claude", kind="folder", layout="CLAUDE.md"), folders)
    session = Session(
        principal="role:x", project="CLAUDE.md", task_class="t", now="2026-07-01T09:00:00Z"
    )
    assert system.remember("for this project", session).acknowledged
    other = msgspec.structs.replace(session, project="other")
    assert "for this project" in system.recall("", session).items[0].text
    assert system.recall("", other).items == ()


@pytest.mark.parametrize(
    ("write", "alone"),
    [
        (lambda live: (live / "notes").write_text("more"), True),
        (lambda live: (live / "other.txt").write_text("more"), False),
        (lambda live: (live / ".h").write_text("more"), False),
        (lambda live: (live / "use the vault").mkdir(), False),
    ],
)
def test_a_kept_folder_shows_whether_a_file_is_all_that_lies_in_it(
    tmp_path: Path, write: Callable[[Path], object], alone: bool
) -> None:
    kept = KeptFolder(tmp_path)
    (kept.live / "notes").write_text("one")
    before = kept.keep()
    assert kept.holds_only("notes")
    write(kept.live)
    assert kept.holds_only("notes") is alone
    changed = kept.keep()
    assert changed != before
    kept.restore(changed)
    assert kept.keep() == changed


def test_nothing_but_what_files_say_carries_over(tmp_path: Path) -> None:
    """What is taught could be written into the target of a link, a time or a mode."""
    kept = KeptFolder(tmp_path)
    note = kept.live / "notes"
    note.write_text("one")
    before = kept.keep()
    (kept.live / "link").symlink_to("use the vault")
    assert kept.keep() != before
    (kept.live / "link").unlink()
    assert kept.keep() == before
    (kept.live / "link").symlink_to("use the vault")
    note.chmod(0o751)
    for path in (note, kept.live):
        os.utime(path, (12_345, 12_345))
    reopened = KeptFolder(tmp_path)
    assert reopened.keep() == before
    assert [path.name for path in reopened.live.iterdir()] == ["notes"]
    assert note.stat().st_mode & 0o777 != 0o751
    assert 12_345 not in (note.stat().st_mtime, kept.live.stat().st_mtime)
