"""LM Studio 0.4 and later: residency control through its native REST routes and ``lms``, turns
through its OpenAI-compatible route.

Facts are from LM Studio's documentation (``lmstudio-ai/docs``, ``lmstudio-ai/lms``) except where a
comment names a public issue (``bug-tracker#N`` = ``lmstudio-ai/lmstudio-bug-tracker``). What is in
memory is never believed from one source: ``/api/v1/models``, ``/api/v0/models`` and ``lms ps``
must agree, since the first has been seen to be wrong.
"""

import re
import subprocess
import time
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from actors.servers.contract import (
    Capability,
    Checked,
    Difference,
    Evidence,
    ForeignResident,
    Identity,
    IdentityMismatch,
    Inventory,
    JustInTimeLoading,
    Loaded,
    LoadFailed,
    ModelServerError,
    ResidencyDisagreement,
    Resident,
    Residents,
    ServerUnreachable,
    UnexpectedAnswer,
    Unloaded,
    UnloadFailed,
)
from actors.servers.http_model_server import HttpModelServer, Limits, Remedies
from schemas.study import Model

MAX_BRACKETS = 16
"""How many brackets of what ``lms`` prints may be where its JSON begins."""

# The wire structs name the fields that are read. Unknown fields are allowed: versions add some.


class _Quantization(msgspec.Struct):
    name: str | None = None


class _InstanceConfig(msgspec.Struct):
    context_length: int


class _Instance(msgspec.Struct):
    id: str
    config: _InstanceConfig


class _ReasoningOptions(msgspec.Struct):
    allowed_options: list[str]


class _Capabilities(msgspec.Struct):
    reasoning: _ReasoningOptions | None = None


class _V1Model(msgspec.Struct):
    type: str
    key: str
    loaded_instances: list[_Instance]
    max_context_length: int
    format: str | None = None
    quantization: _Quantization | None = None
    capabilities: _Capabilities | None = None
    selected_variant: str | None = None


class _V1Models(msgspec.Struct):
    models: list[_V1Model]


class _V0Model(msgspec.Struct):
    id: str
    state: str
    loaded_context_length: int | None = None


class _V0Models(msgspec.Struct):
    data: list[_V0Model]


class _OpenAIModel(msgspec.Struct):
    id: str


class _OpenAIModels(msgspec.Struct):
    data: list[_OpenAIModel]


class _PsEntry(msgspec.Struct, rename="camel"):
    identifier: str
    model_key: str
    context_length: int | None = None


class _ServerStatus(msgspec.Struct):
    running: bool
    port: int | None = None


class _Greeting(msgspec.Struct):
    lmstudio: bool


class _LoadConfig(msgspec.Struct):
    context_length: int


class _LoadAnswer(msgspec.Struct):
    instance_id: str
    status: str
    load_config: _LoadConfig


class _UnloadAnswer(msgspec.Struct):
    instance_id: str


_T = TypeVar("_T")


