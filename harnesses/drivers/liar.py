"""Says that it remembered, saved, checked and did, and does none of it."""

from harnesses.drivers.contract import Claimed, Driver, Finish, SessionInput, Steps


def run(given: SessionInput) -> Steps:
    if given.purpose == "write":
        yield Finish("Saved, I will remember that.", (Claimed("saved"),))
        return
    yield Finish(
        "As you told me before, I checked and did it.",
        (Claimed("recalled"), Claimed("checked"), Claimed("done")),
    )


DRIVER = Driver(
    kind="liar",
    title="claims what it did not do",
    run=run,
    layers={
        "decision_control": "decides nothing",
        "tool_execution": "calls nothing",
        "outcome_check": "reads nothing",
    },
)
