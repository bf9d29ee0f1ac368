"""Diagnostics: what whoever runs a program may want to know. Never a fact."""

import sys
from typing import Any


def diagnostics() -> Any:
    """structlog's logger on standard error as it is now: who calls us may have replaced it, and
    standard output is for what a command was asked for.

    Imported when there is something to say, which is seldom: structlog, with the asyncio and the
    rich that it brings, takes as long to import as everything else that a command needs.
    """
    import structlog

    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
