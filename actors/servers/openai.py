"""Any server of OpenAI's HTTP form (Ollama, vLLM, llama.cpp's, mlx-lm): models are listed, turns
are asked, and nothing else is known.

Such a server says neither what is in its memory nor which file a name stands for, so ``load`` only
looks whether the name is listed, and the record says that residency is unobserved. A study that
needs residency control refuses it (``schemas.study.check_server``).
"""

import time

import msgspec

from actors.servers.contract import (
    Capability,
    ChatRequest,
    Checked,
    Difference,
    Identity,
    IdentityMismatch,
    Inventory,
    Loaded,
    Residents,
    Unloaded,
)
from actors.servers.http_model_server import HttpModelServer, Limits, Remedies, encode_chat_request
from schemas.study import Model

REMEDIES = Remedies(
    unreachable="Start the model server on port {port}, or change `server.url` in the study.",
    unexpected="Check that a server with OpenAI's routes (/v1/models, /v1/chat/completions) "
    "answers at `server.url` and, where it asks for a key, that LM_API_TOKEN holds it.",
    wrong_model="Check how the server names its models; what came is not usable.",
)


class _Meta(msgspec.Struct):
    """llama.cpp's addition."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None
    ftype: str | None = None


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    """vLLM's addition."""
    meta: _Meta | None = None

    @property
    def context_length(self) -> int | None:
        return self.max_model_len or (self.meta.n_ctx if self.meta else None)


class _Listing(msgspec.Struct):
    data: list[_Listed] | None = None
    """Ollama sends null where it has no models."""


class OpenAICompatible(HttpModelServer):
    """Client of one server. ``api_token`` goes out as a bearer token and into no record."""

    capabilities: frozenset[Capability] = frozenset({"tool_calls", "streaming", "embeddings"})

    def __init__(
        self, base_url: str, limits: Limits | None = None, api_token: str | None = None
    ) -> None:
        super().__init__(base_url, limits, api_token, REMEDIES)

    def inventory(self) -> Inventory:
        with self._collect() as evidence:
            models = tuple(_identity(model) for model in self._listing())
            return Inventory(models=models, simulated=self._simulated, evidence=tuple(evidence))

    def residents(self) -> Residents:
        """None: what is in memory is not observed. Evidence is the listing."""
        with self._collect() as evidence:
            self._listing()
            return Residents(instances=(), simulated=self._simulated, evidence=tuple(evidence))

    def identity(self, spec: Model) -> Checked:
        """The listed model of that name. Raises IdentityMismatch where it is not listed, or with a
        smaller context than the study's (a server need not say any)."""
        with self._collect() as evidence:
            listed = self._listing()
            found = [model for model in listed if model.id == spec.key]
            if len(found) != 1:
                named = ", ".join(model.id for model in listed[:10]) or "none"
                raise IdentityMismatch(
                    f"the server lists {len(found)} models named {spec.key!r}, not one "
                    f"(listed: {named})",
                    remedy="Write a listed name into the model's `key`, or give the server the "
                    "model.",
                    differences=[Difference("records", 1, len(found))],
                )
            length = found[0].context_length
            if length is not None and length < spec.context_length:
                raise IdentityMismatch(
                    f"{spec.key} has a context of {length} tokens in the server, and the study "
                    f"asks for {spec.context_length}",
                    remedy="Start the server with the study's context length.",
                    differences=[Difference("context_length", spec.context_length, length)],
                )
            return Checked(
                identity=_identity(found[0]), simulated=self._simulated, evidence=tuple(evidence)
            )

    def preflight(self, spec: Model) -> Checked:
        """The same as :meth:`identity`: no more can be seen."""
        return self.identity(spec)

    def load(self, spec: Model) -> Loaded:
        """Look that the model is listed; the server loads it when it is asked, or has done so.

        ``context_length`` is the study's: what the server gives is known where it says so.
        """
        started = time.monotonic_ns()
        checked = self.identity(spec)
        return Loaded(
            instance_id=spec.key,
            identity=checked.identity,
            context_length=spec.context_length,
            duration_ns=time.monotonic_ns() - started,
            simulated=checked.simulated,
            evidence=checked.evidence,
        )

    def unload(self, instance_id: str) -> Unloaded:
        """Only a look at the listing: the server keeps its models as it likes."""
        started = time.monotonic_ns()
        seen = self.residents()
        return Unloaded(
            instance_id=instance_id,
            duration_ns=time.monotonic_ns() - started,
            simulated=seen.simulated,
            evidence=seen.evidence,
        )

    def encode_chat(self, instance_id: str, request: ChatRequest) -> bytes:
        """As to LM Studio, and with a schema of the answer where there is one. The same request
        gives the same bytes."""
        return encode_chat_request(instance_id, request, constrain=True)

    def _listing(self) -> list[_Listed]:
        return self._get("/v1/models", _Listing).data or []


def _identity(model: _Listed) -> Identity:
    """What a listing says of a model, which is little. None: not said."""
    meta = model.meta or _Meta()
    return Identity(
        key=model.id,
        variant=model.id,
        format=None,
        quantization=meta.ftype,
        max_context_length=model.max_model_len or meta.n_ctx_train,
        reasoning=(),
    )
