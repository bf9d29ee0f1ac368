"""A study is data: the contents of ``study.toml``. Here is what every kind of study declares.

``schemas/repair/study.py`` and ``schemas/transfer/study.py`` add what their kind declares;
``schemas/study_file.py`` reads the file. Study 2 and the examples ship as such files; no study is
special-cased in code.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Protocol, Self, TypeVar

import msgspec
from msgspec import Meta

from schemas.base import END, Digest, Value, ValueMeta
from schemas.identifiers import CellId, Identifier

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[int, Meta(ge=1, le=7 * 24 * 3600)]

Refuse = Callable[[str, str], None]
MAX_PORT = 65_535


class Generation(Value):
    """Sampling parameters sent with every turn."""

    temperature: Annotated[
        float, Meta(ge=0.0, le=2.0, description="of sampling; 0: the likeliest token")
    ] = 0.0
    top_p: Annotated[
        float, Meta(gt=0.0, le=1.0, description="share of probability that is sampled from")
    ] = 1.0
    seed: Annotated[int, Meta(ge=0, description="of sampling, in cells of the main matrix")] = 0
    max_completion_tokens: Annotated[
        Positive, Meta(description="most tokens of one answer; longer ones are cut")
    ] = 8192


class Rehearsal(Value):
    """How competent a simulated agent is; only in a study that says `simulated = true`."""

    competence_per_mille: Annotated[
        int, Meta(ge=0, le=1000, description="tasks out of 1,000 whose gold edit it can make")
    ]
    seed: Annotated[str, Meta(min_length=1, description="name of its draw")]


class Model(Value):
    """One frozen model. Key, variant, quantisation, format, context and reasoning are its identity:
    any difference is fatal."""

    id: Annotated[Identifier, Meta(description="its name here: part of every cell")]
    key: Annotated[str, Meta(min_length=1, description="the server's model key")]
    variant: Annotated[str, Meta(min_length=1, description="key@variant that must be selected")]
    quantization: Annotated[str, Meta(description="as the server names it")]
    format: Annotated[Literal["gguf", "mlx", "safetensors"], Meta(description="of its weights")]
    context_length: Annotated[Positive, Meta(description="tokens that it is loaded with")]
    max_context_length: Annotated[Positive, Meta(description="tokens that it could be loaded with")]
    reasoning: Annotated[
        Literal["on", "off", "low", "medium", "high"], Meta(description="setting of every turn")
    ]
    reasoning_history: Annotated[
        Literal["omit", "tool_chain", "keep"],
        Meta(description="whether earlier reasoning goes into later prompts"),
    ] = "omit"
    generation: Generation = Generation()
    files: Annotated[
        dict[str, Digest], Meta(description="SHA-256 of each file of the model's folder")
    ] = {}
    rehearsal: Rehearsal | None = None


class Server(Value):
    """The model server of the study."""

    kind: Annotated[
        Literal["lmstudio", "stand_in", "openai", "llamacpp"],
        Meta(
            description="`stand_in` starts the simulated LM Studio, only with simulated = true; "
            "`openai`: any server of that form (Ollama, vLLM); `llamacpp`: in this process, "
            "extra real-model"
        ),
    ] = "lmstudio"
    url: Annotated[
        str,
        Meta(
            pattern=rf"^http://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{{1,5}}{END}",
            description='host and port, like "http://127.0.0.1:1234"',
        ),
        Meta(description="where it answers; `stand_in` and `llamacpp` find a port themselves"),
    ] = "http://127.0.0.1:1234"
    residency: Annotated[
        Literal["checked", "unobserved"],
        Meta(
            description="`checked`: at most one model is in memory, and the log proves it; "
            "`unobserved`: not demanded, as for a server that cannot show it (`openai`)"
        ),
    ] = "checked"
    weights: Annotated[
        str,
        Meta(
            description="GGUF file of `llamacpp`, a path of this machine; empty: the model that "
            "comes with the extra real-model. Its SHA-256 stands in the model's `files`"
        ),
    ] = ""
    lms: Annotated[str, Meta(description="the LM Studio command line tool")] = "lms"
    first_token_s: Annotated[
        Seconds, Meta(description="seconds without a first token until the turn timed out")
    ] = 900
    progress_s: Annotated[
        Seconds, Meta(description="seconds without progress after that until it timed out")
    ] = 120


class Grading(Value):
    """When hidden tests judge, and how often gold is run as a control of the test environment."""

    when: Annotated[
        Literal["end", "beside"],
        Meta(description="`end`: outcomes do not exist while cells run"),
    ] = "end"
    gold_every_cells: Annotated[
        int, Meta(ge=0, description="run gold again every N graded cells; 0: only start and end")
    ] = 0


class Stopping(Value):
    """Declared safety conditions; anything else never stops a study."""

    min_free_disk_bytes: Annotated[
        int, Meta(ge=0, description="the study stops, resumable, where less disk is free")
    ] = 1_000_000_000


WHOLE_PROGRAM = "program"
"""The one component of what an earlier version froze as a whole: every file and library."""


class _StudyMeta(ValueMeta, ABCMeta):
    """A struct whose kinds must define what is abstract in it."""


class Study(Value, metaclass=_StudyMeta):
    """What ``study.toml`` declares in a study of any kind, and what each kind answers for."""

    KIND: ClassVar[str]
    """What ``kind`` is in every study of this form."""
    OPEN_TO_AMENDMENTS: ClassVar[str]
    """In words for the report: what of this kind an amendment may change, and what it may not."""
    GRADED: ClassVar[bool]
    """Whether a grader gives every ended cell a verdict; else verdicts are projections of what the
    runs have recorded."""

    format: Annotated[Literal[1], Meta(description="version of this file's form")]
    kind: str
    id: Annotated[Identifier, Meta(description="the study's name, in every report")]
    title: Annotated[str, Meta(min_length=1, description="title of the report")]
    question: Annotated[str, Meta(min_length=1, description="what the study asks, one sentence")]
    simulated: Annotated[
        bool, Meta(description="true: a rehearsal with simulated agents; banners everywhere")
    ] = False
    documents: Annotated[
        tuple[str, ...], Meta(description="files beside study.toml that the freeze binds")
    ] = ()
    server: Server = Server()
    models: tuple[Model, ...] = ()
    grading: Grading = Grading()
    stopping: Stopping = Stopping()
    readings: Annotated[
        dict[str, str], Meta(description="how open points are read; printed in the report")
    ] = {}

    @property
    @abstractmethod
    def runs_foreign_code(self) -> bool:
        """Whether cells run other people's programs: those need a sandbox."""

    @property
    def bound_documents(self) -> tuple[str, ...]:
        """Files beside study.toml that the freeze binds."""
        return self.documents

    @property
    def fixed_documents(self) -> tuple[str, ...]:
        """Of these the ones that no amendment changes."""
        return ()

    @property
    def server_component(self) -> str:
        """Name of the component that asks the study's models."""
        return f"server {self.server.kind}"

    @property
    def shared_components(self) -> tuple[str, ...]:
        """Components that every cell needs, also one that has ended and waits for its verdict."""
        grader = ("grader",) if self.GRADED else ()
        return (WHOLE_PROGRAM, "kernel", self.server_component, *grader)

    @abstractmethod
    def cell_components(self, cell: CellId) -> tuple[str, ...]:
        """Components that run this cell and not every other one."""

    @property
    @abstractmethod
    def max_attempts(self) -> int:
        """How often a cell may start when nothing was observed."""

    @abstractmethod
    def model_of(self, agent: str) -> str:
        """Id of the model that cells of ``agent`` ask; empty where they ask none."""

    @abstractmethod
    def check(self, refuse: Refuse) -> None:
        """Cross-field rules that a type cannot state; ``refuse(key, why)`` raises."""

    @abstractmethod
    def undeclared(self, cells: Sequence[CellId]) -> list[str]:
        """What planned cells rest on and this study does not declare: keys of ``study.toml``, each
        with the id that is missing there."""

    @abstractmethod
    def not_amendable(self, before: Self, cells: Sequence[CellId], begun: bool) -> list[str]:
        """What this study declares otherwise than ``before`` and no amendment can change, given
        the planned cells and whether one of them has begun."""

    def model(self, model_id: str) -> Model:
        """Raises LookupError where the study declares no such model."""
        return declared("model", self.models, model_id)


