"""Diagnostics go to standard error as it is when they are said, whoever replaced it meanwhile."""

import io
import sys
from pathlib import Path

import pytest
import structlog

from tests.cli.conftest import Run


def test_a_worker_leaves_no_closed_file_to_write_to(
    ledger: Run, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = structlog.get_config()
    try:
        # Refused, or ended at once: by then it has said where its diagnostics go.
        ledger("worker", "--roles", "cell", "--study", study / "nowhere")
        replaced = io.StringIO()
        monkeypatch.setattr(sys, "stderr", replaced)
        structlog.get_logger().error("session void", cell="C")
        assert "session void" in replaced.getvalue()
    finally:
        structlog.configure(**before)
