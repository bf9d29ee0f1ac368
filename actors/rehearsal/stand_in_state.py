"""What the stand-in LM Studio knows: catalogue, instances, faults, virtual clock and its own log.

An instance goes ``absent -> loading -> idle <-> generating -> unloading -> absent``. Its id is the
model's key, then ``key:2``; its origin says who loaded it. Seconds of loading, prefill and decoding
pass on a virtual clock only, so that a rehearsal can show the price of a model switch in no time.

Nothing here does I/O except the optional log file; the HTTP server and the fake ``lms`` are views
of one such state.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from schemas.study import Model

CATALOGUE = Path(__file__).with_name("stand_in_catalogue.json")

Origin = Literal["rest", "jit", "cli", "gui"]
View = Literal["v1", "v0", "ps"]

FAULTS: dict[str, str] = {
    # Each takes `times` (how often it fires; endless without it) beside what its text names.
    "auth_on": "requests need `Authorization: Bearer <token>`; parameter token",
    "server_stopped": "the server answers nobody until `lms server start`",
    "old_server": "the routes below /api/v1 are unknown, as before version 0.4",
    "undocumented_listing": "GET /api/v1/models lacks what is documented",
    "jit_on": "just-in-time loading is switched on",
    "foreign_resident": "another model appears: parameters key, when (now, load, chat)",
    "views_disagree": "one view is wrong: parameters view (v1, v0, ps), says (none, phantom)",
    "other_variant": "another variant is selected: parameters variant, quantization, when "
    "(now, load)",
    "smaller_context": "a load gives less context: parameter context_length",
    "load_404": "a load answers 404 model_not_found",
    "load_500": "a load answers 500",
    "load_hangs": "a load never answers",
    "second_instance": "a load makes two instances, key and key:2, and answers the second",
    "unload_never": "an unload is confirmed and does nothing",
    "unload_early": "an unload is confirmed before it ends: parameter listings (of v1 until then)",
    "unload_500": "an unload answers 500",
    "error_body_200": "a chat answers 200 with an error body",
    "chat_500": "a chat answers 500",
    "back_pressure_429": "a chat answers 429: parameter retry_after (null: no Retry-After)",
    "back_pressure_503": "a chat answers 503: parameter retry_after (null: no Retry-After)",
    "connection_reset_before_first_token": "a chat's connection is reset before any byte",
    "hang_before_first_token": "a chat sends keep-alives and no token",
    "hang_after_first_token": "a chat stops after its first tokens",
    "slow_stream": "a chat's events come slowly: parameter seconds (between two)",
    "half_sse_stream": "a chat's connection closes in the middle of the stream",
    "evicted_while_generating": "the instance disappears in the middle of the stream",
    "error_event": "a chat's stream carries an error: parameters message, after (0 or 1 tokens)",
    "garbage_event": "a chat's stream carries an event that is not JSON",
    "wrong_model_echo": "a chat echoes another model: parameter model",
    "reasoning_ignored": "a chat has no reasoning",
    "reasoning_wrong_field": "a chat's reasoning is in the other of the two fields",
    "reasoning_in_content": "a chat's reasoning is <think> text inside content",
    "harmony_leak": "a chat's tool calls are harmony text inside content",
    "truncated_json_arguments": "a chat's tool arguments stop in the middle",
    "empty_call_ids": "a chat's tool calls have empty ids",
    "duplicate_call_ids": "a chat's tool calls all have the same id",
    "finish_length": "a chat ends with finish_reason length, its last text or arguments cut",
    "wrong_finish_reason": "a chat says stop although it calls tools",
    "usage_missing": "a chat has no usage",
    "usage_zero": "a chat's usage is all zero",
    "overflow_400": "a prompt over the context answers 400",
    "overflow_crash": "a prompt over the context crashes the model: 500, and it is gone",
    "overflow_garbage": "a prompt over the context gets a garbled answer",
    "overflow_silent": "a prompt over the context gets an empty answer (bug-tracker#2339)",
    "repeat_differs": "the n-th answer to the same request differs: parameter nth",
}


class Quantization(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    bits_per_weight: float


class StandInExtras(msgspec.Struct, forbid_unknown_fields=True):
    """What LM Studio does not tell through REST, and how fast the model pretends to be."""

    path: str
    default_context_length: int
    reasoning_field: Literal["reasoning", "reasoning_content"]
    streams_arguments: bool
    """Whether tool arguments come in pieces; Qwen's come whole (bug-tracker#1868)."""
    load_ms: int
    prefill_tokens_per_second: int
    decode_tokens_per_second: int


