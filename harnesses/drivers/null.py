"""Does nothing with the memory: the contrast that shows what a case gives away without one.

It has the reader's whole competence otherwise, so that a case that it passes is no test of memory.
"""

from harnesses.drivers.competence import follow_sources
from harnesses.drivers.contract import Finish, SessionInput, Steps


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("")
        return
    yield (yield from follow_sources(given, verify=True))
