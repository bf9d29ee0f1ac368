"""Which kinds of server a study may name: rules of study.toml."""

from importlib.resources import files

import pytest

from actors.model_server import ModelServerActor
from actors.repair.kind import REPAIR
from actors.servers.openai import OpenAICompatible
from ledger.errors import PreflightMismatch
from schemas.study_file import StudyError, parse_study
from tests.end_to_end.chat_study import TOML

FILES = f'"tiny.gguf" = "{"0" * 64}"'


def transfer(server: str, model_files: str = "") -> bytes:
    return TOML.format(
        turns=3, temperature=0.0, key="tiny", quantization="Q4_1", files=model_files, server=server
    ).encode()


@pytest.mark.parametrize(
    ("server", "model_files"),
    [
        ('kind = "openai"\nresidency = "unobserved"', ""),
        ('kind = "llamacpp"', FILES),
        ('kind = "llamacpp"\nweights = "tiny.gguf"', FILES),
    ],
)
def test_a_transfer_study_may_ask_any_server(server: str, model_files: str) -> None:
    assert parse_study(transfer(server, model_files)).server.kind in server


@pytest.mark.parametrize(
    ("server", "model_files", "named"),
    [
        ('kind = "llamacpp"', "", r"models\[0\]\.files"),
        ('kind = "openai"', "", r"server\.residency"),
        (
            'kind = "openai"\nresidency = "unobserved"\nweights = "tiny.gguf"',
            "",
            r"server\.weights",
        ),
        ('kind = "ollama"', "", r"server\.kind"),
    ],
)
def test_what_does_not_go_together_is_refused(server: str, model_files: str, named: str) -> None:
    with pytest.raises(StudyError, match=named):
        parse_study(transfer(server, model_files))


def repair(server: str) -> bytes:
    """Study 2 on another server."""
    text = (files("actors.rehearsal") / "templates" / "study-2.toml").read_text()
    assert 'kind = "lmstudio"' in text
    return text.replace('kind = "lmstudio"', server).encode()


def test_a_study_of_repairs_may_ask_a_server_that_shows_no_memory_if_it_says_so() -> None:
    declared = parse_study(repair('kind = "openai"\nresidency = "unobserved"')).server
    assert (declared.kind, declared.residency) == ("openai", "unobserved")
    with pytest.raises(StudyError, match=r"server\.residency.*unobserved"):
        parse_study(repair('kind = "openai"'))
    with pytest.raises(StudyError, match="one file of weights"):
        parse_study(repair('kind = "llamacpp"'))


def test_no_amendment_takes_the_demand_back() -> None:
    frozen = parse_study(repair('kind = "lmstudio"'))
    amended = parse_study(repair('kind = "openai"\nresidency = "unobserved"'))
    for before, after in ((frozen, amended), (amended, frozen)):
        (problem,) = after.not_amendable(before, [], begun=False)
        assert problem.startswith(f"`server.residency` was {before.server.residency}")
    assert frozen.not_amendable(frozen, [], begun=True) == []


def test_a_study_that_demands_residency_starts_on_no_server_that_cannot_show_it() -> None:
    study = parse_study(repair('kind = "lmstudio"'))
    client = OpenAICompatible("http://127.0.0.1:1")
    with pytest.raises(PreflightMismatch, match=r"server\.residency"):
        ModelServerActor(study, client, REPAIR.advance)
    client.close()


def test_a_rehearsal_asks_the_stand_in_only() -> None:
    with pytest.raises(StudyError, match=r"stand_in|rehearsal"):
        parse_study(
            transfer('kind = "llamacpp"', FILES).replace(b"title =", b"simulated = true\ntitle =")
        )