def check_server(server: Server, models: Sequence[Model], simulated: bool, refuse: Refuse) -> None:
    """Rules between the server, the models and whether the study is a rehearsal."""
    for index, model in enumerate(models):
        if model.context_length > model.max_context_length:
            refuse(f"models[{index}].context_length", "larger than max_context_length")
        if simulated and model.rehearsal is None:
            refuse(f"models[{index}].rehearsal", "a simulated study declares it for every model")
        if model.rehearsal is not None and not simulated:
            refuse(f"models[{index}].rehearsal", "only allowed where `simulated = true`")
    if simulated != (server.kind == "stand_in"):
        refuse("server.kind", '"stand_in" goes with `simulated = true`, and only with it')
    if int(server.url.rpartition(":")[2]) > MAX_PORT:
        refuse("server.url", f"{server.url}: a port is at most {MAX_PORT}")
    if server.kind == "openai" and server.residency == "checked":
        refuse(
            "server.residency",
            'a server of kind "openai" does not show what is in its memory: write `residency = '
            '"unobserved"`, or name "lmstudio"',
        )
    if server.weights and server.kind != "llamacpp":
        refuse("server.weights", 'goes with `kind = "llamacpp"`, and only with it')
    if server.kind == "llamacpp":
        if len(models) != 1:
            refuse("models", '"llamacpp" serves one file of weights: declare one model')
        if len(models[0].files) != 1 or models[0].format != "gguf":
            refuse(
                "models[0].files",
                'names the one GGUF file and its SHA-256, like { "model.gguf" = "…" }: that is the '
                'identity of a model of "llamacpp"',
            )


