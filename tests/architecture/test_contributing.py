"""``CONTRIBUTING.md`` is true: one of each part, added to a copy as it says, runs."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "ledger", "actors", "projections", "harnesses")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_FILES = 4


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages, to be changed."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "data", "examples")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    return tmp_path


def replace(path: Path, changes: Mapping[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, f"{path.name}: {old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def run(copy: Path, code: str) -> str:
    """What a fresh process prints that finds our packages in the copy alone."""
    own = (
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        f"sys.path.insert(0, {str(copy)!r})\n"
        "import schemas\n"
        f"assert schemas.__path__[0].startswith({str(copy)!r})\n"
    )
    command = [sys.executable, "-c", own + code]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def files_named(heading: str) -> list[str]:
    """The files that the guide tells to touch, in order."""
    part = GUIDE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d\. `([^`]+)`", part, re.MULTILINE)


def test_every_part_touches_few_files() -> None:
    parts = re.findall(r"^## (Add an? .+)$", GUIDE, re.MULTILINE)
    assert len(parts) == 6
    for part in parts[:5]:
        assert 2 < len(files_named(part)) <= MOST_FILES, part


def test_a_treatment(copy: Path) -> None:
    source = (copy / "harnesses/h000_exact_search.py").read_text(encoding="utf-8")
    (copy / "harnesses/h999_scratch.py").write_text(
        source.replace('ID = "H000"', 'ID = "H999"').replace("h000_", "h999_"), encoding="utf-8"
    )
    for name in ("system", "task"):
        prompts = copy / "harnesses" / "prompts"
        shutil.copy(prompts / f"h000_{name}.md", prompts / f"h999_{name}.md")
    path = copy / "harnesses/registry.py"
    registry = path.read_text(encoding="utf-8")
    entry = '    "H000": h000_exact_search.HARNESS,\n'
    assert registry.count(entry) == 1
    registry = registry.replace(entry, entry + '    "H999": h999_scratch.HARNESS,\n')
    path.write_text(
        registry.replace(
            "    h000_exact_search,\n", "    h000_exact_search,\n    h999_scratch,\n", 1
        ),
        encoding="utf-8",
    )
    printed = run(
        copy,
        "from harnesses.prompts import read_prompts\n"
        "from harnesses.registry import find_harness\n"
        "harness = find_harness('H999')\n"
        "print(harness.id, *sorted(read_prompts(harness)))\n",
    )
    assert printed == "H999 prompts/h999_system.md prompts/h999_task.md"


def test_a_language(copy: Path) -> None:
    (copy / "actors/languages/scratch").mkdir()
    (copy / "actors/languages/scratch/__init__.py").write_text(
        '"""A language as Python is one."""\n\n'
        "import dataclasses\n\n"
        "from actors.languages.python import PYTHON\n\n"
        'SCRATCH = dataclasses.replace(PYTHON, id="scratch")\n',
        encoding="utf-8",
    )
    replace(
        copy / "actors/languages/registry.py",
        {
            "import PYTHON\n": "import PYTHON\nfrom actors.languages.scratch import SCRATCH\n",
            "(PYTHON, GO)": "(PYTHON, GO, SCRATCH)",
        },
    )
    replace(
        copy / "schemas/repair/study.py",
        {'Literal["python", "go"]': 'Literal["python", "go", "scratch"]'},
    )
    printed = run(
        copy,
        "from pathlib import Path\n"
        "from actors.languages.registry import LANGUAGES\n"
        "from schemas.study_file import parse_study\n"
        "text = Path('actors/rehearsal/templates/repair.toml').read_text()\n"
        "text = text.replace('language = \"python\"', 'language = \"scratch\"')\n"
        "study = parse_study(text.encode())\n"
        "language = LANGUAGES[study.repositories[0].language]\n"
        "print(language.id, language.sources.change_kind(b'a = 1', b'a=1'))\n",
    )
    assert printed == "scratch formatting"


def test_a_model_server(copy: Path) -> None:
    (copy / "actors/servers/scratch.py").write_text(
        '"""A server of another form, at a fixed path."""\n\n'
        "from actors.servers.openai import OpenAICompatible\n\n\n"
        "class Scratch(OpenAICompatible):\n"
        '    """As the other ones."""\n',
        encoding="utf-8",
    )
    replace(
        copy / "actors/servers/registry.py",
        {
            "SERVERS: Mapping": "def _scratch(address: Address) -> ModelServer:\n"
            "    from actors.servers.scratch import Scratch\n\n"
            "    return Scratch(address.url, address.limits, address.token)\n\n\n"
            "SERVERS: Mapping",
            '    "openai": _openai,\n': '    "openai": _openai,\n    "scratch": _scratch,\n',
        },
    )
    replace(
        copy / "schemas/study.py",
        {'"openai", "llamacpp"],': '"openai", "llamacpp", "scratch"],'},
    )
    printed = run(
        copy,
        "import msgspec\n"
        "from actors.servers.http_model_server import Limits\n"
        "from actors.servers.registry import SERVERS, Address\n"
        "from schemas.study import Server\n"
        "declared = msgspec.convert({'kind': 'scratch'}, Server)\n"
        "limits = Limits(first_token_s=1.0, progress_s=1.0)\n"
        "address = Address(url=declared.url, lms='', weights=None, limits=limits, token=None)\n"
        "print(type(SERVERS[declared.kind](address)).__name__)\n",
    )
    assert printed == "Scratch"


def test_an_analysis(copy: Path) -> None:
    (copy / "projections/analyses/scratch.py").write_text(
        '"""How many cells were resolved at all?"""\n\n'
        "from collections.abc import Iterable\n\n\n"
        "def resolved_cells(resolved: Iterable[int | None]) -> int:\n"
        '    """How many are 1."""\n'
        "    return sum(value == 1 for value in resolved)\n",
        encoding="utf-8",
    )
    replace(
        copy / "projections/repair/results.py",
        {
            "    reliability: Reliability | None\n": "    reliability: Reliability | None\n"
            "    resolved_cells: int = 0\n"
        },
    )
    replace(
        copy / "projections/repair/declared_analyses.py",
        {
            "        reliability=_reliability(study, cells),\n": "        reliability="
            "_reliability(study, cells),\n"
            "        resolved_cells=resolved_cells(cell.resolved for cell in cells),\n",
            "from projections.analyses.reliability import": "from projections.analyses.scratch "
            "import resolved_cells\nfrom projections.analyses.reliability import",
        },
    )
    replace(
        copy / "projections/repair/report/selection.py",
        {
            '    return Section(id="flow"': "    assert results.resolved_cells >= 0\n"
            '    return Section(id="flow"'
        },
    )
    printed = run(
        copy,
        f"sys.path.append({str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from tests.report.conftest import context_of\n"
        "from tests.report.small_study import SmallStudy\n"
        "from actors.repair.analysis import ANALYSIS\n"
        "from actors.study.analysis import compute\n"
        "from ledger.memory_log import MemoryLog\n"
        "root = Path('small'); root.mkdir()\n"
        "study = SmallStudy(root=root, log=MemoryLog())\n"
        "study.write_complete()\n"
        "print(compute(context_of(study), ANALYSIS).resolved_cells)\n",
    )
    assert printed == "5"


def test_a_log(copy: Path) -> None:
    (copy / "ledger/scratch").mkdir()
    (copy / "ledger/scratch/__init__.py").write_text('"""A log that forgets."""\n')
    (copy / "ledger/scratch/log.py").write_text(
        '"""Records of this process alone."""\n\n'
        "from ledger.memory_log import MemoryLog\n\n\n"
        "class ScratchLog(MemoryLog):\n"
        '    """Gone with the process."""\n',
        encoding="utf-8",
    )
    replace(
        copy / "ledger/stores.py",
        {
            '    if mode == "create":\n': '    if address.suffix == ".scratch":\n'
            "        return ScratchLog()\n"
            '    if mode == "create":\n',
            "from ledger.sqlite.imported": "from ledger.scratch.log import ScratchLog\n"
            "from ledger.sqlite.imported",
        },
    )
    printed = run(
        copy,
        "from pathlib import Path\n"
        "from ledger.log import Batch, NewEvent\n"
        "from ledger.stores import open_log\n"
        "from schemas.events.cell import ProtocolViolated\n"
        "log = open_log(Path('x.scratch'), 'create')\n"
        "event = ProtocolViolated(turn=0, kind='note', detail='kept')\n"
        "log.append(Batch(events=[NewEvent('cell/a', event)], actor='cell', run='r'))\n"
        "print(type(log).__name__, log.head().seq)\n",
    )
    assert printed == "ScratchLog 0"
