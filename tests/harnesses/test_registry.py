import ast
import dataclasses
import hashlib
import re
from pathlib import Path

import pytest

import harnesses
from harnesses import registry
from harnesses.registry import HARNESSES

PACKAGE = Path(harnesses.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "treatments.md"


def imported_files(path: str) -> set[str]:
    """Files of the package that importing ``path`` runs, itself included."""
    found: set[str] = set()
    todo = [path, "__init__.py"]
    while todo:
        current = todo.pop()
        if current in found:
            continue
        found.add(current)
        for node in ast.walk(ast.parse((PACKAGE / current).read_text("utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harnesses"):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.startswith("harnesses.")]
            for name in names:
                parts = name.split(".")[1:]
                for end in range(len(parts) + 1):
                    for candidate in (
                        "/".join(parts[:end]) + ".py",
                        "/".join([*parts[:end], "__init__.py"]),
                    ):
                        if (PACKAGE / candidate).is_file():
                            todo.append(candidate)
    return found


@pytest.mark.parametrize("arm", HARNESSES)
def test_file_name_constant_registry_and_docs_agree(arm):
    harness = HARNESSES[arm]
    own_file = harness.source_files[0]
    assert harness.id == arm
    assert own_file.startswith(f"{arm.lower()}_")
    assert f'\nID = "{arm}"\n' in (PACKAGE / own_file).read_text("utf-8")
    assert harness.run.__module__ == f"harnesses.{own_file.removesuffix('.py')}"
    assert all(path.startswith(f"prompts/{arm.lower()}_") for path in harness.prompt_files)
    heading = f"## {arm}: {harness.title}\n\n"
    text = DOCS.read_text("utf-8")
    assert text.count(heading) == 1
    assert len(text.partition(heading)[2].partition("\n\n")[0].split()) > 20


def test_every_arm_file_and_every_prompt_is_registered():
    arms = {path.name for path in PACKAGE.glob("*.py") if re.match(r"[a-z]\d{3}_", path.name)}
    assert arms == {harness.source_files[0] for harness in HARNESSES.values()}
    prompts = {f"prompts/{path.name}" for path in (PACKAGE / "prompts").iterdir()}
    assert prompts == {path for harness in HARNESSES.values() for path in harness.prompt_files}
    documented = re.findall(r"^## ([A-Z]\d{3}):", DOCS.read_text("utf-8"), re.MULTILINE)
    assert documented == list(HARNESSES)


@pytest.mark.parametrize("arm", HARNESSES)
def test_the_source_files_are_exactly_what_the_arm_imports(arm):
    source_files = HARNESSES[arm].source_files
    assert len(set(source_files)) == len(source_files)
    assert set(source_files) == imported_files(source_files[0])


@pytest.mark.parametrize("arm", HARNESSES)
def test_no_arm_imports_another(arm):
    others = {harness.source_files[0] for harness in HARNESSES.values() if harness.id != arm}
    assert not others & set(HARNESSES[arm].source_files)


@pytest.mark.parametrize("arm", HARNESSES)
def test_the_source_digest_is_what_sha256sum_gives(arm):
    harness = HARNESSES[arm]
    listing = "".join(
        f"{hashlib.sha256((PACKAGE / path).read_bytes()).hexdigest()}  {path}\n"
        for path in sorted([*harness.source_files, *harness.prompt_files])
    )
    assert registry.source_digest(harness) == hashlib.sha256(listing.encode()).hexdigest()


def test_arms_have_digests_of_their_own_and_every_file_counts():
    digests = {registry.source_digest(harness) for harness in HARNESSES.values()}
    assert len(digests) == len(HARNESSES)
    harness = HARNESSES["H000"]
    for path in harness.source_files:
        without = tuple(file for file in harness.source_files if file != path)
        fewer = dataclasses.replace(harness, source_files=without)
        assert registry.source_digest(fewer) != registry.source_digest(harness)


@pytest.mark.parametrize("arm", HARNESSES)
def test_prompts_are_read_by_path_with_their_digests(arm):
    harness = HARNESSES[arm]
    prompts = registry.read_prompts(harness)
    assert list(prompts) == list(harness.prompt_files)
    assert registry.prompt_digests(harness) == {
        path: hashlib.sha256(text.encode()).hexdigest() for path, text in prompts.items()
    }


def test_an_unknown_arm_is_named_with_those_there_are():
    with pytest.raises(LookupError, match=r"no arm 'H999'; there are H000, H003, H007, "):
        registry.find_harness("H999")


def test_only_the_registries_do_input_and_output():
    allowed = dict.fromkeys(("registry.py", "drivers/registry.py"), {"importlib"})
    forbidden = {"os", "io", "pathlib", "time", "datetime", "random", "socket", "subprocess"}
    forbidden |= {"importlib", "asyncio", "threading", "logging", "sys", "tempfile"}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input", "exec", "eval"), name
        assert imported & forbidden <= allowed.get(name, set()), name
