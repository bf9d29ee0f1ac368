"""The stand-in's own account of its memory: views, the highest count ever, switches, the clock."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from actors.rehearsal.stand_in_lms import write_lms_wrapper
from actors.rehearsal.stand_in_server import StandInServer
from actors.rehearsal.stand_in_state import FAULTS, NotFound, StandInState
from actors.servers.lmstudio import LMStudio

KEYS = ["qwen/qwen3.6-35b-a3b", "openai/gpt-oss-20b", "text-embedding-qwen3-embedding-0.6b"]


class ResidencyMachine(RuleBasedStateMachine):
    """Loads, unloads and turns in any order against a plain model of what must be in memory."""

    loaded = Bundle("loaded")

    def __init__(self) -> None:
        super().__init__()
        self.state = StandInState()
        self.expected: dict[str, str] = {}
        self.highest = 0
        self.load_order: list[str] = []

    @rule(target=loaded, key=st.sampled_from(KEYS), length=st.none() | st.integers(1, 300_000))
    def load(self, key: str, length: int | None) -> str:
        instance = self.state.load(key, length)
        assert instance.id not in self.expected
        assert instance.context_length <= self.state.models[key].max_context_length
        self.expected[instance.id] = key
        self.highest = max(self.highest, len(self.expected))
        self.load_order.append(key)
        return instance.id

    @rule(instance_id=consumes(loaded))
    def unload(self, instance_id: str) -> None:
        self.state.unload(instance_id)
        del self.expected[instance_id]

    @rule(instance_id=loaded, tokens=st.integers(0, 5_000))
    def generate(self, instance_id: str, tokens: int) -> None:
        before = self.state.virtual_ms
        instance = self.state.instances[instance_id]
        self.state.begin(instance, b"prompt", tokens)
        self.state.end(instance, tokens)
        assert self.state.virtual_ms >= before

    @rule(key=st.sampled_from(KEYS))
    def variants_and_strangers_are_not_found(self, key: str) -> None:
        for action in (self.state.unload, lambda name: self.state.load(name, None)):
            with pytest.raises(NotFound):
                action(f"{key}@4bit")

    @invariant()
    def the_views_agree(self) -> None:
        v1 = {
            instance["id"]: model["key"]
            for model in self.state.v1_models()["models"]
            for instance in model["loaded_instances"]
        }
        v0 = {entry["id"] for entry in self.state.v0_models()["data"]}
        openai = {entry["id"] for entry in self.state.openai_models()["data"]}
        ps = {entry["identifier"]: entry["modelKey"] for entry in self.state.lms_ps()}
        assert v1 == ps == self.expected
        assert v0 == openai == set(self.expected)

    @invariant()
    def the_counts_are_right(self) -> None:
        assert self.state.max_resident_ever == self.highest
        order = self.load_order
        assert self.state.switches == sum(a != b for a, b in zip(order, order[1:], strict=False))
        from_log = [len(entry["resident"]) for entry in self.state.log]
        assert max(from_log, default=0) == self.highest
        assert [entry["n"] for entry in self.state.log] == list(range(len(from_log)))


TestResidency = ResidencyMachine.TestCase
TestResidency.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[tuple[StandInServer, LMStudio]]:
    (tmp_path / "token").write_text("t")
    with StandInServer(0, "t").running() as server:
        lms = write_lms_wrapper(tmp_path, server.port, tmp_path / "token")
        lmstudio = LMStudio(f"http://127.0.0.1:{server.port}", lms=[str(lms)])
        yield server, lmstudio
        lmstudio.close()


def test_the_real_client_sees_what_the_server_holds(
    client: tuple[StandInServer, LMStudio],
) -> None:
    server, lmstudio = client
    history = [("load", 0), ("load", 0), ("load", 2), ("unload", 0), ("load", 1), ("unload", 2)]
    for action, number in history:
        if action == "load":
            server.state.load(KEYS[number], None)
        else:
            server.state.unload(KEYS[number])
        seen = {one.instance_id: one.key for one in lmstudio.residents().instances}
        assert seen == {one.id: one.key for one in server.state.instances.values()}
    assert sorted(server.state.instances) == [KEYS[1], f"{KEYS[0]}:2"]
    assert server.state.max_resident_ever == 3


def test_the_price_of_a_switch_passes_on_the_virtual_clock() -> None:
    state = StandInState()
    prompt, longer = b"p" * 4_000, b"p" * 8_000

    def turn(tokens: int, text: bytes) -> int:
        before = state.virtual_ms
        state.begin(state.instances[KEYS[0]], text, tokens)
        state.end(state.instances[KEYS[0]], 0)
        return state.virtual_ms - before

    state.load(KEYS[0], None)
    first = turn(1_000, prompt)
    grown = turn(2_000, longer)  # the first half is in the key-value cache
    state.unload(KEYS[0])
    state.load(KEYS[0], None)
    reloaded = turn(2_000, longer)
    assert grown == first
    assert reloaded == pytest.approx(2 * first, abs=1)  # a load loses the cache


def test_the_log_file_is_the_log(tmp_path: Path) -> None:
    state = StandInState(log_file=tmp_path / "log.jsonl")
    state.load(KEYS[0], None)
    state.unload(KEYS[0])
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line) for line in lines] == state.log
    assert [entry["event"] for entry in state.log] == ["loading", "loaded", "unloaded"]


def test_a_fault_fires_as_often_as_it_says() -> None:
    state = StandInState()
    state.set_faults({"chat_500": {"times": 2}, "jit_on": {}})
    assert [state.fault("chat_500") is not None for _ in range(3)] == [True, True, False]
    assert [state.fault("jit_on") is not None for _ in range(3)] == [True, True, True]
    with pytest.raises(ValueError, match="no fault 'typo'; there are auth_on, "):
        state.set_faults({"typo": {}})
    assert state.faults.keys() == {"chat_500", "jit_on"}


def test_every_fault_has_a_test() -> None:
    tests = Path(__file__).parents[1]
    files = [
        *(tests / "servers").glob("test_*.py"),
        *(tests / "rehearsal").glob("test_stand_in*.py"),
    ]
    text = "".join(file.read_text() for file in files)
    untested = [
        name
        for name in FAULTS
        if f'"{name}"' not in text and f"{name}=" not in text and "back_pressure_" not in name
    ]
    assert untested == []
