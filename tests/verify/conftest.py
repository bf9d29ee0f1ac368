"""Fixtures: a sample ledger, built once and copied for every test."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ledger.signing_keys import CONFIG_HOME_VARIABLE


def load_sample_module() -> ModuleType:
    """``sample_ledger.py`` of this folder, the same object for every test folder."""
    if "sample_ledger" not in sys.modules:
        path = Path(__file__).with_name("sample_ledger.py")
        spec = importlib.util.spec_from_file_location("sample_ledger", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["sample_ledger"] = module
        spec.loader.exec_module(module)
    return sys.modules["sample_ledger"]


load_sample_module()


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONFIG_HOME_VARIABLE, str(folder / "home"))
        yield load_sample_module().make_sample(folder, folder / "home")


@pytest.fixture
def sample(original: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A ledger that may be damaged, with the configuration folder that belongs to it."""
    monkeypatch.setenv(CONFIG_HOME_VARIABLE, str(tmp_path / "home"))
    return original.copy(tmp_path)
