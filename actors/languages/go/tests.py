"""Running Go tests: the parts of ``contract.Tests``."""

from actors.languages.go.command import command
from actors.languages.go.deception import can_signal, deceptive_patterns
from actors.languages.go.report import read_report

__all__ = ["can_signal", "command", "deceptive_patterns", "function_of", "read_report"]


def function_of(test_id: str) -> str:
    """``file::TestName``: the id without subtests."""
    file, separator, name = test_id.partition("::")
    return f"{file}{separator}{name.partition('/')[0]}"
