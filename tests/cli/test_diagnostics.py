"""Diagnostics go to standard error as it is when they are said, whoever replaced it meanwhile."""

import io
import subprocess
import sys

import pytest

from actors.diagnostics import diagnostics


def test_diagnostics_leave_no_closed_file_to_write_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, then = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    diagnostics().error("lease lost", command="C")
    first.close()
    monkeypatch.setattr(sys, "stderr", then)
    diagnostics().error("session void", cell="C")
    assert "session void" in then.getvalue()
    assert capsys.readouterr().out == ""


def test_a_command_imports_no_analysis_and_no_diagnostics_before_it_needs_them() -> None:
    program = (
        "import sys, ledger.cli.main as main\n"
        "for name in ('status', 'verify-chain', 'show', 'worker', 'run'):\n"
        "    main.cli.get_command(None, name)\n"
        "import ledger.cli.next_step\n"
        "print(*{'numpy', 'jinja2', 'structlog', 'rich', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"\n"
