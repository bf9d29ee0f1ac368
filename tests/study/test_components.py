"""What a component consists of: nothing that decides a result escapes it, and what does not decide
one changes none."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from actors.languages.registry import LANGUAGES
from actors.repair.components import components as of_repair
from actors.repair.components import language
from actors.study.components import TABLES, Component, identity, modules_of
from actors.study.digests import PACKAGES, ROOT
from actors.transfer.components import MEMORIES
from actors.transfer.components import components as of_transfer
from schemas.study_file import parse_study

TEMPLATES = files("actors.rehearsal") / "templates"


def declared() -> Iterator[Component]:
    """The components of the studies that ship, and every memory, language and server beside."""
    for template in ("repair", "study-2"):
        yield from of_repair(parse_study((TEMPLATES / f"{template}.toml").read_bytes()))
    yield from of_transfer(parse_study((TEMPLATES / "transfer.toml").read_bytes()))
    for name, entries in MEMORIES.items():
        yield Component(name, entries)
    for name in LANGUAGES:
        yield language(name)
    for kind in ("llamacpp", "lmstudio", "openai"):
        yield Component(f"server {kind}", (f"actors.servers.{kind}",))


ALL = sorted(set(declared()), key=lambda component: (component.name, component.entry_points))
BY_NAME = {component.name: component for component in ALL}

DYNAMIC = ("import_module", "__import__", "entry_points", "run_module", "run_path", "exec", "eval")
DECLARED_DYNAMIC = {
    "ledger/cli/main.py",  # a command by its name; the command line is of no component
}


def test_nothing_is_imported_by_a_computed_name_but_where_it_is_declared() -> None:
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("actors/rehearsal/"):
            continue  # data of the example repository, and of no component
        for node in ast.walk(ast.parse(path.read_bytes())):
            called = node.func if isinstance(node, ast.Call) else None
            word = getattr(called, "attr", getattr(called, "id", ""))
            if word in DYNAMIC:
                found.add(name)
    assert found == DECLARED_DYNAMIC


@pytest.mark.parametrize("component", ALL, ids=lambda component: component.name)
def test_what_a_component_loads_lies_in_its_closure(component: Component) -> None:
    """A table's modules are components of their own: what they load is their matter."""
    entries = [name for name in component.entry_points if name not in STARTED_ELSEWHERE]
    code = (
        "import sys, importlib, json\n"
        f"before = set(sys.modules)\n"
        f"for name in {entries!r}: importlib.import_module(name)\n"
        f"ours = [m for m in set(sys.modules) - before if m.split('.')[0] in {PACKAGES}]\n"
        "print(json.dumps(ours))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    behind_tables = {m for table in TABLES for m in modules_of(Component(table, imported(table)))}
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded - behind_tables - set(TABLES) <= modules_of(component)


STARTED_ELSEWHERE = {
    "actors.languages.python.reporter",  # in the process of the tests, by pytest
    "actors.memory_systems.mem0_process",  # in a process of its own
    "actors.fixture.relay",
}


def imported(table: str) -> tuple[str, ...]:
    """The modules that a table lists."""
    tree = ast.parse((ROOT / f"{table.replace('.', '/')}.py").read_bytes())
    names = [
        f"{node.module}.{alias.name}" if is_module(f"{node.module}.{alias.name}") else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    ]
    return tuple(name for name in names if name.split(".")[0] in PACKAGES)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_the_kernel_holds_no_command_no_report_no_arm_and_no_rehearsal() -> None:
    for study in (of_repair, of_transfer):
        template = "repair" if study is of_repair else "transfer"
        parts = {
            c.name: c for c in study(parse_study((TEMPLATES / f"{template}.toml").read_bytes()))
        }
        names = modules_of(parts["kernel"])
        unwanted = ("ledger.cli", "actors.rehearsal", "projections.report", "harnesses.h0")
        assert not [name for name in names if name.startswith(unwanted)]
        assert {"actors.loop", "ledger.codec", "ledger.sqlite.log", "projections.progress"} <= names


def test_an_arm_holds_its_tools_and_prompts_and_no_other_arm() -> None:
    found = identity(BY_NAME["arm H000"])
    assert {
        "harnesses/__init__.py",
        "harnesses/contract.py",
        "harnesses/h000_exact_search.py",
        "harnesses/tools/search.py",
        "harnesses/prompts/h000_system.md",
    } <= found.files.keys()
    assert not [name for name in found.files if "h018" in name]
    assert {"google-re2", "msgspec"} <= found.libraries.keys()


def test_a_grader_of_python_rests_on_pytest() -> None:
    assert "pytest" in identity(BY_NAME["language python"]).libraries


# --- a copied installation, changed in one place --------------------------------------------------

LOOK = """
import json
from actors.study.components import Component, identity
from actors.repair.components import components
from importlib.resources import files
from schemas.study_file import parse_study
template = (files("actors.rehearsal") / "templates" / "repair.toml").read_bytes()
found = {c.name: identity(c) for c in components(parse_study(template))}
print(json.dumps({name: [each.digest, each.files] for name, each in found.items()}))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("installation")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return root


def digests(root: Path, *more_paths: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, *more_paths)))}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: digest for name, (digest, _) in json.loads(done.stdout).items()}


def changed(before: dict[str, str], after: dict[str, str]) -> Sequence[str]:
    return sorted(name for name in before.keys() | after.keys() if before[name] != after[name])


def test_what_decides_nothing_changes_no_component(copied: Path, tmp_path: Path) -> None:
    before = digests(copied)
    for folder in ("actors/__pycache__", "harnesses/.pytest_cache", ".mypy_cache", ".pytest_cache"):
        (copied / folder).mkdir(exist_ok=True)
        (copied / folder / "left.json").write_text("{}")
    (copied / "harnesses" / ".contract.py.swp").write_bytes(b"\x00")
    (copied / "harnesses" / "contract.py.swp").write_bytes(b"\x00")
    for name in (
        "ledger/cli/status.py",
        "projections/report/sections.py",
        "actors/rehearsal/stand_in.py",
    ):
        with (copied / name).open("a") as file:
            file.write("# a comment\n")
    unrelated = tmp_path / "unrelated-1.0.dist-info"
    unrelated.mkdir()
    (unrelated / "METADATA").write_text("Metadata-Version: 2.1\nName: unrelated\nVersion: 1.0\n")
    (unrelated / "RECORD").write_text("unrelated.py,,\n")
    (tmp_path / "unrelated.py").write_text("")
    assert changed(before, digests(copied, tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "components"),
    [
        ("harnesses/h000_exact_search.py", ["arm H000"]),
        ("harnesses/prompts/h000_task.md", ["arm H000"]),
        ("harnesses/registry.py", []),
        ("projections/analyses/mcnemar.py", ["analysis"]),
        ("actors/languages/python/reporter.py", ["language python"]),
    ],
)
def test_a_change_is_one_of_the_components_that_hold_the_file(
    copied: Path, name: str, components: Sequence[str]
) -> None:
    before, content = digests(copied), (copied / name).read_text()
    (copied / name).write_text(content + "# changed\n")
    try:
        assert changed(before, digests(copied)) == components
    finally:
        (copied / name).write_text(content)
