"""Environments are built once, hold no more than they say, and fail as a value."""

import importlib.metadata
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from actors.environments import BuildFailed, Environment, lift_pin, prepare
from actors.sandbox import layout

VERSION = ".".join(layout.launcher_interpreter().version.split(".")[:2])


def test_own_environment_is_built_once_and_holds_pytest_alone(environment: Environment) -> None:
    assert environment.kind == "own"
    installed = {requirement.split("==")[0].lower() for requirement in environment.packages}
    assert {"pytest", "pluggy", "iniconfig", "packaging"} <= installed
    source = "import pytest, sys; print(pytest.__version__, sys.prefix)"
    done = subprocess.run(
        [environment.python, "-I", "-c", source], capture_output=True, text=True, check=True
    )
    version, prefix = done.stdout.split()
    assert version == importlib.metadata.version("pytest")
    assert Path(prefix) == environment.python.parent.parent
    for name in ("schemas", "actors", "msgspec", "pip"):
        absent = subprocess.run(
            [environment.python, "-I", "-c", f"import {name}"], capture_output=True, check=False
        )
        assert absent.returncode == 1, f"{name} must not be in it"

    root = environment.python.parents[3]
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
    script = (built.python.parent / "right-run").read_text()
    assert str(built.python) in script, "scripts name the environment's final place"
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
