"""The residency protocol against the stand-in: what the client does and what it reports."""

import os
from pathlib import Path

import msgspec
import pytest

from actors.rehearsal.stand_in_server import StandInServer
from actors.servers.contract import (
    ForeignResident,
    IdentityMismatch,
    JustInTimeLoading,
    LoadFailed,
    ModelServer,
    ModelServerError,
    ResidencyDisagreement,
    ServerUnreachable,
    UnexpectedAnswer,
    UnloadFailed,
)
from actors.servers.http_model_server import Limits
from actors.servers.lmstudio import LMStudio
from schemas.study import Model

VIEWS = {"v1": "/api/v1/models", "v0": "/api/v0/models", "ps": "lms ps"}


def loads_sent(stand_in: StandInServer) -> int:
    return sum(entry.get("path") == "/api/v1/models/load" for entry in stand_in.state.log)


def test_the_whole_life_of_two_models(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model, gpt_oss: Model
) -> None:
    server: ModelServer = lmstudio  # the client keeps the contract
    for spec in (qwen, gpt_oss):
        checked = server.preflight(spec)
        assert checked.identity.variant == spec.variant
        assert checked.simulated
        loaded = server.load(spec)
        assert loaded.instance_id == spec.key
        assert loaded.context_length == 65_536
        assert loaded.simulated
        (resident,) = server.residents().instances
        assert resident.instance_id == loaded.instance_id
        assert {length for _, length in resident.context_lengths} == {65_536}
        assert {view for view, _ in resident.context_lengths} == set(VIEWS.values())
        server.unload(loaded.instance_id)
        assert server.residents().instances == ()
    assert stand_in.state.max_resident_ever == 1
    assert stand_in.state.switches == 1
    assert stand_in.state.virtual_ms == 21_000 + 13_000


def test_preflight_keeps_the_bytes_of_every_view(lmstudio: LMStudio, qwen: Model) -> None:
    labels = [label for label, _ in lmstudio.preflight(qwen).evidence]
    assert labels == [
        "lms server status --json exit 0",
        "GET /lmstudio-greeting 200",
        "GET /api/v1/models 200",
        "GET /api/v0/models 200",
        "lms ps --json exit 0",
        "GET /v1/models 200",
        "GET /api/v1/models 200",
    ]
    content = dict(lmstudio.preflight(qwen).evidence)
    assert msgspec.json.decode(content["lms ps --json exit 0"]) == []
    assert msgspec.json.decode(content["GET /lmstudio-greeting 200"]) == {"lmstudio": True}


def test_the_load_asks_for_the_context_and_for_the_configuration(
    lmstudio: LMStudio, qwen: Model
) -> None:
    content = dict(lmstudio.load(qwen).evidence)
    answer = msgspec.json.decode(content["POST /api/v1/models/load 200"])
    assert answer["load_config"]["context_length"] == 65_536


def test_the_inventory_names_every_model(stand_in: StandInServer, lmstudio: LMStudio) -> None:
    inventory = lmstudio.inventory()
    assert [model.key for model in inventory.models] == list(stand_in.state.models)
    by_key = {model.key: model for model in inventory.models}
    assert by_key["openai/gpt-oss-20b"].reasoning == ("low", "medium", "high")
    assert by_key["decoy/no-reasoning"].reasoning == ()


