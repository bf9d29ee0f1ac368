"""Environments are built once, hold no more than they say, and fail as a value."""

import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from actors.languages.contract import BuildFailed, Environment
from actors.languages.python import PYTHON
from actors.languages.python.requirement_files import lift_pin, requirement_lines
from actors.sandbox import layout
from actors.test_runs.task_runs import built_event, recorded_environment
from ledger.artifacts import Artifacts
from ledger.errors import Integrity, PreflightMismatch, Unfinished
from ledger.log import Batch
from ledger.memory_log import MemoryLog
from schemas.repair.task import EnvironmentInputs


def prepare(
    root: Path,
    requirements: Mapping[str, bytes],
    *,
    python: str,
    fallbacks: Sequence[str] = (),
    head_requirements: Mapping[str, bytes] | None = None,
    cancelled: threading.Event | None = None,
) -> Environment | BuildFailed:
    inputs = EnvironmentInputs(
        python=python,
        requirements={path: text.decode("utf-8", "replace") for path, text in requirements.items()},
        head_requirements={p: text.decode() for p, text in (head_requirements or {}).items()},
        fallbacks=tuple(fallbacks),
    )
    return PYTHON.environments.prepare(root, inputs, cancelled or threading.Event())


VERSION = ".".join(layout.launcher_interpreter().version.split(".")[:2])


def test_own_environment_is_built_once_and_holds_pytest_alone(environment: Environment) -> None:
    assert environment.identity.startswith("own-")
    installed = {requirement.split("==")[0].lower() for requirement in environment.packages}
    assert {"pytest", "pluggy", "iniconfig", "packaging"} <= installed
    source = "import pytest, sys; print(pytest.__version__, sys.prefix)"
    done = subprocess.run(
        [environment.program, "-I", "-c", source], capture_output=True, text=True, check=True
    )
    version, prefix = done.stdout.split()
    assert version == importlib.metadata.version("pytest")
    assert Path(prefix) == environment.program.parent.parent
    for name in ("schemas", "actors", "msgspec", "pip"):
        absent = subprocess.run(
            [environment.program, "-I", "-c", f"import {name}"], capture_output=True, check=False
        )
        assert absent.returncode == 1, f"{name} must not be in it"

    root = environment.program.parents[3]
    before = sorted(os.listdir(root))
    assert before == [environment.identity], "no temporary folder is left"
    again = prepare(root, {}, python=VERSION)
    assert again == environment
    assert sorted(os.listdir(root)) == before


def test_own_environment_needs_the_declared_python(tmp_path: Path) -> None:
    failed = prepare(tmp_path, {}, python="3.99")
    assert isinstance(failed, BuildFailed)
    assert "3.99" in failed.reason
    missing = prepare(tmp_path, {"requirements.txt": b""}, python="3.99")
    assert isinstance(missing, BuildFailed)
    assert "no Python 3.99 on this host" in missing.reason


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package index in a folder: empty packages, one of them called pytest."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, version, requires in (
        ("pytest", "1.0", ""),
        ("left", "1.0", ""),
        ("left", "2.0", ""),
        ("right", "1.0", "Requires-Dist: left>=2\n"),
    ):
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", f"version = {version!r}\n")
            meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
            wheel.writestr(f"{info}/METADATA", meta)
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(
                f"{info}/entry_points.txt", f"[console_scripts]\n{name}-run = {name}:x\n"
            )
            wheel.writestr(f"{info}/RECORD", "")
    return folder


def test_venv_pins_fallbacks_and_scripts(wheels: Path, tmp_path: Path) -> None:
    index = f"--no-index\n--find-links {wheels}\n".encode()
    files = {
        "requirements.txt": index + b"left == 1.0  # old\n-e .\n",
        "requirements/test.txt": b"-r ../requirements.txt\npytest\nright\n.\n",
    }
    built = prepare(tmp_path, files, python=VERSION, fallbacks=["without LEFT", "head"])
    assert isinstance(built, Environment), built
    assert built.fallback == "without LEFT"
    assert {"left==2.0", "right==1.0", "pytest==1.0"} <= set(built.packages)
    assert b"requirements.txt: left out, the project is not installed: -e ." in built.log
    script = (built.program.parent / "right-run").read_text()
    assert str(built.program) in script, "scripts name the environment's final place"
    (of_the_pins,) = tmp_path.glob("*.failed.log")
    assert "left==1.0" in of_the_pins.read_text().replace(" ", "")
    assert len(os.listdir(tmp_path)) == 2, "no temporary folder is left"

    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = prepare(tmp_path, files, python=VERSION, fallbacks=["without LEFT", "head"])
    assert again == built
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_requirements_without_pytest_are_a_failure(wheels: Path, tmp_path: Path) -> None:
    content = f"--no-index\n--find-links {wheels}\nleft\n".encode()
    files = {"requirements.txt": content}
    head = {"requirements.txt": content + b"right==7\n"}
    failed = prepare(tmp_path, files, python=VERSION, fallbacks=["head"], head_requirements=head)
    assert isinstance(failed, BuildFailed)
    pinned, of_head = failed.log.split(b"=== head ===")
    assert b"No module named 'pytest'" in pinned
    assert b"right==7" in of_head
    assert "right==7" in failed.tail
    assert all(path.name.endswith(".failed.log") for path in tmp_path.iterdir())


