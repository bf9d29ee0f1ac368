"""The sample ledger of ``tests/verify`` and its fixtures, for the attacks."""

import importlib.util
from pathlib import Path

_path = Path(__file__).parents[1] / "verify" / "conftest.py"
_spec = importlib.util.spec_from_file_location("verify_conftest", _path)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

original = _module.original
sample = _module.sample