def is_inside(path: str) -> bool:
    parts = path.rstrip("/").split("/")
    return not {"", ".."} & set(parts) and parts != ["."] and not set(path) & {"\\", "\0"}


class StudyError(ValueError):
    """``study.toml`` cannot be used. The message names the key and what is allowed."""


K = TypeVar("K", bound=Study)


def of_kind(form: type[K], study: Study) -> K:
    """``study`` as one of that kind. Raises StudyError where it is of another one."""
    if not isinstance(study, form):
        raise StudyError(
            f'this is for a study of kind "{form.KIND}", and the study is of kind "{study.kind}"'
        )
    return study


class Named(Protocol):
    """A table of ``study.toml`` with an id."""

    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=Named)


def declared(what: str, items: Iterable[N], item_id: str) -> N:
    """The item of that id. Raises LookupError where the study declares none."""
    for item in items:
        if item.id == item_id:
            return item
    raise LookupError(f"{what} {item_id} is not declared")


def missing_ids(needed: Mapping[str, tuple[Iterable[str], Iterable[str]]]) -> list[str]:
    """``KEY: ID`` for every used id that is not declared; ``needed``: (used, declared) by key."""
    return [
        f"{key}: {missing}"
        for key, (used, known) in needed.items()
        for missing in sorted(set(used) - set(known))
    ]


def needed_by_cells(missing: Iterable[str]) -> list[str]:
    return [f"planned cells need {name}, which is not declared" for name in missing]


def other_residency(before: Server, after: Server) -> list[str]:
    """Whether residency is demanded is frozen: half of a proof is none."""
    if before.residency == after.residency:
        return []
    return [
        f"`server.residency` was {before.residency} and is {after.residency}: keep it as it was. "
        "A server that cannot show its memory is for another study"
    ]


def other_models(before: Sequence[Model], after: Sequence[Model]) -> list[str]:
    """Models that are not what they were; cells of one name would then be of two models."""
    models = {model.id: model for model in after}
    return [
        f"model {model.id} changed in {', '.join(fields_that_differ(model, models[model.id]))}, "
        "and cells have begun: keep it as it was. Another model is another id, and another study"
        for model in before
        if models.get(model.id, model) != model
    ]


def fields_that_differ(one: Value, other: Value) -> list[str]:
    """Keys of two tables of one type, as study.toml writes them."""
    return [
        f"`{field.encode_name}`"
        for field in msgspec.structs.fields(one)
        if getattr(one, field.name) != getattr(other, field.name)
    ]
