"""The built wheel holds the five packages with their data, nothing else, and runs the demo."""

import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"schemas", "ledger", "actors", "projections", "harnesses"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--no-index", "--wheel-dir", folder, str(ROOT)], check=True, capture_output=True
    )
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_five_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES
    assert "Classifier: Private :: Do Not Upload" in text
    tracked = subprocess.run(
        ["git", "ls-files", *sorted(PACKAGES)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert tracked and set(tracked) <= set(names)


@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
        capture_output=True,
    )
    environment = {
        **os.environ,
        "LEDGER_CONFIG_HOME": str(tmp_path / "config"),
        # The libraries of this environment; its editable install of the checkout is a .pth file,
        # which Python reads from site folders only.
        "PYTHONPATH": site.getsitepackages()[0],
    }
    study = tmp_path / "study"
    done = subprocess.run(
        [home / "bin" / "laboratory-ledger", "demo", "--quick", "--dir", str(study)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "simulated    every agent here is simulated: not evidence" in done.stdout
    origin = subprocess.run(
        [python, "-c", "import ledger; print(ledger.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert origin.startswith(str(home))
