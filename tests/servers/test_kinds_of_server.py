"""Which kinds of server a study may name: rules of study.toml."""

from importlib.resources import files

import pytest

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
        ('kind = "openai"', ""),
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
        ('kind = "openai"\nweights = "tiny.gguf"', "", r"server\.weights"),
        ('kind = "ollama"', "", r"server\.kind"),
    ],
)
def test_what_does_not_go_together_is_refused(server: str, model_files: str, named: str) -> None:
    with pytest.raises(StudyError, match=named):
        parse_study(transfer(server, model_files))


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
def test_a_study_of_repairs_needs_a_server_that_shows_its_memory(kind: str) -> None:
    text = (files("actors.rehearsal") / "templates" / "study-2.toml").read_text()
    assert 'kind = "lmstudio"' in text
    changed = text.replace('kind = "lmstudio"', f'kind = "{kind}"')
    with pytest.raises(StudyError, match=r"server\.kind|models"):
        parse_study(changed.encode())


def test_a_rehearsal_asks_the_stand_in_only() -> None:
    with pytest.raises(StudyError, match=r"stand_in|rehearsal"):
        parse_study(transfer('kind = "openai"').replace(b"title =", b"simulated = true\ntitle ="))