# ---- identity --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"variant": "qwen/qwen3.6-35b-a3b@8bit"}, "selected variant"),
        ({"quantization": "8bit"}, "quantization"),
        ({"format": "gguf"}, "format"),
        ({"max_context_length": 131_072}, "max_context_length"),
        ({"reasoning": "low"}, "reasoning"),
    ],
)
def test_each_field_of_the_identity_is_fatal(
    stand_in: StandInServer,
    lmstudio: LMStudio,
    qwen: Model,
    change: dict[str, object],
    field: str,
) -> None:
    spec = msgspec.structs.replace(qwen, **change)
    with pytest.raises(IdentityMismatch) as raised:
        lmstudio.load(spec)
    assert [difference.field for difference in raised.value.differences] == [field]
    assert spec.variant in raised.value.remedy
    assert raised.value.instance_id is None
    assert loads_sent(stand_in) == 0


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("decoy/other-variant-selected", "selected variant"),
        ("qwen3.6-35b-a3b", "format"),
        ("decoy/small-context", "max_context_length"),
        ("decoy/no-reasoning", "reasoning"),
        ("qwen/qwen3.6-35b-a3b@4bit", "records"),
    ],
)
def test_decoys_are_refused(lmstudio: LMStudio, qwen: Model, key: str, field: str) -> None:
    variant = qwen.variant if "@" in key else f"{key}@4bit"
    with pytest.raises(IdentityMismatch) as raised:
        lmstudio.identity(msgspec.structs.replace(qwen, key=key, variant=variant))
    assert field in [difference.field for difference in raised.value.differences]


def test_another_variant_selected_since_the_freeze(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"other_variant": {"variant": "qwen/qwen3.6-35b-a3b@8bit"}})
    with pytest.raises(IdentityMismatch, match="selected variant: frozen .*@4bit, server .*@8bit"):
        lmstudio.preflight(qwen)


def test_another_variant_selected_by_the_load(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"other_variant": {"when": "load"}})
    with pytest.raises(IdentityMismatch, match="selected variant") as raised:
        lmstudio.load(qwen)
    assert raised.value.instance_id == qwen.key  # it is in memory and must be unloaded
    assert lmstudio.unload(qwen.key).instance_id == qwen.key


def test_a_smaller_context_is_fatal_and_names_every_view(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"smaller_context": {"context_length": 8_192}})
    with pytest.raises(IdentityMismatch) as raised:
        lmstudio.load(qwen)
    assert {difference.observed for difference in raised.value.differences} == {8_192}
    assert len(raised.value.differences) == 4
    assert raised.value.instance_id == qwen.key


# ---- who is in memory ------------------------------------------------------------------------


def test_just_in_time_loading_is_proven_off(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"jit_on": {}})
    with pytest.raises(JustInTimeLoading, match="just-in-time"):
        lmstudio.preflight(qwen)


@pytest.mark.parametrize("key", ["decoy/no-reasoning", "text-embedding-qwen3-embedding-0.6b"])
def test_a_foreign_resident_stops_preflight_and_load(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model, key: str
) -> None:
    stand_in.state.set_faults({"foreign_resident": {"key": key}})
    for action in (lmstudio.preflight, lmstudio.load):
        with pytest.raises(ForeignResident, match=key):
            action(qwen)
    assert loads_sent(stand_in) == 0


def test_a_foreign_resident_that_comes_with_the_load(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"foreign_resident": {"when": "load"}})
    with pytest.raises(
        ForeignResident, match=r"not loaded by this study: decoy/no-reasoning\."
    ) as e:
        lmstudio.load(qwen)
    assert e.value.instance_id == qwen.key


def test_two_instances_of_one_load(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"second_instance": {}})
    with pytest.raises(ForeignResident) as raised:
        lmstudio.load(qwen)
    assert raised.value.instance_id == f"{qwen.key}:2"
    assert stand_in.state.max_resident_ever == 2


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("says", ["none", "phantom"])
def test_a_view_that_disagrees_is_never_nothing_loaded(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model, view: str, says: str
) -> None:
    if says == "none":
        lmstudio.load(qwen)
    stand_in.state.set_faults({"views_disagree": {"view": view, "says": says}})
    with pytest.raises(ResidencyDisagreement) as raised:
        lmstudio.residents()
    odd = {name for name, ids in raised.value.views.items() if bool(ids) == (says == "phantom")}
    assert odd == {VIEWS[view]}
    assert len(raised.value.evidence) == 3  # the bytes of all three views
    with pytest.raises(ResidencyDisagreement):
        lmstudio.load(qwen)


