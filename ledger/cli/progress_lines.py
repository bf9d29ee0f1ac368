"""What a command that takes long says where standard error is no terminal: a line now and then."""

import sys
import time
from dataclasses import dataclass, field

from ledger.cli.printable import printable

INTERVAL_S = 10.0
"""A log file should show life, and not be filled."""
QUIET_S = 60.0
"""Where nothing has changed: something is still there."""
SHORTEST_S = 2.0
"""Between lines, however much happens; a command that is done sooner says nothing."""


@dataclass
class ProgressLines:
    """Prints what it is told when the item has changed, or after a while when only numbers have."""

    _item: str = ""
    _line: str = ""
    _last: float = field(default_factory=lambda: time.monotonic())

    def say(self, item: str, line: str) -> None:
        """``item`` is what is being worked on, ``line`` all there is to say about it."""
        since = time.monotonic() - self._last
        changed = INTERVAL_S if line != self._line else QUIET_S
        if since < (SHORTEST_S if item != self._item else changed):
            return
        self._item, self._line, self._last = item, line, time.monotonic()
        print(printable(line), file=sys.stderr, flush=True)
