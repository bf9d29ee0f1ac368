"""Asks the memory and does not heed the answer; keeps nothing that it is told to keep."""

from harnesses.drivers.competence import follow_sources
from harnesses.drivers.contract import Finish, SessionInput, Steps, recall


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("Understood.")
        return
    yield from recall(given.turns[0])
    yield (yield from follow_sources(given, verify=True))
