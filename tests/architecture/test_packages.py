"""Five generic import names in one distribution: nobody else may provide them."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "ledger", "actors", "projections", "harnesses")


@pytest.mark.parametrize("package", PACKAGES)
def test_only_our_distribution_provides_the_package(package: str) -> None:
    providers = importlib.metadata.packages_distributions().get(package, [])
    assert set(providers) <= {"laboratory-ledger"}
    assert (ROOT / package / "__init__.py").exists()
    assert (ROOT / package / "py.typed").exists()


def test_docs_and_tests_are_not_importable_from_elsewhere(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; print([n for n in ('docs', 'tests', 'var') if u.find_spec(n)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_file_imports_itself_through_others() -> None:
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    imports = {name: set(_imported(path, files)) - {name} for name, path in files.items()}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """Our modules that a file imports, also inside of functions and for type checkers only."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module in files:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in files else node.module for name in inner)


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from ledger.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted(m for m in ('numpy', 'httpx', 'pygit2', 'jinja2') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["verify_chain", "checkpoint", "export"])
def test_verifying_loads_no_model_client(command: str) -> None:
    code = (
        f"import sys, ledger.cli.{command}\n"
        "print(sorted(m for m in ('numpy', 'httpx', 'pygit2', 'jinja2') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_clock_and_chance_stay_in_their_file() -> None:
    """`at`, `id` and an artifact's salt are the only values that may differ between two runs."""
    allowed = {"ledger/clock.py"}
    pattern = re.compile(
        r"\btime\.time(_ns)?\(|\bdatetime\.now\(|\butcnow\(|\buuid[14]\(|\brandom\."
    )
    found = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert set(found) <= allowed