def test_residents_without_just_in_time_and_with_it(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    lmstudio.load(qwen)
    stand_in.state.set_faults({"jit_on": {}})  # /api/v0/models now lists what is not loaded too
    assert [one.instance_id for one in lmstudio.residents().instances] == [qwen.key]


# ---- load and unload -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "words"), [("load_500", "insufficient memory"), ("load_404", "not found")]
)
def test_a_failed_load_says_why(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model, fault: str, words: str
) -> None:
    stand_in.state.set_faults({fault: {}})
    with pytest.raises(LoadFailed, match=words) as raised:
        lmstudio.load(qwen)
    assert raised.value.evidence[-1].label.startswith("POST /api/v1/models/load ")
    assert words.encode() in raised.value.evidence[-1].content
    assert lmstudio.residents().instances == ()


def test_a_load_that_hangs(stand_in: StandInServer, lms: list[str], qwen: Model) -> None:
    limits = Limits(load_s=0.2)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=limits)
    stand_in.state.set_faults({"load_hangs": {}})
    with pytest.raises(LoadFailed, match=r"no answer within 0\.2 s"):
        client.load(qwen)
    client.close()


def test_an_unload_that_never_ends(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    lmstudio.load(qwen)
    stand_in.state.set_faults({"unload_never": {}})
    with pytest.raises(UnloadFailed, match="still in memory") as raised:
        lmstudio.unload(qwen.key)
    assert raised.value.instance_id == qwen.key
    # The request's answer and the last reading of three views, however often it polled.
    assert len(raised.value.evidence) == 4


def test_an_unload_that_is_confirmed_early_is_waited_for(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    lmstudio.load(qwen)
    stand_in.state.set_faults({"unload_early": {"listings": 2}})
    unloaded = lmstudio.unload(qwen.key)
    assert stand_in.state.instances == {}
    assert [label for label, _ in unloaded.evidence] == [
        "POST /api/v1/models/unload 200",
        "GET /api/v1/models 200",
        "GET /api/v0/models 200",
        "lms ps --json exit 0",
    ]


def test_an_unload_that_is_refused(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    with pytest.raises(UnloadFailed, match="No loaded instance"):
        lmstudio.unload("nobody")
    lmstudio.load(qwen)
    stand_in.state.set_faults({"unload_500": {"times": 1}})
    with pytest.raises(UnloadFailed, match="500"):
        lmstudio.unload(qwen.key)
    lmstudio.unload(qwen.key)
    assert stand_in.state.instances == {}


def test_an_unload_with_a_view_that_still_disagrees(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    lmstudio.load(qwen)
    stand_in.state.set_faults({"views_disagree": {"view": "v0", "says": "phantom"}})
    with pytest.raises(ResidencyDisagreement):
        lmstudio.unload(qwen.key)


def test_an_unload_that_leaves_a_foreign_resident(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    lmstudio.load(qwen)
    stand_in.state.set_faults({"foreign_resident": {}})
    with pytest.raises(ForeignResident, match="decoy/no-reasoning"):
        lmstudio.unload(qwen.key)


# ---- the server as a whole -------------------------------------------------------------------


def test_a_stopped_server_says_how_to_start_it(
    stand_in: StandInServer, lmstudio: LMStudio, qwen: Model
) -> None:
    stand_in.state.set_faults({"server_stopped": {}})
    with pytest.raises(ServerUnreachable, match="lms server start --port"):
        lmstudio.preflight(qwen)
    with pytest.raises(ServerUnreachable):
        lmstudio.inventory()


def test_lms_that_is_missing(stand_in: StandInServer, tmp_path: Path, qwen: Model) -> None:
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=[str(tmp_path / "no-lms")])
    with pytest.raises(ServerUnreachable, match="cannot be run"):
        client.preflight(qwen)
    client.close()


def test_lms_that_speaks_of_another_port(lms: list[str], qwen: Model) -> None:
    client = LMStudio("http://127.0.0.1:1", lms=lms)
    with pytest.raises(ServerUnreachable, match=r"not 1\."):
        client.preflight(qwen)
    client.close()


def test_lms_that_prints_something_else(
    stand_in: StandInServer, tmp_path: Path, qwen: Model
) -> None:
    odd = tmp_path / "odd-lms"
    odd.write_text("#!/bin/sh\necho Waking up LM Studio service...\n")
    odd.chmod(0o755)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=[str(odd)])
    with pytest.raises(UnexpectedAnswer, match="did not print") as raised:
        client.preflight(qwen)
    assert b"Waking up" in raised.value.evidence[0].content
    client.close()


def test_a_required_token(stand_in: StandInServer, lms: list[str], qwen: Model) -> None:
    stand_in.state.set_faults({"auth_on": {"token": "sesame"}})
    url = f"http://127.0.0.1:{stand_in.port}"
    without, with_token = LMStudio(url, lms), LMStudio(url, lms, api_token="sesame")
    with pytest.raises(UnexpectedAnswer, match="401.*API token"):
        without.preflight(qwen)
    assert with_token.preflight(qwen).identity.key == qwen.key
    without.close()
    with_token.close()


def test_sentences_in_front_of_what_lms_prints(
    stand_in: StandInServer, lms: list[str], tmp_path: Path, qwen: Model
) -> None:
    talking = tmp_path / "talking-lms"
    talking.write_text(
        f'#!/bin/sh\necho "[i] Waking up LM Studio service..."\nexec {lms[0]} "$@"\n'
    )
    talking.chmod(0o755)
    client = LMStudio(f"http://127.0.0.1:{stand_in.port}", lms=[str(talking)])
    assert client.preflight(qwen).identity.key == qwen.key
    client.close()


def test_an_error_body_under_status_200(stand_in: StandInServer, lmstudio: LMStudio) -> None:
    stand_in.state.set_faults({"old_server": {}})
    with pytest.raises(UnexpectedAnswer, match="answered 200: Unexpected endpoint") as raised:
        lmstudio.residents()
    assert raised.value.evidence[0].label == "GET /api/v1/models 200"


def test_a_body_that_is_not_as_documented(stand_in: StandInServer, lmstudio: LMStudio) -> None:
    stand_in.state.set_faults({"undocumented_listing": {}})
    with pytest.raises(UnexpectedAnswer, match="not as documented"):
        lmstudio.inventory()


def test_a_listing_that_is_too_long(stand_in: StandInServer, lms: list[str]) -> None:
    client = LMStudio(
        f"http://127.0.0.1:{stand_in.port}", lms=lms, limits=Limits(max_body_bytes=1_000)
    )
    with pytest.raises(UnexpectedAnswer, match="longer than 1000 bytes"):
        client.inventory()
    client.close()


def test_proxies_of_the_environment_are_ignored(
    lmstudio: LMStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    assert len(lmstudio.inventory().models) > 0


@pytest.mark.parametrize("url", ["127.0.0.1:1234", "http://127.0.0.1", "https://127.0.0.1:1"])
def test_an_address_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:1234"):
        LMStudio(url, lms=["lms"])


def test_every_error_says_what_to_do() -> None:
    kinds = []
    pending = [ModelServerError]
    while pending:
        error = pending.pop()
        pending += error.__subclasses__()
        if not error.__subclasses__():
            kinds.append(error.kind)
    assert len(kinds) == len(set(kinds)) == 15


# ---- embeddings ------------------------------------------------------------------------------


def test_vectors_come_one_a_text(lmstudio: LMStudio, embedder: Model) -> None:
    loaded = lmstudio.load(embedder)
    texts = ["parse the header", "parse the headers twice", "unrelated words here"]
    got = lmstudio.embed(loaded.instance_id, texts)
    assert len(got.vectors) == 3
    assert got.simulated
    near, far = (
        sum(a * b for a, b in zip(got.vectors[0], other, strict=True)) for other in got.vectors[1:]
    )
    assert near > far
    assert got.vectors == lmstudio.embed(loaded.instance_id, texts).vectors


def test_vectors_of_a_model_that_is_not_loaded(lmstudio: LMStudio) -> None:
    with pytest.raises(UnexpectedAnswer, match="404"):
        lmstudio.embed("text-embedding-qwen3-embedding-0.6b", ["text"])
