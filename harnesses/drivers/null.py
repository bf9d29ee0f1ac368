"""Does nothing with the memory: the contrast that shows what a case gives away without one.

It has the reader's whole competence otherwise, so that a case that it passes is no test of memory.
"""

from harnesses.drivers.competence import (
    BY_SOURCES,
    BY_WORDS,
    READS_BACK,
    follow_sources,
)
from harnesses.drivers.contract import Driver, Finish, SessionInput, Steps


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("")
        return
    yield (yield from follow_sources(given, verify=True))


DRIVER = Driver(
    kind="null",
    title="does nothing with the memory",
    run=run,
    layers={
        "decision_control": BY_SOURCES,
        "tool_execution": BY_WORDS,
        "outcome_check": READS_BACK,
    },
)