class LMStudio(HttpModelServer):
    """Client of one LM Studio. Not thread-safe: its actor makes one call at a time.

    ``lms`` is the argument vector of the command line tool, for example ``["lms"]``.
    """

    capabilities: frozenset[Capability] = frozenset(
        {"residency_control", "tool_calls", "reasoning_effort", "streaming", "embeddings"}
    )

    def __init__(
        self,
        base_url: str,
        lms: Sequence[str],
        limits: Limits | None = None,
        api_token: str | None = None,
    ) -> None:
        super().__init__(
            base_url,
            limits,
            api_token,
            Remedies(
                unreachable="Run `lms server start --port {port}` and try again.",
                unexpected="Check that LM Studio 0.4 or later serves this port and, where it asks "
                "for an API token, that the right one is given.",
                wrong_model="Unload every model in LM Studio and run again; what came is not "
                "usable.",
            ),
        )
        self._lms = tuple(lms)

    # ---- what the server has and holds -------------------------------------------------------

    def inventory(self) -> Inventory:
        with self._collect() as evidence:
            models = self._v1_models()
            return Inventory(
                models=tuple(_identity(model) for model in models),
                simulated=self._simulated,
                evidence=tuple(evidence),
            )

    def identity(self, spec: Model) -> Checked:
        """Raises IdentityMismatch that lists every field in which the server differs."""
        with self._collect() as evidence:
            records = [model for model in self._v1_models() if model.key == spec.key]
            if len(records) != 1:
                # Two records of one key come from a linked second device.
                raise IdentityMismatch(
                    f"the server lists {len(records)} models with key {spec.key!r}, not one",
                    remedy=f"Download {spec.variant}; disconnect linked devices that have it too.",
                    differences=[Difference("records", 1, len(records))],
                )
            identity = _identity(records[0])
            differences = _differences(spec, identity, is_llm=records[0].type == "llm")
            if differences:
                raise _mismatch(spec, differences)
            return Checked(identity=identity, simulated=self._simulated, evidence=tuple(evidence))

    def residents(self) -> Residents:
        """Read all three views. Raises ResidencyDisagreement unless they name the same instances.

        An embedding model is a resident like any other.
        """
        with self._collect() as evidence:
            models = self._v1_models()
            listed = self._get("/api/v0/models", _V0Models).data
            entries = self._lms_json(list[_PsEntry], "ps", "--json")

            # Context lengths by view and instance; a view need not know one.
            views: dict[str, dict[str, int | None]] = {
                "/api/v1/models": {
                    instance.id: instance.config.context_length
                    for model in models
                    for instance in model.loaded_instances
                },
                "/api/v0/models": {
                    model.id: model.loaded_context_length
                    for model in listed
                    if model.state != "not-loaded"
                },
                "lms ps": {entry.identifier: entry.context_length for entry in entries},
            }
            named = {view: sorted(instances) for view, instances in views.items()}
            if len({tuple(ids) for ids in named.values()}) != 1:
                shown = "; ".join(f"{view}: {', '.join(ids) or '-'}" for view, ids in named.items())
                raise ResidencyDisagreement(
                    f"the server's views of its memory disagree ({shown})",
                    remedy="Unload every model in LM Studio, restart it, and run again.",
                    views=named,
                )
            keys = {entry.identifier: entry.model_key for entry in entries}
            return Residents(
                instances=tuple(
                    Resident(
                        instance_id=instance_id,
                        key=keys[instance_id],
                        context_lengths=tuple(
                            (view, length)
                            for view, instances in views.items()
                            if (length := instances[instance_id]) is not None
                        ),
                    )
                    for instance_id in named["lms ps"]
                ),
                simulated=self._simulated,
                evidence=tuple(evidence),
            )

    # ---- residency ---------------------------------------------------------------------------

    def server_status(self) -> tuple[Evidence, ...]:
        """Raises ServerUnreachable unless ``lms`` says that the server runs on our port."""
        with self._collect() as evidence:
            status = self._lms_json(_ServerStatus, "server", "status", "--json")
            remedy = f"Run `lms server start --port {self._port}`."
            if not status.running:
                raise ServerUnreachable("`lms` says that the server does not run", remedy=remedy)
            if status.port != self._port:
                raise ServerUnreachable(
                    f"`lms` says that the server runs on port {status.port}, not {self._port}",
                    remedy=f"{remedy} Or change the server's URL in the study.",
                )
            return tuple(evidence)

    def preflight(self, spec: Model) -> Checked:
        """Everything that must hold before the first load, in this order: the server is up and is
        LM Studio; nothing is resident; nothing would load by itself; the identity equals ``spec``.
        """
        with self._collect() as evidence:
            self.server_status()
            if not self._get("/lmstudio-greeting", _Greeting).lmstudio:
                raise ServerUnreachable(
                    f"what answers at {self._url} is not LM Studio",
                    remedy="Stop the other program, or change the server's URL in the study.",
                )
            residents = self.residents()
            if residents.instances:
                raise _foreign(residents)
            # With just-in-time loading this lists every downloaded model; without it, only what
            # is loaded, which is nothing now. No route shows the switch itself.
            visible = self._get("/v1/models", _OpenAIModels).data
            if visible:
                raise JustInTimeLoading(
                    f"/v1/models lists {len(visible)} models although nothing is loaded: the "
                    "server loads models just in time",
                    remedy="Switch off just-in-time model loading in LM Studio's server settings.",
                )
            checked = self.identity(spec)
            return Checked(
                identity=checked.identity, simulated=self._simulated, evidence=tuple(evidence)
            )

    def load(self, spec: Model) -> Loaded:
        """Load the bare key (variants are listed but not loadable: bug-tracker#1462), with an
        explicit context length, into empty memory, and check what has come of it."""
        body = {"model": spec.key, "context_length": spec.context_length, "echo_load_config": True}
        with self._collect() as evidence:
            before = self.residents()
            if before.instances:
                raise _foreign(before)
            wanted = self.identity(spec).identity
            started = time.monotonic_ns()
            try:
                answer = self._post("/api/v1/models/load", body, _LoadAnswer, self._limits.load_s)
            except (ServerUnreachable, UnexpectedAnswer) as error:
                raise LoadFailed(
                    f"loading {spec.key} failed: {error.message}",
                    remedy=f"Load {spec.key} in LM Studio by hand to see why, free memory, unload "
                    "it, and run again.",
                ) from error
            duration = time.monotonic_ns() - started
            try:
                identity = self._check_loaded(spec, wanted, answer)
            except ModelServerError as error:
                error.instance_id = answer.instance_id
                raise
            return Loaded(
                instance_id=answer.instance_id,
                identity=identity,
                context_length=spec.context_length,
                duration_ns=duration,
                simulated=self._simulated,
                evidence=tuple(evidence),
            )

    def _check_loaded(self, spec: Model, wanted: Identity, answer: _LoadAnswer) -> Identity:
        """Exactly one instance, its context equal in every view, the identity unchanged."""
        if answer.status != "loaded":
            raise LoadFailed(
                f"loading {spec.key} ended with status {answer.status!r}",
                remedy="Unload it in LM Studio, and run again.",
            )
        after = self.residents()
        if [instance.instance_id for instance in after.instances] != [answer.instance_id]:
            raise _foreign(after, but=answer.instance_id)
        resident = after.instances[0]
        lengths = [
            ("answer to the load", answer.load_config.context_length),
            *resident.context_lengths,
        ]
        wrong = [
            Difference(f"context_length in {view}", spec.context_length, length)
            for view, length in lengths
            if length != spec.context_length
        ]
        # `lms` names a model with variants by its key or by the variant.
        if resident.key not in (spec.key, spec.variant):
            wrong.append(Difference("key in lms ps", spec.key, resident.key))
        # No field of a loaded instance in REST names its variant: its parent must be unchanged.
        identity = self.identity(spec).identity
        if identity != wanted:
            wrong.append(Difference("inventory entry", wanted, identity))
        if wrong:
            raise _mismatch(spec, wrong)
        return identity

    def unload(self, instance_id: str) -> Unloaded:
        """Unload by instance, then read the views until all agree on zero, for at most
        ``unload_s``. Evidence is the request's answer and the last reading."""
        started = time.monotonic_ns()
        with self._collect() as evidence:
            try:
                self._post(
                    "/api/v1/models/unload",
                    {"instance_id": instance_id},
                    _UnloadAnswer,
                    self._limits.answer_s,
                )
            except UnexpectedAnswer as error:
                raise UnloadFailed(
                    f"unloading {instance_id} failed: {error.message}",
                    remedy="Unload it in LM Studio, then run again.",
                    instance_id=instance_id,
                ) from error
            end = time.monotonic() + self._limits.unload_s
            while True:
                del evidence[1:]
                problem: ModelServerError
                try:
                    residents = self.residents()
                    if not residents.instances:
                        break
                    if all(one.instance_id != instance_id for one in residents.instances):
                        problem = _foreign(residents)
                    else:
                        problem = UnloadFailed(
                            f"{instance_id} is still in memory {self._limits.unload_s:g} s after "
                            "its unload was confirmed",
                            remedy="Unload it in LM Studio, then run again.",
                            instance_id=instance_id,
                        )
                except ResidencyDisagreement as error:
                    problem = error
                if time.monotonic() >= end:
                    raise problem
                time.sleep(self._limits.poll_s)
            return Unloaded(
                instance_id=instance_id,
                duration_ns=time.monotonic_ns() - started,
                simulated=self._simulated,
                evidence=tuple(evidence),
            )

    # ---- what is asked -----------------------------------------------------------------------

    def _v1_models(self) -> list[_V1Model]:
        return self._get("/api/v1/models", _V1Models).models

    def _lms_json(self, kind: type[_T], *words: str) -> _T:
        """What ``lms`` prints, as ``kind``. Sentences may stand in front of the JSON: it says so
        when it wakes the service up or wants to be updated."""
        output = self._run_lms(*words)
        brackets = islice(re.finditer(rb"[{\[]", output), MAX_BRACKETS)
        problem = "no JSON"
        for start in (bracket.start() for bracket in brackets):
            try:
                return msgspec.json.decode(output[start:], type=kind)
            except (msgspec.DecodeError, RecursionError) as error:
                problem = str(error)
        raise UnexpectedAnswer(
            f"`lms {' '.join(words)}` did not print what is documented ({problem})",
            remedy="Update LM Studio and its `lms` to 0.4 or later.",
        )

    def _run_lms(self, *words: str, any_exit: bool = False) -> bytes:
        """Standard output of ``lms``. Raises ServerUnreachable where it cannot be run or fails."""
        command = " ".join(("lms", *words))
        remedy = f"Run `{command}` by hand; `npx lmstudio install-cli` installs it."
        try:
            done = subprocess.run(
                [*self._lms, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._limits.lms_s,
                check=False,
            )
        except OSError as error:
            raise ServerUnreachable(f"`{command}` cannot be run: {error}", remedy=remedy) from error
        except subprocess.TimeoutExpired as error:
            raise ServerUnreachable(
                f"`{command}` did not end within {self._limits.lms_s:g} s", remedy=remedy
            ) from error
        self._received(f"{command} exit {done.returncode}", done.stdout)
        if done.stderr:
            self._received(f"{command} stderr", done.stderr)
        if done.returncode != 0 and not any_exit:
            text = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise ServerUnreachable(
                f"`{command}` failed with exit status {done.returncode}: {text:.400}",
                remedy=remedy,
            )
        return done.stdout


def _identity(model: _V1Model) -> Identity:
    reasoning = model.capabilities.reasoning if model.capabilities else None
    return Identity(
        key=model.key,
        variant=model.selected_variant or model.key,
        format=model.format,
        quantization=model.quantization.name if model.quantization else None,
        max_context_length=model.max_context_length,
        reasoning=tuple(reasoning.allowed_options) if reasoning else (),
    )


def _differences(spec: Model, found: Identity, *, is_llm: bool) -> list[Difference]:
    fields: list[tuple[str, object, object]] = [
        ("selected variant", spec.variant, found.variant),
        ("format", spec.format, found.format),
        ("quantization", spec.quantization, found.quantization),
        ("max_context_length", spec.max_context_length, found.max_context_length),
    ]
    differences = [Difference(*field) for field in fields if field[1] != field[2]]
    cannot_reason = not found.reasoning and spec.reasoning == "off"
    if is_llm and spec.reasoning not in found.reasoning and not cannot_reason:
        differences.append(Difference("reasoning", spec.reasoning, found.reasoning))
    return differences


def _mismatch(spec: Model, differences: Sequence[Difference]) -> IdentityMismatch:
    shown = "; ".join(
        f"{field}: frozen {frozen}, server {seen}" for field, frozen, seen in differences
    )
    return IdentityMismatch(
        f"{spec.key} is not the frozen model ({shown})",
        remedy=f"Select {spec.variant} ({spec.format} {spec.quantization}, context "
        f"{spec.context_length}) in LM Studio, or amend the study.",
        differences=differences,
    )


def _foreign(residents: Residents, but: str | None = None) -> ForeignResident:
    others = [one.instance_id for one in residents.instances if one.instance_id != but]
    if others:
        message = f"in memory, but not loaded by this study: {', '.join(others)}"
    else:
        message = f"{but} was loaded, but every view says that it is not in memory"
    return ForeignResident(
        message,
        remedy="Unload it (`lms unload --all`) and keep other programs away from the server while "
        "the study runs.",
    )
