"""A transfer study whose processes are all killed at random moments, and which goes on: the same
verdicts, and no session of a memory system that nobody recorded.

One system is our store under a rule-based reader, the other one a model behind a server of
OpenAI's form: its sessions stop at every question, and are lost with the process that keeps them.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.artifacts import Artifacts
from ledger.log import Fact
from ledger.study_directory import StudyDirectory
from projections.fold import fold
from projections.transfer.scores import TransferScores
from schemas.events.cell import CellStarted, TurnAnswered, TurnStarted
from schemas.events.transfer import CaseFinished
from tests.end_to_end.chat_study import CASES, TOML
from tests.end_to_end.rehearsal_study import (
    StudyOnDisk,
    check_commands,
    finish,
    initialise,
    take_steps,
)
from tests.faults.conftest import INJECTION
from tests.faults.fault_points import count
from tests.faults.killed_runs import (
    kill,
    run_to_the_end,
    wait_for_a_moment,
    wait_until_all_have_ended,
)
from tests.servers.openai_fake import MODEL, OpenAIFake, Reply

pytestmark = pytest.mark.slow
KIND = "kill -9 of a whole transfer run at a random moment"
KILLS = 15
KILLS_A_STUDY = 4
CELLS = 2 * CASES
Verdict = tuple[Any, ...]
READER = """
[[drivers]]
id = "reader"
kind = "reader"

