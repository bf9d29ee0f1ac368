"""Running Python tests: the parts of ``contract.Tests``."""

from actors.languages.python.command import command
from actors.languages.python.deception import can_signal, deceptive_patterns
from actors.languages.python.report import read_report

__all__ = ["can_signal", "command", "deceptive_patterns", "function_of", "read_report"]


def function_of(test_id: str) -> str:
    """``file::Class::function``: the id without parameters."""
    file, separator, name = test_id.partition("::")
    return f"{file}{separator}{name.partition('[')[0]}"