class CatalogueModel(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One downloaded model, in the fields of ``GET /api/v1/models``."""

    type: Literal["llm", "embedding"]
    publisher: str
    key: str
    display_name: str
    quantization: Quantization
    size_bytes: int
    params_string: str | None
    max_context_length: int
    format: Literal["gguf", "mlx", "safetensors"]
    stand_in: StandInExtras
    architecture: str | None = None
    capabilities: dict[str, Any] | None = None
    description: str | None = None
    variants: list[str] | None = None
    selected_variant: str | None = None


class Catalogue(msgspec.Struct, forbid_unknown_fields=True):
    models: list[CatalogueModel]


def catalogue_with(models: Sequence[Model]) -> bytes:
    """The catalogue as a file, and what a study declares in it as well: it rehearses with models
    that nobody here has downloaded. One that stands there as it is declared stays as it is."""
    known = msgspec.json.decode(CATALOGUE.read_bytes(), type=Catalogue).models
    found = {model.key: model for model in known}
    for model in models:
        own = found.get(model.key)
        if own is None or not _is_as_declared(own, model):
            found[model.key] = _downloaded(model)
    return msgspec.json.encode(Catalogue(models=list(found.values())))


def _is_as_declared(own: CatalogueModel, model: Model) -> bool:
    reasoning = (own.capabilities or {}).get("reasoning", {"allowed_options": ["off"]})
    if model.reasoning not in reasoning["allowed_options"]:
        return False
    return (own.selected_variant, own.quantization.name, own.format, own.max_context_length) == (
        model.variant,
        model.quantization,
        model.format,
        model.max_context_length,
    )


def _downloaded(model: Model) -> CatalogueModel:
    options = next(o for o in (["off", "on"], ["low", "medium", "high"]) if model.reasoning in o)
    return CatalogueModel(
        type="llm",
        publisher=model.key.partition("/")[0],
        key=model.key,
        display_name=model.key,
        quantization=Quantization(name=model.quantization, bits_per_weight=4),
        size_bytes=12 << 30,
        params_string=None,
        max_context_length=model.max_context_length,
        format=model.format,
        capabilities={
            "vision": False,
            "trained_for_tool_use": True,
            "reasoning": {"allowed_options": options, "default": options[-1]},
        },
        variants=[model.variant],
        selected_variant=model.variant,
        stand_in=StandInExtras(
            path=model.key,
            default_context_length=4096,
            reasoning_field="reasoning_content",
            streams_arguments=False,
            load_ms=15000,
            prefill_tokens_per_second=700,
            decode_tokens_per_second=60,
        ),
    )


class Instance(msgspec.Struct):
    """One instance in memory."""

    id: str
    key: str
    context_length: int
    origin: Origin
    state: Literal["loading", "idle", "generating", "unloading"]
    cached_prompt: bytes = b""
    """The prompt whose key-value cache it holds; a load loses it."""
    listings_left: int | None = None
    """An unload that was confirmed early ends after so many listings."""


class NotFound(Exception):
    """No such model or instance."""


class StandInState:
    """Thread-safe: every method takes the lock."""

    def __init__(self, catalogue: Path = CATALOGUE, log_file: Path | None = None) -> None:
        models = msgspec.json.decode(catalogue.read_bytes(), type=Catalogue).models
        self.models = {model.key: model for model in models}
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.instances: dict[str, Instance] = {}
        self.faults: dict[str, dict[str, Any]] = {}
        self.started = True
        self.virtual_ms = 0
        self.max_resident_ever = 0
        self.max_in_flight_ever = 0
        self.switches = 0
        self.log: list[dict[str, Any]] = []
        self._log_file = log_file
        self._last_key: str | None = None
        self._in_flight = 0

    # ---- log, clock and faults ---------------------------------------------------------------

    def record(self, event: str, **data: Any) -> None:
        with self.lock:
            entry = {
                "n": len(self.log),
                "virtual_ms": self.virtual_ms,
                "event": event,
                **data,
                "resident": sorted(self.instances),
            }
            self.log.append(entry)
            if self._log_file is not None:
                with self._log_file.open("ab") as file:
                    file.write(msgspec.json.encode(entry) + b"\n")

    def set_faults(self, faults: dict[str, dict[str, Any]]) -> None:
        """Replace all faults. Raises ValueError that names an unknown one and the known ones."""
        with self.lock:
            for name in faults:
                if name not in FAULTS:
                    raise ValueError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
            self.faults = {name: dict(parameters) for name, parameters in faults.items()}
            for name in ("foreign_resident", "other_variant"):
                if name in self.faults:
                    self.faults[name].setdefault("when", "now")
            self.record("faults_set", faults=sorted(faults))
            if self.fault("server_stopped") is not None:
                self.started = False
            self._appear("now")

    def fault(self, name: str, **matching: Any) -> dict[str, Any] | None:
        """The fault's parameters if it is set and they match, counting this use; else None."""
        with self.lock:
            parameters = self.faults.get(name)
            if parameters is None or parameters.get("times", 1) <= 0:
                return None
            if any(parameters.get(key, value) != value for key, value in matching.items()):
                return None
            if "times" in parameters:
                parameters["times"] -= 1
            return parameters

    def _appear(self, when: str) -> None:
        """A foreign resident whose time has come is there, once."""
        with self.lock:
            foreign = self.fault("foreign_resident", when=when)
            if foreign is not None:
                foreign["when"] = "past"
                self.add(foreign.get("key", "decoy/no-reasoning"), None, "gui")

    # ---- life of an instance -----------------------------------------------------------------

    def add(self, key: str, context_length: int | None, origin: Origin) -> Instance:
        """Load a model: always a new instance. Raises NotFound for an unknown key (an ``@variant``
        is unknown: bug-tracker#1462)."""
        with self.lock:
            model = self.models.get(key)
            if model is None:
                raise NotFound(f"Model {key} not found in downloaded models")
            number = 1
            while (instance_id := key if number == 1 else f"{key}:{number}") in self.instances:
                number += 1
            length = context_length or model.stand_in.default_context_length
            instance = Instance(
                id=instance_id,
                key=key,
                context_length=min(length, model.max_context_length),
                origin=origin,
                state="loading",
            )
            self.instances[instance_id] = instance
            self.max_resident_ever = max(self.max_resident_ever, len(self.instances))
            self.record("loading", instance=instance_id, origin=origin)
            self.virtual_ms += model.stand_in.load_ms
            instance.state = "idle"
            if self._last_key is not None and self._last_key != key:
                self.switches += 1
            self._last_key = key
            self.record("loaded", instance=instance_id, context_length=instance.context_length)
            return instance

    def load(self, key: str, context_length: int | None) -> Instance:
        """A load through REST, with the faults that concern it."""
        with self.lock:
            smaller = self.fault("smaller_context")
            if smaller is not None:
                context_length = int(smaller.get("context_length", 4096))
            if self.fault("second_instance") is not None:
                self.add(key, context_length, "rest")
            instance = self.add(key, context_length, "rest")
            self._appear("load")
            other = self.faults.get("other_variant")
            if other is not None and other["when"] == "load":
                other["when"] = "now"
            return instance

    def remove(self, instance_id: str, why: str = "unloaded") -> None:
        """Raises NotFound for an unknown instance."""
        with self.lock:
            instance = self.instances.get(instance_id)
            if instance is None:
                raise NotFound(f"No loaded instance with identifier {instance_id}")
            instance.state = "unloading"
            del self.instances[instance_id]
            self.record(why, instance=instance_id)

    def unload(self, instance_id: str) -> None:
        """An unload through REST, with the faults that concern it. Raises NotFound."""
        with self.lock:
            if instance_id not in self.instances:
                raise NotFound(f"No loaded instance with identifier {instance_id}")
            if self.fault("unload_never") is not None:
                self.record("unload_ignored", instance=instance_id)
                return
            early = self.fault("unload_early")
            if early is not None:
                self.instances[instance_id].state = "unloading"
                self.instances[instance_id].listings_left = int(early.get("listings", 2))
                return
            self.remove(instance_id)

    # ---- generation --------------------------------------------------------------------------

    def addressed(self, model: str) -> Instance:
        """The instance that a turn for ``model`` reaches: that instance; with just-in-time loading
        a new one of that key; else the only one in memory (bug-tracker#619). Raises NotFound."""
        with self.lock:
            if model in self.instances:
                return self.instances[model]
            if self.fault("jit_on") is not None and model in self.models:
                return self.add(model, None, "jit")
            llms = [one for one in self.instances.values() if self.models[one.key].type == "llm"]
            if len(llms) == 1:
                return llms[0]
            if not llms:
                raise NotFound(
                    "No models loaded. Please load a model in the developer page or use the "
                    "'lms load' command."
                )
            raise NotFound(f"Model {model} is not loaded")

    def begin(self, instance: Instance, prompt: bytes, prompt_tokens: int) -> None:
        """Start generating: prefill what the key-value cache does not hold."""
        with self.lock:
            self._in_flight += 1
            self.max_in_flight_ever = max(self.max_in_flight_ever, self._in_flight)
            instance.state = "generating"
            speed = self.models[instance.key].stand_in.prefill_tokens_per_second
            cached = 0
            if instance.cached_prompt and prompt.startswith(instance.cached_prompt):
                cached = prompt_tokens * len(instance.cached_prompt) // len(prompt)
            self.virtual_ms += (prompt_tokens - cached) * 1000 // speed
            instance.cached_prompt = prompt
            self.record(
                "generating", instance=instance.id, prompt_tokens=prompt_tokens, cached=cached
            )
            self._appear("chat")

    def end(self, instance: Instance, completion_tokens: int) -> None:
        with self.lock:
            self._in_flight -= 1
            speed = self.models[instance.key].stand_in.decode_tokens_per_second
            self.virtual_ms += completion_tokens * 1000 // speed
            if instance.id in self.instances:
                instance.state = "idle"
            self.record("generated", instance=instance.id, completion_tokens=completion_tokens)

    # ---- views -------------------------------------------------------------------------------

    def _visible(self, view: View) -> list[Instance]:
        """Instances as one view shows them."""
        with self.lock:
            wrong = self.fault("views_disagree", view=view)
            if wrong is None or "view" not in wrong:
                return [self.instances[name] for name in sorted(self.instances)]
            if wrong.get("says", "none") == "none":
                return []
            return [
                Instance(
                    id="decoy/no-reasoning",
                    key="decoy/no-reasoning",
                    context_length=4096,
                    origin="gui",
                    state="idle",
                )
            ]

    def _current(self, model: CatalogueModel) -> CatalogueModel:
        """The model as the server describes it now."""
        other = self.faults.get("other_variant")
        if other is None or other["when"] != "now" or model.variants is None:
            return model
        variant = other.get("variant", model.variants[-1])
        name = other.get("quantization", variant.partition("@")[2])
        return msgspec.structs.replace(
            model,
            selected_variant=variant,
            quantization=Quantization(name=name, bits_per_weight=8),
        )

    def v1_models(self) -> dict[str, Any]:
        """``GET /api/v1/models``."""
        with self.lock:
            for instance in list(self.instances.values()):
                if instance.listings_left is not None:
                    instance.listings_left -= 1
                    if instance.listings_left < 0:
                        self.remove(instance.id)
            visible = self._visible("v1")
            models = []
            for model in map(self._current, self.models.values()):
                shown: dict[str, Any] = {
                    "type": model.type,
                    "publisher": model.publisher,
                    "key": model.key,
                    "display_name": model.display_name,
                }
                if model.type == "llm":
                    shown["architecture"] = model.architecture
                shown |= {
                    "quantization": msgspec.to_builtins(model.quantization),
                    "size_bytes": model.size_bytes,
                    "params_string": model.params_string,
                    "loaded_instances": [
                        {"id": one.id, "config": self.load_config(one)}
                        for one in visible
                        if one.key == model.key
                    ],
                    "max_context_length": model.max_context_length,
                    "format": model.format,
                }
                if model.type == "llm":
                    shown |= {"capabilities": model.capabilities, "description": model.description}
                if model.variants is not None:
                    shown |= {
                        "variants": model.variants,
                        "selected_variant": model.selected_variant,
                    }
                models.append(shown)
            return {"models": models}

    def load_config(self, instance: Instance) -> dict[str, Any]:
        """``config`` of a listed instance and ``load_config`` of a load's answer."""
        config: dict[str, Any] = {"context_length": instance.context_length}
        if self.models[instance.key].type == "llm":
            config["parallel"] = 4
        return config

    def v0_models(self) -> dict[str, Any]:
        """``GET /api/v0/models``. Without just-in-time loading it lists only what is loaded
        (bug-tracker#726)."""
        with self.lock:
            visible = self._visible("v0")
            data = []
            for model in map(self._current, self.models.values()):
                shown = {
                    "id": model.key,
                    "object": "model",
                    "type": "embeddings" if model.type == "embedding" else "llm",
                    "publisher": model.publisher,
                    "arch": model.architecture,
                    "compatibility_type": model.format,
                    "quantization": model.quantization.name,
                    "state": "not-loaded",
                    "max_context_length": model.max_context_length,
                }
                loaded = [one for one in visible if one.key == model.key]
                data += [
                    shown
                    | {
                        "id": one.id,
                        "state": "loaded",
                        "loaded_context_length": one.context_length,
                    }
                    for one in loaded
                ]
                if not loaded and "jit_on" in self.faults:
                    data.append(shown)
            return {"data": data, "object": "list"}

    def openai_models(self) -> dict[str, Any]:
        """``GET /v1/models``: what is loaded, and everything with just-in-time loading."""
        with self.lock:
            ids = sorted(self.instances)
            if "jit_on" in self.faults:
                ids += [key for key in self.models if key not in self.instances]
            return {
                "data": [
                    {"id": one, "object": "model", "owned_by": "organization_owner"} for one in ids
                ],
                "object": "list",
            }

    def lms_status(self, port: int) -> dict[str, Any]:
        """``lms server status --json``."""
        return {"running": self.started, "port": port}

    def lms_ls(self) -> list[dict[str, Any]]:
        """``lms ls --json``."""
        with self.lock:
            return [self._lms_model(model) for model in map(self._current, self.models.values())]

    def lms_ps(self) -> list[dict[str, Any]]:
        """``lms ps --json``: models first, then embedding models."""
        with self.lock:
            visible = self._visible("ps")
            visible.sort(key=lambda one: self.models[one.key].type == "embedding")
            return [
                {
                    **self._lms_model(self._current(self.models[one.key])),
                    "identifier": one.id,
                    "ttlMs": 3_600_000 if one.origin == "jit" else None,
                    "lastUsedTime": None,
                    "contextLength": one.context_length,
                    "status": "generating" if one.state == "generating" else "idle",
                    "queued": 0,
                    "parallel": 4 if self.models[one.key].type == "llm" else None,
                }
                for one in visible
            ]

    def _lms_model(self, model: CatalogueModel) -> dict[str, Any]:
        """The SDK's ``ModelInfo`` (``lmstudio-js``, ``ModelInfoBase.ts``)."""
        shown: dict[str, Any] = {
            "type": model.type,
            "modelKey": model.key,
            "format": "safetensors" if model.format == "mlx" else model.format,
            "displayName": model.display_name,
            "publisher": model.publisher,
            "path": model.stand_in.path,
            "sizeBytes": model.size_bytes,
            "indexedModelIdentifier": model.stand_in.path,
            "deviceIdentifier": None,
            "paramsString": model.params_string,
            "architecture": model.architecture,
            "quantization": {
                "name": model.quantization.name,
                "bits": int(model.quantization.bits_per_weight),
            },
        }
        if model.variants is not None:
            shown |= {"variants": model.variants, "selectedVariant": model.selected_variant}
        if model.type == "llm":
            capabilities = model.capabilities or {}
            shown |= {
                "vision": capabilities.get("vision", False),
                "trainedForToolUse": capabilities.get("trained_for_tool_use", False),
            }
        return shown | {"maxContextLength": model.max_context_length}