[[systems]]
memory = "full"
driver = "reader"
"""


def act(body: dict[str, Any], number: int) -> Reply:
    """Declares the first option there is, and ends."""
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    if len(body["messages"]) == 2:
        option = tools["declare_decision"]["properties"]["option"]["enum"][0]
        return {"calls": [("declare_decision", {"option": option, "basis": []})]}
    return {"calls": [("finish", {"text": "Done.", "claims": []})]}


@pytest.fixture(scope="module")
def fake() -> Iterator[OpenAIFake]:
    with OpenAIFake(answer=act).running() as server:
        yield server


@pytest.fixture(scope="module")
def frozen(fake: OpenAIFake, tmp_path_factory: pytest.TempPathFactory) -> StudyOnDisk:
    place = tmp_path_factory.mktemp("transfer")
    study = StudyOnDisk(place / "study", place / "config")
    initialise(study, "--template", "transfer")
    server = f'kind = "openai"\nresidency = "unobserved"\nurl = "{fake.url}"'
    text = TOML.format(
        server=server, key=MODEL, quantization="", files="", turns=3, temperature=0.0
    )
    first, rest = text.split("[suite]")
    # Every kill costs the case that it meets one attempt.
    (study.path / "study.toml").write_text(f"{first}attempts = 10\n\n[suite]{rest}{READER}")
    take_steps(study, "freeze")
    return study


def start(frozen: StudyOnDisk, place: Path, fake: OpenAIFake) -> StudyOnDisk:
    """A copy whose memory systems are witnessed, and a server that has heard nothing."""
    fake.requests.clear()
    study = frozen.copy(place)
    study.variables |= {"PYTHONPATH": str(INJECTION), "LEDGER_SESSIONS": str(place / "sessions")}
    return study


def check_sessions(study: StudyOnDisk, facts: list[Fact], fake: OpenAIFake) -> None:
    """Every attempt is recorded, and ended once: in an observed class, or as lost. No session began
    but as such an attempt, and no model was asked but as a recorded turn."""
    begun = [
        (str(f.event.cell), f.event.attempt) for f in facts if isinstance(f.event, CellStarted)
    ]
    ended = [f.event for f in facts if isinstance(f.event, CaseFinished)]
    assert len(set(begun)) == len(begun)
    assert begun == [(str(one.cell), one.attempt) for one in ended]
    for cell in {cell for cell, _ in begun}:
        of_cell = [one for one in ended if str(one.cell) == cell]
        assert [one.attempt for one in of_cell] == list(range(len(of_cell)))
        assert [one.ended for one in of_cell] == ["void"] * (len(of_cell) - 1) + ["completed"]
        assert {one.detail for one in of_cell[:-1]} <= {"the worker that ran the session was lost"}
    assert len({cell for cell, _ in begun}) == CELLS
    witnessed = Counter((study.path.parent / "sessions").read_text().splitlines())
    assert set(witnessed) <= {f"{cell} {attempt}" for cell, attempt in begun}
    assert set(witnessed.values()) == {1}, "a case of a memory system ran twice as one attempt"
    asked = sum(isinstance(fact.event, TurnStarted) for fact in facts)
    answered = sum(isinstance(fact.event, TurnAnswered) for fact in facts)
    assert answered <= len(fake.requests) <= asked
    scratch = StudyDirectory(study.path).var / "scratch" / "memory_session"
    assert not scratch.exists() or list(scratch.iterdir()) == []


def verdicts(study: StudyOnDisk, facts: list[Fact]) -> dict[str, Verdict]:
    """By cell, what its run comes to; nothing of where in the log it stands."""
    artifacts = Artifacts(StudyDirectory(study.path).artifacts)
    scores = fold(TransferScores(artifacts.get), facts)
    void = Counter(
        str(f.event.cell)
        for f in facts
        if isinstance(f.event, CaseFinished) and f.event.ended == "void"
    )
    assert {c: len(score.void_attempts) for c, score in scores.runs.items() if void[c]} == void
    return {
        cell: (
            score.result,
            score.behavioural,
            {stage: found.verdict for stage, found in score.stages.items()},
            (score.earliest, score.uncertain, score.decision, score.acted, score.said_done),
            [each.what for each in score.prohibited],
            [(claim.kind, claim.about, claim.verdict) for claim in score.claims],
            (score.delivered, score.delivered_eligible, score.leaked, score.uncertainty),
        )
        for cell, score in scores.runs.items()
    }


@pytest.fixture(scope="module")
def undisturbed(
    frozen: StudyOnDisk, fake: OpenAIFake, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[str, Verdict]]:
    """(records that a run writes, the verdicts that it comes to)."""
    study = start(frozen, tmp_path_factory.mktemp("undisturbed") / "study", fake)
    take_steps(study, "run")
    facts = study.facts()
    check_sessions(study, facts, fake)
    found = verdicts(study, facts)
    assert len(found) == CELLS
    assert {result for result, *_ in found.values()} > {"verified"}
    return len(facts) - len(frozen.facts()), found


def killed_run(study: StudyOnDisk, records: int, draw: random.Random, kills: int) -> int:
    """Kill everything up to so many times, and go on to the end; how many kills there were."""
    done = 0
    process = study.start("run")
    for _ in range(kills):
        wait_for_a_moment(study, process, draw, records)
        processes = study.processes()
        if process.poll() == 0 or not processes:
            break
        kill(processes)
        assert "Traceback" not in finish(process).err
        done += 1
        process = study.start("run")
    assert "Traceback" not in finish(process).err
    run_to_the_end(study)
    wait_until_all_have_ended(study)
    return done


def test_all_processes_are_killed_at_random_moments(
    frozen: StudyOnDisk,
    undisturbed: tuple[int, dict[str, Verdict]],
    fake: OpenAIFake,
    tmp_path: Path,
) -> None:
    records, expected = undisturbed
    kills, seed, repeated = 0, 200, 0
    while kills < KILLS:
        study = start(frozen, tmp_path / str(seed), fake)
        kills += killed_run(study, records, random.Random(seed), KILLS_A_STUDY)
        facts = study.facts()
        check_sessions(study, facts, fake)
        repeated += sum(isinstance(f.event, CaseFinished) for f in facts) - CELLS
        assert verdicts(study, facts) == expected
        check_commands(facts)
        for words in (["verify-chain"], ["replay", "--check"], ["audit"]):
            checked = study.ledger_command(*words, "--json")
            assert checked.status == 0, checked.out
        shutil.rmtree(study.path.parent)
        seed += 1
    assert repeated > 0, "no kill met a session"
    count(KIND, range(kills))
