"""Says that it remembered, saved, checked and did, and does none of it."""

from harnesses.drivers.contract import Claimed, Finish, SessionInput, Steps


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("Saved, I will remember that.", (Claimed("saved"),))
        return
    yield Finish(
        "As you told me before, I checked and did it.",
        (Claimed("recalled"), Claimed("checked"), Claimed("done")),
    )
