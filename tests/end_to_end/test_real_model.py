"""A real model (SmolLM2-135M, in process) drives one family: that it answers on the real path is
tested, and not how well."""

import json
from pathlib import Path

import pytest

from actors.servers.llamacpp import LlamaCpp
from schemas.events.cell import TurnAnswered, TurnStarted
from schemas.events.server import ModelLoaded
from schemas.events.transfer import CaseFinished
from tests.end_to_end.chat_study import CASES, begin

OBSERVED = {"completed", "crashed", "timed_out", "flooded", "malformed"}
TURNS, PROMPT, COMPLETION = 3, 1_500, 96
MINUTES = 40
"""After which it hangs: 21 turns of up to 40 s on a busy machine are 14."""


@pytest.mark.slow
def test_a_real_model_runs_a_family_to_its_end(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra real-model is not installed")
    weights = LlamaCpp()
    (identity,) = weights.inventory().models
    (weighed,) = weights.inventory().evidence
    digest = json.loads(weighed.content)["sha256"]
    study = begin(
        tmp_path,
        server='kind = "llamacpp"',
        key="smollm2-135m-instruct",
        quantization="Q4_1",
        files=f'"{identity.key}" = "{digest}"',
        turns=TURNS,
        temperature=0.8,  # with the likeliest token alone so small a model repeats itself
    )
    running = study.start("run", "--json")
    out, err = running.communicate(timeout=MINUTES * 60)
    assert running.returncode == 0, err
    assert json.loads(out)["cells"]["done"] == CASES
    facts = [fact.event for fact in study.facts()]
    ended = [event for event in facts if isinstance(event, CaseFinished)]
    assert len(ended) == CASES and {event.ended for event in ended} <= OBSERVED
    answered = [event for event in facts if isinstance(event, TurnAnswered)]
    asked = [event for event in facts if isinstance(event, TurnStarted)]
    assert len(answered) >= CASES and len(asked) <= CASES * TURNS
    for turn in answered:
        assert turn.response.length > 0 and not turn.simulated
        assert turn.prompt_tokens is not None and 0 < turn.prompt_tokens <= PROMPT
        assert turn.completion_tokens is not None and 0 < turn.completion_tokens <= COMPLETION
    (loaded,) = [event for event in facts if isinstance(event, ModelLoaded)]
    assert (loaded.residency, loaded.simulated) == ("checked", False)
    for words in (["verify-chain"], ["replay", "--check"], ["audit"]):
        done = study.ledger_command(*words)
        assert done.status == 0, (words, done.out)
    analysed = study.ledger_command("analyze", "--reason", "the sweep", "--json")
    assert analysed.status == 0, analysed.err
    assert not analysed.json["results"]["simulated"]
    assert study.ledger_command("report").status == 0