def test_what_cannot_be_declared_is_a_failure(tmp_path: Path) -> None:
    files = {"requirements.txt": b"pytest\n"}
    odd = prepare(tmp_path, files, python=VERSION, fallbacks=["newest"])
    assert isinstance(odd, BuildFailed)
    assert "`head` or `without NAME`" in odd.reason
    outside = prepare(tmp_path, {"../requirements.txt": b""}, python=VERSION)
    assert isinstance(outside, BuildFailed)
    assert "../requirements.txt" in outside.reason
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "lifted"),
    [
        (b"PyYAML==6.0.1", b"PyYAML"),
        (b"pyyaml>=5,<6 ; python_version > '3.8'", b"pyyaml; python_version > '3.8'"),
        (b"PYYAML[extra]~=6.0  # why", b"PYYAML[extra]"),
        (b"pyyaml-extra==1", b"pyyaml-extra==1"),
        (b"# pyyaml==1", b"# pyyaml==1"),
        (b"-r pyyaml.txt", b"-r pyyaml.txt"),
    ],
)
def test_lift_pin(line: bytes, lifted: bytes) -> None:
    assert lift_pin(line + b"\nother==1\n", "PyYaml") == lifted + b"\nother==1\n"


def test_lift_pin_reads_names_as_pip_does() -> None:
    assert lift_pin(b"ruamel.yaml==1\n", "ruamel_yaml") == b"ruamel.yaml\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"-e ./tools/plugin\n", "-e is not an option"),
        (b"./tools/plugin\n", "only packages that an index has as a wheel"),
        (b"tools/plugin.tar.gz\n", "only packages that an index has as a wheel"),
        (b"git+https://example.org/x.git\n", "only packages"),
        (b"plugin @ https://example.org/x.tar.gz\n", "only packages"),
        (b"plugin==1 --global-option=build\n", "only packages"),
        (b"--no-binary :all:\n", "--no-binary is not an option"),
        (b"--pre --no-binary=:all:\n", "--no-binary is not an option"),
        (b"--pre '--no-binary' :all:\n", "without quotes"),
        (b"--no-bin\\\nary :all:\n", "--no-binary is not an option"),
        (b"--only-binary :none:\n", "only wheels are installed"),
        (b"--pre -r other.txt\n", "does not name other.txt"),
        (b"-r https://example.org/requirements.txt\n", "does not name https:/example.org"),
        (b"-c ../../etc/constraints.txt\n", "does not name ../../etc/constraints.txt"),
        (b"--index-url https://example.org/${PIP_INDEX_URL}\n", "variables are not read"),
        (b"# -*- coding: utf-7 -*-\n+AC0--no-binary :all:\n", "only packages"),
        (b"caf\xe9==1\n", "only packages"),
    ],
)
def test_a_requirement_that_would_run_code_is_refused_before_anything_is_built(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    refused = prepare(tmp_path, {"requirements.txt": b"pytest\n" + content}, python=VERSION)
    assert isinstance(refused, BuildFailed)
    assert reason in refused.tail
    assert "$ " not in refused.tail, "no program was started"


def test_ordinary_requirement_lines_are_read_as_pip_reads_them() -> None:
    content = b"""\xef\xbb\xbf# pinned \\
pytest >= 8, < 9  # why
PyYAML[libyaml]==6.0.1 ; python_version > '3.8' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
trio (>=0.2)
-r test/more.txt
-c constraints.txt
--index-url https://example.org/simple
--only-binary=:all:
-e .[dev]
"""
    files = {"requirements.txt": content, "test/more.txt": b"", "constraints.txt": b""}
    kept, left_out = requirement_lines("requirements.txt", files)
    assert left_out == ["-e .[dev]"]
    assert [" ".join(line.split()) for line in kept] == [
        "pytest >= 8, < 9",
        "PyYAML[libyaml]==6.0.1 ; python_version > '3.8' --hash=sha256:aa --hash=sha256:bb",
        "trio (>=0.2)",
        "-r test/more.txt",
        "-c constraints.txt",
        "--index-url https://example.org/simple",
        "--only-binary=:all:",
    ]


def test_nothing_that_a_package_brings_runs_while_it_is_installed(
    wheels: Path, tmp_path: Path
) -> None:
    """A source distribution is not built, and start-up code of a wheel waits for the sandbox."""
    ran = tmp_path / "ran"
    package = tmp_path / "package"
    package.mkdir()
    setup = f"open({str(ran)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='sly')\n"
    with tarfile.open(package / "sly-1.0.tar.gz", "w:gz") as archive:
        for name, text in (
            ("setup.py", setup),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: sly\nVersion: 1.0\n"),
        ):
            entry = tarfile.TarInfo(f"sly-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with zipfile.ZipFile(package / "start-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("start.pth", f"import os; open({str(ran)!r}, 'w').close()\n")
        meta = "Metadata-Version: 2.1\nName: start\nVersion: 1.0\n"
        wheel.writestr("start-1.0.dist-info/METADATA", meta)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("start-1.0.dist-info/WHEEL", tag)
        wheel.writestr("start-1.0.dist-info/RECORD", "")
    index = f"--no-index\n-f {wheels}\n-f {package}\npytest\n".encode()
    root = tmp_path / "environments"
    built = prepare(root, {"requirements.txt": index + b"start\n"}, python=VERSION)
    assert isinstance(built, Environment), built
    assert "start==1.0" in built.packages
    assert not ran.exists()
    source = prepare(root, {"requirements.txt": index + b"sly\n"}, python=VERSION)
    assert isinstance(source, BuildFailed)
    assert "No matching distribution found for sly" in source.tail
    assert not ran.exists()
    assert prepare(root, {"requirements.txt": index + b"start\n"}, python=VERSION) == built
    assert not ran.exists()


def test_an_environment_that_is_there_already_is_compared(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / environment.identity
    shutil.copytree(environment.program.parents[2], place, symlinks=True)
    monkeypatch.setattr("actors.test_runs.builds._FOUND_GOOD", set())
    again = prepare(tmp_path, {}, python=VERSION)
    assert isinstance(again, Environment)
    site_packages = next((place / "venv" / "lib").glob("python3*")) / "site-packages"
    (site_packages / "sitecustomize.py").write_text("")
    assert prepare(tmp_path, {}, python=VERSION) == again, "compared once"
    for repair in (
        (site_packages / "sitecustomize.py").unlink,
        lambda: (site_packages / "pytest" / "__init__.py").write_bytes(
            next((environment.program.parents[1] / "lib").glob("python3*"))
            .joinpath("site-packages/pytest/__init__.py")
            .read_bytes()
        ),
    ):
        monkeypatch.setattr("actors.test_runs.builds._FOUND_GOOD", set())
        with pytest.raises(Integrity, match=r"is not as it was built: \d+ entries.*remove it"):
            prepare(tmp_path, {}, python=VERSION)
        repair()
        monkeypatch.setattr("actors.test_runs.builds._FOUND_GOOD", set())
        assert prepare(tmp_path, {}, python=VERSION) == again
        (site_packages / "pytest" / "__init__.py").write_text("")
    (place / "manifest").unlink()
    monkeypatch.setattr("actors.test_runs.builds._FOUND_GOOD", set())
    with pytest.raises(Integrity, match="is not a whole environment.*remove it"):
        prepare(tmp_path, {}, python=VERSION)


def test_a_cancelled_build_ends_at_once_and_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    index = f"--no-index\n--find-links {wheels}\npytest\n".encode()
    for requirements in ({}, {"requirements.txt": index}):
        with pytest.raises(Unfinished, match="interrupted"):
            prepare(tmp_path, requirements, python=VERSION, cancelled=cancelled)
    assert os.listdir(tmp_path) == [], "not even the note that it failed"


def test_an_environment_with_other_packages_than_were_recorded_is_another(
    environment: Environment, tmp_path: Path
) -> None:
    """What a requirement file leaves open has another version when it is built again later."""
    log, artifacts = MemoryLog(), Artifacts(tmp_path)
    inputs = EnvironmentInputs(python=VERSION, requirements={}, head_requirements={}, fallbacks=())
    root = environment.program.parents[3]

    def recorded(packages: tuple[str, ...]) -> Environment:
        event = built_event(artifacts, "R001", inputs, replace(environment, packages=packages))
        log.append(Batch(events=[event], actor="miner", run="r"))
        return recorded_environment(log, artifacts, root, "R001", environment.identity)

    assert recorded(environment.packages) == environment
    with pytest.raises(PreflightMismatch, match=r"pytest==0\.1 \(then\), pytest==\S+ \(now\)"):
        recorded(tuple(re.sub("^pytest==.*", "pytest==0.1", one) for one in environment.packages))
