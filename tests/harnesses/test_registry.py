import ast
import re
from pathlib import Path

import pytest

import harnesses
from harnesses import registry
from harnesses.prompts import read_prompts
from harnesses.registry import HARNESSES

PACKAGE = Path(harnesses.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "treatments.md"


def own_file_of(harness):
    return harness.run.__module__.removeprefix("harnesses.") + ".py"


@pytest.mark.parametrize("arm", HARNESSES)
def test_file_name_constant_registry_and_docs_agree(arm):
    harness = HARNESSES[arm]
    own_file = own_file_of(harness)
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
    assert arms == {own_file_of(harness) for harness in HARNESSES.values()}
    prompts = {f"prompts/{path.name}" for path in (PACKAGE / "prompts").iterdir()}
    assert prompts == {path for harness in HARNESSES.values() for path in harness.prompt_files}
    documented = re.findall(r"^## ([A-Z]\d{3}):", DOCS.read_text("utf-8"), re.MULTILINE)
    assert documented == list(HARNESSES)


@pytest.mark.parametrize("arm", HARNESSES)
def test_prompts_are_read_by_path(arm):
    harness = HARNESSES[arm]
    prompts = read_prompts(harness)
    assert list(prompts) == list(harness.prompt_files)
    for path, text in prompts.items():
        assert text == (PACKAGE / path).read_text("utf-8")


def test_an_unknown_arm_is_named_with_those_there_are():
    with pytest.raises(LookupError, match=r"no arm 'H999'; there are H000, H003, H007, "):
        registry.find_harness("H999")


def test_only_what_reads_prompts_does_input_and_output():
    allowed = dict.fromkeys(("prompts.py", "drivers/files.py"), {"importlib"})
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
